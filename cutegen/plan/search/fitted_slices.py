"""Slices of K whose number follows the problem: as many as let a few tiles fill the GPU, where K is deep.

Kernels that were measured have two, four or eight slices. By these a dozen tiles leave multiprocessors idle, and half a
hundred are several waves of CTAs; where K is tens of thousands, sums of any number of slices cost little beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.plan import swapped
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE
from cutegen.plan.search.warpgroup_tiles import MEASURED, Row

SHORTEST = 2048
"""K of a slice at least: with less, filling stages and adding sums decide, which the model knows worse."""
COUNTS = (2, 3, 4, 6, *range(8, 65, 4))
"""Numbers of slices: the last CTA of a tile asks for as many at once as divide them, and each round waits for L2."""
DOUBTED = 1.25
"""Of the whole. On an H200 tiles in slices through a workspace took 0.88 to 1.48 times what the model says by the
corrections of the tile with K whole where K is 4096 to 8192, and were the fastest on 5 of 55 such problems; 0.79 to
1.04 times where K is 16384 or more. So much a number of slices must gain by the model: on no problem of the sweep with
less K one does, and on those with as much it was within 1 % of the fastest that was measured."""


def fitted_slices(problem: ProblemShape, gpu: Gpu) -> Iterator[Row]:
    """Rows that were measured with K whole, in as many slices as fill the GPU once; none for a batch."""
    if problem.batch > 1:
        return
    for row in MEASURED:
        if (row.cluster, row.consumers, row.slices) == (ALONE, COOPERATIVE, 1):
            m, n, k = row.cta
            multiplied = swapped.shape_multiplied(problem) if row.swap else problem
            tiles = -(-multiplied.m // m) * -(-multiplied.n // n)
            most = min(gpu.sms // tiles, problem.k // max(k, SHORTEST))
            if slices := max((count for count in COUNTS if count <= most), default=None):
                yield in_slices(row, slices)


def in_slices(row: Row, slices: int) -> Row:
    """A row that was measured with K whole, as if in `slices` through a workspace."""
    return replace(row, slices=slices, overall=row.overall * DOUBTED)
