"""The problem that a kernel is chosen for, instead of the called one: new batch sizes do not compile.

Extents are rounded up to a few values per octave. Batches and sequences appear in M and K, in the forward and in the
backward pass. N determines the number of tiles and is mostly the width of a layer, so its steps are finer.
"""

from __future__ import annotations

from dataclasses import replace

from cutegen.contract.groups import Groups
from cutegen.contract.problem import MAX_BATCH, MAX_EXTENT, ProblemShape

STEPS_OF_M, STEPS_OF_N, STEPS_OF_K, STEPS_OF_BATCH = 2, 8, 4, 1
"""Values per octave. With 8, every width below 2048 that is a multiple of 128 keeps its own bucket."""

BATCH_INVARIANT_M = 256
"""Rows assumed for a kernel that must not depend on the number of rows."""


def rounded_up(extent: int, steps: int) -> int:
    """Return the least bucket that holds `extent`: a power of two, or one of the `steps` up to the next.

    >>> [rounded_up(x, 2) for x in (1, 3, 5, 17, 64, 65, 3000)]
    [1, 3, 6, 24, 64, 96, 3072]
    >>> rounded_up(14336, 4), rounded_up(11008, 8)
    (14336, 11264)
    """
    octave = 1 << (extent.bit_length() - 1)
    step = max(1, octave // steps)
    return -(-extent // step) * step


def bucket(problem: ProblemShape, *, batch_invariant: bool = False, groups: Groups | None = None) -> ProblemShape:
    """Return the problem to choose a kernel for, not empty; with `batch_invariant` M and the batch have no influence.

    With `groups` their mode is that of as many equal ones: their number has the steps of a batch, and their size those
    of the mode.

    >>> str(bucket(ProblemShape(100, 4096, 4096))), str(bucket(ProblemShape(100, 4096, 4096), batch_invariant=True))
    ('128x4096x4096', '256x4096x4096')
    """
    if groups is not None:
        return _of_groups(problem, groups, batch_invariant=batch_invariant)
    m, batch = (BATCH_INVARIANT_M, 1) if batch_invariant else (problem.m, problem.batch)
    return ProblemShape(
        m=min(rounded_up(m, STEPS_OF_M), MAX_EXTENT),
        n=min(rounded_up(problem.n, STEPS_OF_N), MAX_EXTENT),
        k=min(rounded_up(max(problem.k, 1), STEPS_OF_K), MAX_EXTENT),
        batch=min(rounded_up(batch, STEPS_OF_BATCH), MAX_BATCH),
    )


def _of_groups(problem: ProblemShape, groups: Groups, *, batch_invariant: bool) -> ProblemShape:
    """Return the bucket of groups of one mode.

    >>> str(_of_groups(ProblemShape(1000, 1536, 2048, groups=100), Groups("m"), batch_invariant=False))
    '1536x1536x2048 in 128 groups'
    """
    number = min(rounded_up(max(problem.products, 1), STEPS_OF_BATCH), MAX_EXTENT)
    of, packed = groups.of, groups.layout == "packed"
    each = -(-problem.extents[of] // max(problem.products, 1)) if packed else problem.extents[of]
    if batch_invariant and of != "k":
        each, number = BATCH_INVARIANT_M, 1
    mean = bucket(replace(problem, **{of: max(each, 1)}, groups=None))
    extent = min(mean.extents[of] * number, MAX_EXTENT) if packed else mean.extents[of]
    return replace(mean, **{of: extent}, groups=number)
