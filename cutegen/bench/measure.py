"""Times on a GPU: every contender once a round, the L2 cache cold, the median over the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Twice the largest L2 cache there is (GB200: 126 MiB), so that nothing of a run before is left in it. Writing it also
# keeps the GPU busy while the host prepares the next launch, so that a launch's cost to the host is not measured.
FLUSH_BYTES = 256 << 20
WARM_UP_ROUNDS = 3

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Microseconds of one contender over `rounds` runs."""

    median_us: float
    min_us: float
    max_us: float
    rounds: int

    @classmethod
    def of(cls, samples_us: Sequence[float]) -> Measurement:
        """What a list of times comes to.

        >>> Measurement.of([3.0, 1.0, 2.0])
        Measurement(median_us=2.0, min_us=1.0, max_us=3.0, rounds=3)
        """
        return cls(statistics.median(samples_us), min(samples_us), max(samples_us), len(samples_us))


def interleaved(
    calls: Mapping[str, Call], *, rounds: int, flush: bool = True, after_round: Callable[[], None] = lambda: None
) -> Mapping[str, Measurement]:
    """Each call's time by its name; the calls take turns, so that clocks and heat change for all alike.

    Every call must launch on torch's current stream. With `flush` the L2 cache is overwritten before each run.
    """
    import torch

    buffer = torch.empty(FLUSH_BYTES if flush else 0, dtype=torch.uint8, device="cuda")
    samples_us: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(WARM_UP_ROUNDS + rounds):
        events = {name: _timed(call, buffer) for name, call in calls.items()}
        torch.cuda.synchronize()
        if turn >= WARM_UP_ROUNDS:
            for name, (start, end) in events.items():
                samples_us[name].append(1e3 * start.elapsed_time(end))
        after_round()
    return {name: Measurement.of(samples) for name, samples in samples_us.items()}


def _timed(call: Call, flush: torch.Tensor) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    """The events around one run, which has been enqueued when this returns."""
    import torch

    flush.zero_()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    return start, end
