"""One part of a plan as people and programs see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

from cutegen.support.columns import aligned, text_width, wrapped

LISTED = 8


@dataclass(frozen=True, slots=True)
class View:
    """`blocks` of lines, separated by an empty line; `table` is the same content for JSON."""

    blocks: tuple[Sequence[str], ...]
    table: dict[str, Any]

    @property
    def lines(self) -> list[str]:
        """Return all lines."""
        return [line for i, block in enumerate(self.blocks) for line in (*([""] if i else []), *block)]


def section(title: str, rows: Sequence[Sequence[str]], **columns: Any) -> list[str]:
    """Write a title and rows in aligned columns."""
    return [*wrapped(title, rest="  "), *aligned(rows, **columns)]


def span(values: Iterable[int]) -> str:
    """Format integers compactly, without duplicates: a run with constant step is written by its ends.

    >>> span([3, 3]), span([0, 4, 8, 12]), span([4, 0, 12, 8]), span([0, 1, 2, 3, 18, 19, 20, 21, 5])
    ('3', '0..12 by 4', '4 0 12 8', '0..3 18..21 5')
    """
    found = list(dict.fromkeys(int(value) for value in values))
    runs = _runs(found)
    if len(runs) > 1 and len(found) <= LISTED:
        return " ".join(map(str, found))
    return " ".join(_run_text(run) for run in runs)


def _runs(values: Sequence[int]) -> list[Sequence[int]]:
    """Split `values` into runs of constant step, greedily; fewer than three values are not a run."""
    if not values:
        return []
    steps = [later - earlier for earlier, later in pairwise(values)]
    length = 1 + len(list(takewhile(lambda step: step == steps[0], steps)))
    length = length if length > 2 else 1
    return [values[:length], *_runs(values[length:])]


def _run_text(run: Sequence[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = run[1] - run[0]
    return f"{run[0]}..{run[-1]}" + (f" by {step}" if step != 1 else "")


def cell_table(
    cells: Sequence[Sequence[object]], rows: Sequence[int], columns: Sequence[int], corner: str
) -> list[str]:
    """Write a table of cells with its row and column numbers."""
    body = [(f"{row}", *(f"{cell}" for cell in line)) for row, line in zip(rows, cells, strict=True)]
    header = (corner, *map(str, columns))
    return aligned(body, header=header, right=range(len(header)), indent=1, gap=1)


def folded_table(
    cells: Sequence[Sequence[object]], rows: Sequence[int], columns: Sequence[int], corner: str
) -> list[str]:
    """Write a table that is too wide in pieces below each other, each with its own columns."""
    names = max(len(corner), *(len(f"{row}") for row in rows))
    widest = max(len(f"{value}") for value in (*columns, *(cell for line in cells for cell in line)))
    together = max(1, (text_width() - names - 1) // (widest + 1))
    lines: list[str] = []
    for first in range(0, len(columns), together):
        piece = slice(first, first + together)
        lines += [*([""] if first else []), *cell_table([line[piece] for line in cells], rows, columns[piece], corner)]
    return lines
