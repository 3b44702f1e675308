"""The columns of tensor memory that a CTA uses: buffers of sums first, then each stage's factors, A's before B's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from cutegen.plan.kernel.accumulator import Accumulator
from cutegen.plan.values.path import OperandPath

SUMS = "sums"
"""The use of an accumulator's columns."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`count` columns from `first` on. They hold `SUMS` of a tile, or an operand's factors of a k-tile.

    `number` is that of the buffer, or of the stage.
    """

    holds: str
    number: int
    first: int
    count: int

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.first + self.count


def columns_in_use(sums: Accumulator, operands: Iterable[OperandPath], stages: int) -> tuple[Columns, ...]:
    """Return what a CTA's tensor memory holds, by columns; nothing if sums are in registers."""
    found = [*_counts(sums, tuple(operands), stages)] if sums.columns else []
    firsts = accumulate((count for *_, count in found), initial=0)
    return tuple(
        Columns(holds, number, first, count) for (holds, number, count), first in zip(found, firsts, strict=False)
    )


def _counts(sums: Accumulator, operands: tuple[OperandPath, ...], stages: int) -> Iterator[tuple[str, int, int]]:
    """Yield the use of consecutive columns, its number, and how many they are."""
    for buffer in range(sums.buffers):
        yield SUMS, buffer, sums.columns
    for stage in range(stages):
        for x in operands:
            if (copy := x.s2r.to_tmem) is not None:
                yield x.name, stage, copy.columns
