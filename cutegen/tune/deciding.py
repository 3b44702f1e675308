"""Chooses the winner: the candidate that is fastest beyond noise, else the model's favourite.

A GPU that multiplies without a pause is held at its limit of power, and one that rests between launches is not: of two
large kernels one may be faster in graphs and the other in launches alone. A winner gains in one regime what it loses in
the other, or more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from cutegen.tuned.times import Times

MARGIN = 0.01
"""Less than this share is not told from noise between processes."""
ERRORS = 2.0
"""Standard errors that a difference must exceed."""


def times_of(samples_us: Sequence[float]) -> Times:
    """Median and quartiles of a list of times.

    >>> times_of([3.0, 1.0, 2.0])
    Times(median_us=2.0, low_us=1.0, high_us=3.0, rounds=3)
    """
    if len(samples_us) < 2:
        return Times(median_us=samples_us[0], low_us=samples_us[0], high_us=samples_us[0], rounds=len(samples_us))
    low, middle, high = statistics.quantiles(samples_us, n=4, method="exclusive")
    return Times(
        median_us=middle, low_us=max(low, min(samples_us)), high_us=min(high, max(samples_us)), rounds=len(samples_us)
    )


def gain(samples_us: Mapping[str, Sequence[float]], one: str, favourite: str) -> tuple[float, float]:
    """Return how many times as fast `one` is as the favourite, round by round, and the standard error of that.

    >>> gain({"a": [1.0, 1.0, 1.0], "b": [2.0, 2.0, 2.0]}, "a", "b")
    (2.0, 0.0)
    """
    ratios = [y / x for x, y in zip(samples_us[one], samples_us[favourite], strict=True)]
    if len(ratios) < 3:
        return statistics.median(ratios), math.inf
    low, _, high = statistics.quantiles(ratios, n=4)
    # Of a normal distribution the quartiles are 1.349 sigma apart, and a median has 1.253 times a mean's error.
    return statistics.median(ratios), 1.253 * (high - low) / 1.349 / math.sqrt(len(ratios))


def is_faster(samples_us: Mapping[str, Sequence[float]], one: str, favourite: str) -> bool:
    """Tell whether `one` is faster than the favourite beyond noise."""
    ratio, error = gain(samples_us, one, favourite)
    return ratio - 1 > max(MARGIN, ERRORS * error)


def is_settled(samples_us: Mapping[str, Sequence[float]], one: str, favourite: str) -> bool:
    """Tell whether more rounds would hardly change what `is_faster` says."""
    ratio, error = gain(samples_us, one, favourite)
    return abs(ratio - 1 - MARGIN) > ERRORS * error


def winner(
    decisive: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], favourite: str
) -> tuple[str, bool]:
    """The fastest by `decisive` that is faster than the favourite, else that one, and whether it is a tie.

    Both have the same candidates, one regime's times each, round by round.
    """
    rivals = leaders(decisive, favourite, len(decisive))[1:]
    for name in rivals:
        if is_faster(decisive, name, favourite) and not loses_more(decisive, other, name, favourite):
            return name, False
    return favourite, any(gain(decisive, name, favourite)[0] > 1 for name in rivals)


def loses_more(
    decisive: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], one: str, favourite: str
) -> bool:
    """Tell whether `one` loses by `other`, beyond noise, a larger factor than it gains by `decisive`."""
    ratio, error = gain(other, one, favourite)
    return gain(decisive, one, favourite)[0] * (ratio + ERRORS * error) < 1


def leaders(samples_us: Mapping[str, Sequence[float]], favourite: str, most: int) -> list[str]:
    """The favourite and the fastest others."""
    ranked = sorted(samples_us, key=lambda name: statistics.median(samples_us[name]))
    return [favourite, *[name for name in ranked if name != favourite][: most - 1]]
