"""Energy per GEMM: launch a kernel for about two seconds, and read NVML's energy counter of the GPU meanwhile.

The counter advances in steps of some tens of milliseconds. It is read after every few launches, while the next ones are
already queued. The result covers the time between the counter's first and last step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cutegen.bench.conditions import nvml
from cutegen.contract.problem import ProblemShape

SECONDS = 1.5
LEAD_S = 0.3
"""Seconds not counted, while clocks and temperature settle."""
BURST = 5


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy per GEMM and average power of one contender on one problem."""

    contender: str
    problem: ProblemShape
    joules: float
    watts: float
    sm_clock_mhz: int | None

    @property
    def picojoules_per_flop(self) -> float:
        """Picojoules per operation; a multiply-add is two operations."""
        return 1e12 * self.joules / self.problem.flops

    @property
    def tflops(self) -> float:
        """10^12 operations per second, over all launches."""
        return self.problem.flops * self.watts / self.joules / 1e12


@dataclass(frozen=True, slots=True)
class Reading:
    """The time and the counter's value after a number of launches."""

    launches: int
    at_s: float
    joules: float


def energies(calls: Mapping[str, Callable[[], object]], problem: ProblemShape) -> Iterator[Energy]:
    """Yield the energy of each call, one after the other; nothing if NVML does not count energy."""
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
    """Return joules per launch and watts, between the counter's first step and its last.

    >>> between_steps([Reading(n, 0.5 * n, e) for n, e in enumerate((7, 7, 9, 9, 9, 15, 15))])
    (2.0, 4.0)
    """
    steps = [new for old, new in pairwise(readings) if new.joules != old.joules]
    start, end = steps[0], steps[-1]
    joules = end.joules - start.joules
    return joules / (end.launches - start.launches), joules / (end.at_s - start.at_s)


def _readings(call: Callable[[], object], energy_j: Callable[[], float]) -> Iterator[Reading]:
    """Yield a reading after each burst, while the next burst runs."""
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
