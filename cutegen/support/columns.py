"""Aligned columns of plain text, which show plans and layouts to people."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Collection, Sequence

from cutegen.support.environment import columns

WIDTH, LEAST_WIDTH = 100, 40


def text_width() -> int:
    """Return the columns of text: COLUMNS, else those of the terminal, else 100; at least what a table needs."""
    return max(columns() or _of_terminal() or WIDTH, LEAST_WIDTH)


def _of_terminal() -> int:
    """Return the columns of the terminal that stdout is; 0 if it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):  # a file, a pipe, or a stream in memory
        return 0


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    header: Sequence[str] = (),
    right: Collection[int] = (),
    indent: int = 2,
    gap: int = 2,
    width: int | None = None,
) -> list[str]:
    """Return one line per row, every column as wide as its widest cell; the columns in `right` are right-aligned.

    The last column, unless right-aligned, is wrapped at `width` characters, `text_width()` by default, only between
    words.

    >>> aligned([("g2s.a", "8"), ("s2r.a", "64")], header=("access", "n"), right={1})
    ['  access   n', '  g2s.a    8', '  s2r.a   64']
    """
    table = [tuple(header), *rows] if header else list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        *cells, last = (
            cell.rjust(size) if i in right else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        start = " " * indent + "".join(cell + " " * gap for cell in cells)
        wraps = len(cells) not in right
        lines += (
            wrapped(last.rstrip(), first=start, rest=" " * len(start), width=width)
            if wraps
            else [(start + last).rstrip()]
        )
    return lines


def wrapped(text: str, *, first: str = "", rest: str = "", width: int | None = None) -> list[str]:
    """Wrap `text` at `width` characters, default `text_width()`, only between words; `first` precedes the first line.

    >>> wrapped("one two three", first="- ", rest="  ", width=10)
    ['- one two', '  three']
    """
    width = width or text_width()
    if len(first) + len(text) <= width:
        return [(first + text).rstrip()]
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
