"""Times of one candidate, in jobs and in records."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One candidate in a record; times only if its results were correct."""

    name: str
    status: Status
    predicted_us: float | None = None
    why: str | None = None
    graph: Times | None = None
    launch: Times | None = None

    def times(self, regime: RegimeName) -> Times | None:
        """Return the times of one regime."""
        return self.graph if regime == "graph" else self.launch
