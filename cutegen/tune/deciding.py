"""Selects the winner: the candidate that is fastest beyond noise, else the model's favourite.

A GPU under continuous load runs at its power limit; one that idles between launches does not. Of two large kernels, one
may be faster in graphs and the other in single launches. A winner must gain in one regime at least what it loses in
the other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from cutegen.tuned.times import Times

MARGIN = 0.01
"""A smaller relative difference is not distinguished from noise between processes."""
ERRORS = 2.0
"""Standard errors that a difference must exceed."""


def times_of(samples_us: Sequence[float]) -> Times:
    """Return median and quartiles of a list of times.

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
    """Return the speedup of `one` over the favourite, round by round, and its standard error.

    >>> gain({"a": [1.0, 1.0, 1.0], "b": [2.0, 2.0, 2.0]}, "a", "b")
    (2.0, 0.0)
    """
    ratios = [y / x for x, y in zip(samples_us[one], samples_us[favourite], strict=True)]
    if len(ratios) < 3:
        return statistics.median(ratios), math.inf
    low, _, high = statistics.quantiles(ratios, n=4)
    # In a normal distribution the quartiles are 1.349 sigma apart, and a median has 1.253 times the error of a mean.
    return statistics.median(ratios), 1.253 * (high - low) / 1.349 / math.sqrt(len(ratios))


def is_faster(samples_us: Mapping[str, Sequence[float]], one: str, favourite: str) -> bool:
    """Tell whether `one` is faster than the favourite beyond noise."""
    ratio, error = gain(samples_us, one, favourite)
    return ratio - 1 > max(MARGIN, ERRORS * error)


def is_settled(samples_us: Mapping[str, Sequence[float]], one: str, favourite: str) -> bool:
    """Tell whether more rounds would hardly change the result of `is_faster`."""
    ratio, error = gain(samples_us, one, favourite)
    return abs(ratio - 1 - MARGIN) > ERRORS * error


def winner(
    decisive: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], favourite: str
) -> tuple[str, bool]:
    """Return the fastest by `decisive` that beats the favourite, else the favourite, and whether it is a tie.

    Both mappings have the same candidates, with one regime's times each, round by round.
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
    """Return the favourite and the fastest others."""
    ranked = sorted(samples_us, key=lambda name: statistics.median(samples_us[name]))
    return [favourite, *[name for name in ranked if name != favourite][: most - 1]]
