"""How verbs speak: text for people and JSON for programs on stdout, complaints in one line on stderr.

Text is laid out without colour. On a terminal, unless NO_COLOR is set, a highlighter then colours what it recognizes,
so that nothing is said by colour alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.text import Text
from rich.theme import Theme

from cutegen.errors import OutsideError

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
    highlights = [  # noqa: RUF012 - the base class's own form
        r"(?m)^(?P<title>\S.*)(?=\n )",
        r"(?m)^ {0,2}(?P<key>[\w.]+(?: \w+)?)(?=  )",
        r"(?m)^(?P<key>[\w.()]+)(?= (?:Sw<|[(_]))",
        r"(?m)^ {6,}(?P<rejected>(?:not|and) .*)$",
        r"(?<![\d.])(?P<good>1-way)",
        r"(?<![\d.])(?P<bad>(?!1-way)\d+(?:\.\d+)?-way)",
        r"(?m)(?:  |: )(?P<good>hit|ok|yes)(?=  |,|$)",
        r"(?m)(?:  |: )(?P<bad>miss|wrong|no)(?=  |,|$)",
    ]


def print_lines(lines: Iterable[str], out: Path | None = None) -> None:
    """Lines for people, or for the file `out`. None is broken here: whoever lays out text keeps within 100 columns."""
    if out is not None:
        write_file("--out", out, ("\n".join(lines) + "\n").encode())
        return
    console = Console(theme=_THEME, highlight=False, soft_wrap=True)
    # A path may hold bytes that are no text, which Python keeps as surrogates and no stream encodes.
    text = "\n".join(lines).encode("utf-8", "backslashreplace").decode()
    if console.is_terminal and not console.no_color:
        console.print(_Highlighter()(Text(text)))
    else:
        sys.stdout.write(text + "\n")


def print_json(value: Any, out: Path | None = None) -> None:
    """A JSON value, indented; or into the file `out`."""
    text = json.dumps(value, indent=2) + "\n"
    if out is not None:
        write_file("--out", out, text.encode())
    else:
        sys.stdout.write(text)


def write_file(option: str, path: Path, content: bytes) -> None:
    """The file that `option` asks for. Raises OutsideError when it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutsideError(f"{option}: {path} cannot be written: {error.strerror}") from error


def complain(kind: str, message: str) -> None:
    """One line on stderr, whatever line breaks the message has."""
    sys.stderr.write(f"cutegen: {kind}: {' '.join(message.split())}\n")
