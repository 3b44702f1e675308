"""The source lines of PTX instructions, from the debug directives `.file` and `.loc` that `nvcc -lineinfo` writes.

Source: PTX ISA, "Debugging Directives": a `.loc` holds for the instructions up to the next one; a function begins
without one.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)*\.(?:entry|func)\b")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a program from which PTX was compiled, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class SourceLines:
    """Source lines by lines of PTX: `begins` are the lines, ascending, from which `sources` hold."""

    begins: tuple[int, ...]
    sources: tuple[SourceLine | None, ...]

    def at(self, line: int) -> SourceLine | None:
        """Return the source line of the instruction on a line of PTX, counted from 1; None if it has none."""
        found = bisect_right(self.begins, line)
        return self.sources[found - 1] if found else None


def source_lines(ptx: str) -> SourceLines:
    r"""Read the debug directives of a file. A `.file` may follow its use.

    >>> source_lines('.file 1 "a.cu"\n.entry k() {\n.loc 1 7 3\nret;\n}').at(4)
    SourceLine(file='a.cu', line=7)
    """
    lines = ptx.splitlines()
    files = {found[1]: found[2].replace('\\"', '"') for each in lines if (found := _FILE.match(each))}
    begins: list[int] = []
    sources: list[SourceLine | None] = []
    for number, each in enumerate(lines, start=1):
        if _FUNCTION.match(each):
            begins.append(number)
            sources.append(None)
        elif (found := _LOC.match(each)) and found[1] in files:
            begins.append(number)
            sources.append(SourceLine(files[found[1]], int(found[2])) if int(found[2]) else None)
    return SourceLines(tuple(begins), tuple(sources))
