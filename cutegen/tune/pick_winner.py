"""Selects the winner, the candidate that is fastest beyond noise, else the model's favorite; and makes its record."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from cutegen.tune.jobs import Measured, spec_of_json
from cutegen.tuned.record import SCHEMA, DeviceFacts, Evidence, Record, Times, Tried
from cutegen.tuned.store import keep

# Selects the winner: the candidate that is fastest beyond noise, else the model's favorite.
#
# A GPU under continuous load runs at its power limit; one that idles between launches does not. Of two large kernels,
# one may be faster in graphs and the other in single launches. A winner must gain in one regime at least what it loses
# in the other.


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


def gain(samples_us: Mapping[str, Sequence[float]], one: str, favorite: str) -> tuple[float, float]:
    """Return the speedup of `one` over the favorite, round by round, and its standard error.

    >>> gain({"a": [1.0, 1.0, 1.0], "b": [2.0, 2.0, 2.0]}, "a", "b")
    (2.0, 0.0)
    """
    ratios = [y / x for x, y in zip(samples_us[one], samples_us[favorite], strict=True)]
    if len(ratios) < 3:
        return statistics.median(ratios), math.inf
    low, _, high = statistics.quantiles(ratios, n=4)
    # In a normal distribution the quartiles are 1.349 sigma apart, and a median has 1.253 times the error of a mean.
    return statistics.median(ratios), 1.253 * (high - low) / 1.349 / math.sqrt(len(ratios))


def is_faster(samples_us: Mapping[str, Sequence[float]], one: str, favorite: str) -> bool:
    """Tell whether `one` is faster than the favorite beyond noise."""
    ratio, error = gain(samples_us, one, favorite)
    return ratio - 1 > max(MARGIN, ERRORS * error)


def is_settled(samples_us: Mapping[str, Sequence[float]], one: str, favorite: str) -> bool:
    """Tell whether more rounds would hardly change the result of `is_faster`."""
    ratio, error = gain(samples_us, one, favorite)
    return abs(ratio - 1 - MARGIN) > ERRORS * error


def winner(
    decisive: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], favorite: str
) -> tuple[str, bool]:
    """Return the fastest by `decisive` that beats the favorite, else the favorite, and whether it is a tie.

    Both mappings have the same candidates, with one regime's times each, round by round.
    """
    rivals = leaders(decisive, favorite, len(decisive))[1:]
    for name in rivals:
        if is_faster(decisive, name, favorite) and not loses_more(decisive, other, name, favorite):
            return name, False
    return favorite, any(gain(decisive, name, favorite)[0] > 1 for name in rivals)


def loses_more(
    decisive: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], one: str, favorite: str
) -> bool:
    """Tell whether `one` loses by `other`, beyond noise, a larger factor than it gains by `decisive`."""
    ratio, error = gain(other, one, favorite)
    return gain(decisive, one, favorite)[0] * (ratio + ERRORS * error) < 1


def leaders(samples_us: Mapping[str, Sequence[float]], favorite: str, most: int) -> list[str]:
    """Return the favorite and the fastest others."""
    ranked = sorted(samples_us, key=lambda name: statistics.median(samples_us[name]))
    return [favorite, *[name for name in ranked if name != favorite][: most - 1]]


# Makes a record of a problem's measurements.


def record_of(measured: Measured) -> Record | None:
    """Return the winner as a record; None if there is no winner."""
    if measured.winner is None:
        return None
    winner = next(one for one in measured.results if one.name == measured.winner)
    right = [one.name for one in measured.results if one.status == "ok"]
    return Record(
        asked=spec_of_json(measured.asked, measured.spec_name),
        settled=spec_of_json(winner.settled, measured.spec_name),
        evidence=Evidence(
            schema=SCHEMA,
            name=measured.spec_name,
            target=measured.target,
            problem=measured.problem,
            sizes=measured.sizes,
            winner=winner.name,
            favorite=right[0],
            tie=measured.tie,
            decide_by=measured.decide_by,
            measured_at=measured.measured_at or "",
            seconds=round(measured.seconds, 3),
            device=measured.device or DeviceFacts(name="unknown"),
            versions=dict(measured.versions),
            candidates=tuple(
                Tried(
                    name=one.name,
                    status=one.status,
                    predicted_us=one.predicted_us,
                    why=one.why,
                    graph=one.graph,
                    launch=one.launch,
                )
                for one in measured.results
            ),
        ),
    )


def keep_winner(measured: Measured) -> Path | None:
    """Write the record of a winner; None if there is none. Raises OutsideError if it cannot be written."""
    record = record_of(measured)
    return None if record is None else keep(record)
