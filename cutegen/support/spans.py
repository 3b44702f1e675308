"""Integers as compact text: runs with a constant step by their ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

LISTED = 8
"""Integers that are listed one by one if they are not one run."""


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
