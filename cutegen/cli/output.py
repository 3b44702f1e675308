"""Output of verbs: text for people or JSON for programs, to stdout or a file; one-line errors to stderr.

Text is laid out without color. On a terminal, unless NO_COLOR is set, a highlighter colors what it recognizes, so
color alone never carries information.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.text import Text
from rich.theme import Theme

from cutegen.errors import OutsideError, RequestError

SCHEMA = 1
"""Version of the `--json` output, under the key `schema`. It increases when a key is removed or changes its meaning."""
TEXT_SUFFIX, JSON_SUFFIX = ".txt", ".json"

_THEME = Theme(
    {
        "cutegen.title": "bold",
        "cutegen.key": "cyan",
        "cutegen.rejected": "dim",
        "cutegen.good": "green",
        "cutegen.bad": "red",
    }
)


class _Highlighter(RegexHighlighter):
    base_style = "cutegen."
    highlights = [  # noqa: RUF012 - the base class requires this form
        r"(?m)^(?P<title>\S.*)(?=\n )",
        r"(?m)^ {0,2}(?P<key>[\w.]+(?: \w+)?)(?=  )",
        r"(?m)^(?P<key>[\w.()]+)(?= (?:Sw<|[(_]))",
        r"(?m)^ {6,}(?P<rejected>(?:not|and) .*)$",
        r"(?<![\d.])(?P<good>1-way)",
        r"(?<![\d.])(?P<bad>(?!1-way)\d+(?:\.\d+)?-way)",
        r"(?m)(?:  |: )(?P<good>hit|ok|yes)(?=  |,|$)",
        r"(?m)(?:  |: )(?P<bad>wrong|no)(?=  |,|$)",
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """Destination of a verb's result, and whether it is JSON for programs or text for people."""

    json: bool
    out: Path | None

    @classmethod
    def asked(cls, *, json: bool, out: Path | None = None) -> Self:
        """Read `--json` and `--out`: a .json file gets JSON.

        Raises RequestError for another suffix, and OutsideError without the folder, before the work that would be lost.
        """
        require_folder("--out", out)
        return cls(json or suffix_of(out, (TEXT_SUFFIX, JSON_SUFFIX)) == JSON_SUFFIX, out)

    def give(self, table: Callable[[], Mapping[str, Any]], lines: Callable[[], Iterable[str]]) -> None:
        """Produce the requested form and write it. Raises OutsideError if the file cannot be written.

        JSON has neither NaN nor infinity: a table with one is a defect.
        """
        text = json.dumps({"schema": SCHEMA, **table()}, indent=2, allow_nan=False) if self.json else "\n".join(lines())
        if self.out is not None:
            write_file("--out", self.out, encoded(f"{text}\n"))
        elif self.json:
            sys.stdout.write(f"{text}\n")
        else:
            _print(text)


def suffix_of(out: Path | None, known: Collection[str], option: str = "--out") -> str:
    """Return the file name's suffix in lower case; empty without one. Raises RequestError for an unknown one."""
    suffix = "" if out is None else out.suffix.lower()
    if suffix and suffix not in known:
        raise RequestError(f"{option}: found {out}, which ends with {suffix}; expected {' or '.join(known)}")
    return suffix


def _print(text: str) -> None:
    """Print text for people. Lines are not wrapped here: the code that lays out text keeps the width."""
    console = Console(theme=_THEME, highlight=False, soft_wrap=True)
    text = encoded(text).decode()
    if console.is_terminal and not console.no_color:
        console.print(_Highlighter()(Text(text)))
    else:
        sys.stdout.write(text + "\n")


def require_folder(option: str, path: Path | None) -> None:
    """Raise OutsideError, like `write_file`, if there is no folder for the file that `option` names."""
    if path is not None and not os.path.isdir(path.parent):  # accepts any name, unlike Path's method
        raise OutsideError(f"{option}: {path} cannot be written: {os.strerror(errno.ENOENT)}")


def encoded(text: str) -> bytes:
    """Return the text as UTF-8, with surrogates escaped: Python's form of the bytes in a path that are not text."""
    return text.encode("utf-8", "backslashreplace")


def write_file(option: str, path: Path, content: bytes) -> None:
    """Write the file that `option` names, and say so on stderr. Raises OutsideError if it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutsideError(f"{option}: {path} cannot be written: {error.strerror}") from error
    complain("wrote", encoded(f"{path}, {len(content):,} bytes").decode())


def complain(kind: str, message: str) -> None:
    """Print one line on stderr, with the message's line breaks removed."""
    sys.stderr.write(f"cutegen: {kind}: {' '.join(message.split())}\n")
