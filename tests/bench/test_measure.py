"""The timing loops on a stand-in for torch that has a clock of its own."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from cutegen.bench import measure
from cutegen.bench.measure import (
    FLUSH_BYTES,
    MOST_TRIES,
    PASSES,
    WARM_UP_ROUNDS,
    Graph,
    Measurement,
    captured,
    graph_times,
    launch_samples,
    launch_times,
    operand_sets,
)

BEFORE = ["sleep", "read"]
REST = f"rest {measure.REST_S}"


class FakeTorch:
    """What the timing loops use of torch. `log` is what happened, in order; `now_ms` the GPU's time.

    While the host `is_late` the GPU has done all that was enqueued when the host asks for it.
    """

    float32 = "float32"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now_ms = 0.0
        self.is_late = False
        self.slept: list[int] = []
        self.buffer_bytes = 0
        self.cuda = SimpleNamespace(
            Event=self._event,
            synchronize=lambda: self.log.append("synchronize"),
            _sleep=self._sleep,
            Stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            current_stream=lambda: None,
            stream=self._aside,
            CUDAGraph=lambda: SimpleNamespace(replay=lambda: self._spend("replay", 6.0)),
            graph=self._aside,
        )

    def ones(self, *shape: int, dtype: str, device: str) -> str:
        assert (dtype, device) == ("float32", "cuda")
        self.buffer_bytes = 4 * shape[0] * shape[1]
        return "buffer"

    def empty(self, *shape: int, dtype: str, device: str) -> str:
        return "sum"

    def sum(self, buffer: str, *, dim: int, out: str) -> None:
        assert (buffer, out) == ("buffer", "sum")
        self._spend("read", 1000.0)

    def call(self, name: str, *times_ms: float) -> Callable[[], None]:
        """A contender that takes these times, one after the other, and then the last one."""
        left = list(times_ms)
        return lambda: self._spend(name, left.pop(0) if len(left) > 1 else left[0])

    def _sleep(self, cycles: int) -> None:
        self.slept.append(cycles)
        self._spend("sleep", 0.1)

    def _spend(self, what: str, time_ms: float) -> None:
        self.log.append(what)
        self.now_ms += time_ms

    def _event(self, *, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event: SimpleNamespace = SimpleNamespace(
            at=0.0, elapsed_time=lambda end: end.at - event.at, query=lambda: self.is_late
        )
        event.record = lambda: setattr(event, "at", self.now_ms)
        return event

    @contextmanager
    def _aside(self, stream: Any) -> Iterator[None]:
        yield


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(measure, "time", SimpleNamespace(sleep=lambda s: fake.log.append(f"rest {s}")))
    return fake


def test_medians_and_extremes_without_the_warm_up(torch: FakeTorch) -> None:
    slow_at_first = torch.call("a", *[50.0] * WARM_UP_ROUNDS, 1.0, 9.0, 2.0)
    found = launch_times({"a": slow_at_first, "b": torch.call("b", 0.5)}, rounds=3)
    assert found["a"] == Measurement(2000.0, 1000.0, 9000.0, 3)
    assert found["b"] == Measurement(500.0, 500.0, 500.0, 3)


def test_a_run_for_which_the_host_was_late_is_repeated_in_its_round(torch: FakeTorch) -> None:
    late_at = iter([False] * WARM_UP_ROUNDS + [True, True, False, False])

    def stalling() -> None:
        torch.is_late = next(late_at)
        torch.call("a", 50.0 if torch.is_late else 1.0)()

    def calm() -> None:
        torch.is_late = False
        torch.call("b", 2.0)()

    found = launch_samples({"a": stalling, "b": calm}, rounds=2, flush=False)
    assert found == {"a": pytest.approx([1000.0] * 2), "b": pytest.approx([2000.0] * 2)}
    runs = [[what for what in each if what != "sleep"] for each in rounds_of(torch.log)[WARM_UP_ROUNDS:]]
    assert [sorted(each) for each in runs] == [["a", "b"], ["a"], ["a"], ["a", "b"]]
    both, once, again = torch.slept[2 * WARM_UP_ROUNDS :][1:4]
    assert both < once < again


def test_a_call_that_waits_for_the_gpu_counts_with_the_hosts_time(torch: FakeTorch) -> None:
    torch.is_late = True
    found = launch_times({"a": torch.call("a", 5.0)}, rounds=4)
    assert found == {"a": Measurement(5000.0, 5000.0, 5000.0, 4)}
    assert torch.log.count("a") == (WARM_UP_ROUNDS + 4) * MOST_TRIES


def rounds_of(log: list[str]) -> list[list[str]]:
    """What happened between one synchronization and the next, since the GPU has rested."""
    found: list[list[str]] = [[]]
    for what in log:
        if what == REST:
            found = [[]]
        elif what == "synchronize":
            found.append([])
        else:
            found[-1].append(what)
    return found[:-1]


def test_launches_begin_with_an_idle_gpu_that_has_rested_and_graphs_do_not(torch: FakeTorch) -> None:
    launch_times({"a": torch.call("a", 1.0)}, rounds=3)
    assert torch.log[:2] == ["synchronize", REST]
    assert torch.log.count(REST) == 1
    torch.log.clear()
    graph_times({"a": Graph(torch.call("a", 6.0), 12)}, rounds=2)
    assert REST not in torch.log


def test_contenders_take_turns_in_random_order_and_each_finds_the_cache_read_over(torch: FakeTorch) -> None:
    launch_times({name: torch.call(name, 1.0) for name in "abc"}, rounds=9)
    rounds = rounds_of(torch.log)
    assert len(rounds) == WARM_UP_ROUNDS + 9
    for each in rounds:
        assert [each[i : i + 2] for i in range(0, 9, 3)] == [BEFORE] * 3
        assert sorted(each[2::3]) == ["a", "b", "c"]
    assert len({tuple(each) for each in rounds}) > 2
    assert torch.buffer_bytes == FLUSH_BYTES


def test_the_order_is_the_seeds(torch: FakeTorch) -> None:
    logs = []
    for seed in (1, 1, 2):
        torch.log.clear()
        launch_times({name: torch.call(name, 1.0) for name in "abcd"}, rounds=5, seed=seed)
        logs.append(list(torch.log))
    assert logs[0] == logs[1] != logs[2]


def test_without_a_flush_nothing_is_read(torch: FakeTorch) -> None:
    launch_times({"a": torch.call("a", 1.0)}, rounds=1, flush=False)
    assert torch.buffer_bytes == 0
    assert "read" not in torch.log


def test_each_round_is_announced(torch: FakeTorch) -> None:
    rounds: list[int] = []
    launch_times({"a": torch.call("a", 1.0)}, rounds=4, after_round=lambda: rounds.append(1))
    assert len(rounds) == WARM_UP_ROUNDS + 4


def test_a_graph_has_every_set_of_operands_in_turn_several_times(torch: FakeTorch) -> None:
    sets = [torch.call(f"set {i}", 1.0) for i in range(3)]
    graph = captured(sets)
    first, *rest = rounds_of([*torch.log, "synchronize"])
    assert first == ["set 0", "set 1", "set 2"]  # once on a stream of its own: whatever is made at a first call is made
    assert rest == [["set 0", "set 1", "set 2"] * PASSES]
    assert graph.launches == 3 * PASSES


def test_a_graph_keeps_the_operands_of_every_set(torch: FakeTorch) -> None:
    class Operand:
        """What a call reads."""

    def call_on(operand: Operand) -> Callable[[], object]:
        return lambda: operand

    operands = [Operand() for _ in range(3)]
    alive = [weakref.ref(x) for x in operands]
    graph = captured([call_on(x) for x in operands])
    operands.clear()
    gc.collect()
    assert all(x() is not None for x in alive)
    assert graph.launches == 3 * PASSES


def test_a_graphs_time_is_shared_out_over_its_launches(torch: FakeTorch) -> None:
    found = graph_times({"a": Graph(torch.call("a", 6.0), 12)}, rounds=2)
    assert found == {"a": Measurement(500.0, 500.0, 500.0, 2)}
    assert torch.log[:2] == ["sleep", "a"]


def test_sets_of_operands_overflow_the_cache_or_are_many() -> None:
    l2 = 50 << 20
    for size in (1 << 10, 1 << 20, 60 << 20, 1 << 30):
        count = operand_sets(size, l2)
        assert 2 <= count <= measure.MOST_SETS
        assert count == measure.MOST_SETS or count * size > measure.L2_FILLS * l2
