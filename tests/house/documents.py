"""The documents at the top of the repository, taken apart for the tests that hold them against the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MARKDOWN = (*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/*/README.md"))
DOCUMENTS = tuple(sorted(path for path in _MARKDOWN if path.name != "CHANGELOG.md"))  # a changelog names what is gone

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block; `line` is where its content begins."""

    document: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        """The name of the file that the block is, if its first line says so: `# own.py`; else ""."""
        named = re.match(r"# (\w+\.\w+)\n", self.text)
        return named[1] if named else ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A command of a console block and what the document says it prints; an output line `...` stands for any lines."""

    address: str
    command: str
    output: str


def fences(document: Path) -> Iterator[Fence]:
    """Every fenced block, in order."""
    text = document.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        yield Fence(str(document.relative_to(ROOT)), line, match[1], match[2])


def transcripts(fence: Fence) -> Iterator[Transcript]:
    """The commands of a console block, each a line that begins with `$ `, with what stands under it."""
    for part in re.split(r"^\$ ", fence.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Transcript(f"{fence.document}:{fence.line}", command.split("  #")[0].strip(), output)


def inline_code(document: Path) -> list[str]:
    """What stands between single backquotes outside of fences."""
    prose = _FENCE.sub("", document.read_text(encoding="utf-8"))
    return re.findall(r"`([^`\n]+)`", prose)


def commands(document: Path, program: str) -> list[str]:
    """Every command line of `program` that the document shows, in fences and in prose."""
    in_fences = [x.command for f in fences(document) if f.language == "console" for x in transcripts(f)]
    return [text for text in (*in_fences, *inline_code(document)) if shlex.split(text)[:1] == [program]]
