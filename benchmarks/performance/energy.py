"""Energy of a product: a kernel is launched for some seconds, and NVML's counter of the GPU's energy read meanwhile.

The counter moves in steps of some tens of milliseconds, so that it is read after every few launches, the next ones
already queued, and what lies between its first step and its last one counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cutegen.bench.device_state import nvml
from cutegen.contract.problem import ProblemShape

SECONDS = 1.5
LEAD_S = 0.3
"""Not counted: clocks and temperature settle."""
BURST = 5


@dataclass(frozen=True, slots=True)
class Energy:
    """What one contender used for products of a size: each, and on average."""

    contender: str
    problem: ProblemShape
    joules: float
    watts: float
    sm_clock_mhz: int | None

    @property
    def picojoules_per_flop(self) -> float:
        """For an operation, of which a multiply-add is two."""
        return 1e12 * self.joules / self.problem.flops

    @property
    def tflops(self) -> float:
        """10^12 operations a second, over all launches."""
        return self.problem.flops * self.watts / self.joules / 1e12


@dataclass(frozen=True, slots=True)
class Reading:
    """After so many launches: the time, and what the counter says."""

    launches: int
    at_s: float
    joules: float


def energies(calls: Mapping[str, Callable[[], object]], problem: ProblemShape) -> Iterator[Energy]:
    """Of each call, one after the other; of none where NVML does not count energy."""
    import torch

    counter = nvml(torch.cuda.current_device())
    if counter is None or (first := counter.energy_j()) is None:
        return
    for name, call in calls.items():
        readings = list(_readings(call, lambda: counter.energy_j() or first))
        clock = counter.state().sm_clock_mhz
        joules, watts = between_steps([x for x in readings if x.at_s >= readings[0].at_s + LEAD_S])
        yield Energy(name, problem, joules, watts, clock)
        torch.cuda.synchronize()


def between_steps(readings: Sequence[Reading]) -> tuple[float, float]:
    """Joules for each launch, and watts, between the counter's first step and its last.

    >>> between_steps([Reading(n, 0.5 * n, e) for n, e in enumerate((7, 7, 9, 9, 9, 15, 15))])
    (2.0, 4.0)
    """
    steps = [new for old, new in pairwise(readings) if new.joules != old.joules]
    start, end = steps[0], steps[-1]
    joules = end.joules - start.joules
    return joules / (end.launches - start.launches), joules / (end.at_s - start.at_s)


def _readings(call: Callable[[], object], energy_j: Callable[[], float]) -> Iterator[Reading]:
    """One after each burst, while the next one runs."""
    import torch

    def burst() -> torch.cuda.Event:
        for _ in range(BURST):
            call()
        done = torch.cuda.Event()
        done.record()
        return done

    begin, launches, running = time.perf_counter(), 0, burst()
    while time.perf_counter() < begin + LEAD_S + SECONDS:
        following = burst()
        running.synchronize()
        launches += BURST
        yield Reading(launches, time.perf_counter(), energy_j())
        running = following
