"""Times of one candidate, in jobs and in records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "wrong", "failed", "timeout"]
RegimeName = Literal["graph", "launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Microseconds of one candidate in one regime: the median, its quartiles, and the number of runs."""

    median_us: float
    low_us: float
    high_us: float
    rounds: int

    @property
    def are_possible(self) -> bool:
        """True if each time is a positive, finite number."""
        return all(map(is_possible, (self.median_us, self.low_us, self.high_us)))


def is_possible(time_us: float) -> bool:
    """Return whether a time is a positive, finite number.

    >>> is_possible(1.5), is_possible(0.0), is_possible(float("inf")), is_possible(float("nan"))
    (True, False, False, False)
    """
    return time_us > 0.0 and math.isfinite(time_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One candidate in a record; times only if its results were correct."""

    name: str
    status: Status
    predicted_us: float | None = None
    why: str | None = None
    graph: Times | None = None
    launch: Times | None = None

    @property
    def is_possible(self) -> bool:
        """True if all of its times are possible, measured and predicted."""
        predicted = self.predicted_us is None or is_possible(self.predicted_us)
        return predicted and all(each.are_possible for each in (self.graph, self.launch) if each is not None)

    def times(self, regime: RegimeName) -> Times | None:
        """Return the times of one regime."""
        return self.graph if regime == "graph" else self.launch
