"""Times on a GPU, in the two regimes that kernels are called in; no other module measures times.

launch  One launch between two events. The GPU sleeps while the host prepares the launch, so times contain no host
        time; they contain the GPU's launch cost of some three microseconds. The L2 cache is cold and clean: a buffer
        larger than it has been read. (Overwriting a buffer leaves dirty lines, which are written back during the
        measured kernel and cost a memory-bound one eight microseconds.) The GPU rests before the first round: graphs
        reach the power limit, and launches right after them would find their lower clocks.
graph   A CUDA graph that goes three times through several sets of operands, together larger than the L2 cache. The time
        of a launch is the graph's time divided by its launches: they run back to back, as in a model.

In both regimes contenders run in random order, so that changes of clock and temperature affect all alike, and none
always follows the same one. On a busy machine the GPU may reach a run before the host has enqueued all of it, and the
time may then contain host time. Such a run is repeated in the same round, after a longer sleep. Functions take calls by
name and return times by name; a call launches on torch's current stream.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FLUSH_BYTES = 256 << 20
"""Bytes that are written to evict L2: twice the largest L2 cache of any GPU (GB200: 126 MiB)."""
L2_FILLS = 3
"""Times that the operands of a graph fill the L2 cache, within the limit MOST_SETS."""
MOST_SETS = 32
PASSES = 3
"""Times that a graph goes through all sets."""
WARM_UP_ROUNDS = 3
REST_S = 0.25
"""Idle time before launches are measured, in which the clocks recover from work at the power limit."""
MOST_TRIES = 3
"""Runs of a call in a round before its time counts although the host was late: the call waits for the GPU."""
_SLEEP_CYCLES = 200_000  # a tenth of a millisecond, in which the host prepares flush, events and launch
_LONGER = 4  # growth factor of the sleep each time that it was too short

Call = Callable[[], object]
Sleep = Callable[[int], object]
"""Work of the GPU before a call: it sleeps for so many cycles, and more."""


class Regime(StrEnum):
    """Regime in which a kernel is called while it is measured."""

    LAUNCH = "launch"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Microseconds of one contender over `rounds` runs."""

    median_us: float
    min_us: float
    max_us: float
    rounds: int

    @classmethod
    def of(cls, samples_us: Sequence[float]) -> Measurement:
        """Summarize a list of times.

        >>> Measurement.of([3.0, 1.0, 2.0])
        Measurement(median_us=2.0, min_us=1.0, max_us=3.0, rounds=3)
        """
        return cls(statistics.median(samples_us), min(samples_us), max(samples_us), len(samples_us))


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured graph with `launches` of a contender.

    `calls` are the captured calls. They keep the operands alive, which a graph does not: torch returns unused memory to
    the driver when the next graph is captured.
    """

    replay: Call
    launches: int
    calls: tuple[Call, ...] = ()


def launch_times(
    calls: Mapping[str, Call],
    *,
    rounds: int,
    flush: bool = True,
    seed: int = 0,
    after_round: Callable[[], None] = lambda: None,
) -> Mapping[str, Measurement]:
    """Measure one launch of each call. With `flush`, a read empties the L2 cache before each."""
    return _measurements(launch_samples(calls, rounds=rounds, flush=flush, seed=seed, after_round=after_round))


def launch_samples(
    calls: Mapping[str, Call],
    *,
    rounds: int,
    flush: bool = True,
    seed: int = 0,
    after_round: Callable[[], None] = lambda: None,
    warm_up: int = WARM_UP_ROUNDS,
) -> Mapping[str, list[float]]:
    """Return microseconds of one launch of each call, round by round, after a rest of the GPU."""
    import torch

    empty_l2 = _reader() if flush else lambda: None
    torch.cuda.synchronize()
    time.sleep(REST_S)
    before = lambda cycles: (torch.cuda._sleep(cycles), empty_l2())  # noqa: E731
    return _in_turns(calls, rounds, seed, after_round, before, warm_up)


def graph_times(
    graphs: Mapping[str, Graph], *, rounds: int, seed: int = 0, after_round: Callable[[], None] = lambda: None
) -> Mapping[str, Measurement]:
    """Measure one of the launches in each graph."""
    return _measurements(graph_samples(graphs, rounds=rounds, seed=seed, after_round=after_round))


def graph_samples(
    graphs: Mapping[str, Graph],
    *,
    rounds: int,
    seed: int = 0,
    after_round: Callable[[], None] = lambda: None,
    warm_up: int = WARM_UP_ROUNDS,
) -> Mapping[str, list[float]]:
    """Return microseconds of one of the launches in each graph, round by round."""
    import torch

    replays = {name: graph.replay for name, graph in graphs.items()}
    found = _in_turns(replays, rounds, seed, after_round, torch.cuda._sleep, warm_up)
    return {name: [each / graphs[name].launches for each in samples] for name, samples in found.items()}


def captured(calls: Sequence[Call]) -> Graph:
    """Capture the graph of all `calls`, PASSES times; each call of one contender has its own set of operands."""
    import torch

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for call in [*calls] * PASSES:
            call()
    return Graph(graph.replay, PASSES * len(calls), tuple(calls))


def operand_sets(set_bytes: int, l2_bytes: int) -> int:
    """Return how many sets of operands a graph uses, each of `set_bytes`.

    >>> [operand_sets(size, 50 << 20) for size in (6 << 20, 400 << 20, 1000)]
    [26, 2, 32]
    """
    return max(2, min(MOST_SETS, L2_FILLS * l2_bytes // max(set_bytes, 1) + 1))


def l2_bytes() -> int:
    """Return the L2 cache size of torch's current GPU."""
    import torch

    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


def _measurements(samples_us: Mapping[str, Sequence[float]]) -> Mapping[str, Measurement]:
    return {name: Measurement.of(samples) for name, samples in samples_us.items()}


def _in_turns(
    calls: Mapping[str, Call], rounds: int, seed: int, after_round: Callable[[], None], before: Sleep, warm_up: int
) -> Mapping[str, list[float]]:
    """Run each call once per round, in a new order every time, between two events."""
    order, samples_us = random.Random(seed), {name: list[float]() for name in calls}
    for turn in range(warm_up + rounds):
        found_us = _round(calls, order, before)
        if turn >= warm_up:
            for name, samples in samples_us.items():
                samples.append(found_us[name])
        after_round()
    return samples_us


def _round(calls: Mapping[str, Call], order: random.Random, before: Sleep) -> Mapping[str, float]:
    """Return microseconds of each call; calls for which the host was late run again."""
    import torch

    found_us: dict[str, float] = {}
    late = list(calls)
    for attempt in range(MOST_TRIES):
        cycles = _SLEEP_CYCLES * _LONGER**attempt
        runs = {name: _run(calls[name], before, cycles) for name in order.sample(late, len(late))}
        torch.cuda.synchronize()
        found_us |= {name: 1e3 * run.start.elapsed_time(run.end) for name, run in runs.items()}
        late = [name for name, run in runs.items() if run.was_late]
        if not late:
            break
    return found_us


@dataclass(frozen=True, slots=True)
class _Run:
    """The events around one run; the host `was_late` if the GPU had reached it before all of it was enqueued."""

    start: torch.cuda.Event
    end: torch.cuda.Event
    was_late: bool


def _run(call: Call, before: Sleep, cycles: int) -> _Run:
    """Enqueue one run, after a sleep of so many cycles."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before(cycles)
    start.record()
    call()
    end.record()
    return _Run(start, end, was_late=start.query())


def _reader() -> Call:
    """Reads FLUSH_BYTES, and writes only their sum."""
    import torch

    buffer: Any = torch.ones(1, FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")
    found = torch.empty(1, dtype=torch.float32, device="cuda")
    return lambda: torch.sum(buffer, dim=1, out=found)
