"""The timing loop on a stand-in for torch that has a clock of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from cutegen.bench.measure import FLUSH_BYTES, WARM_UP_ROUNDS, Measurement, interleaved


class FakeTorch:
    """What `interleaved` uses of torch. `log` is what happened, in order; `now_ms` the GPU's time."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now_ms = 0.0
        self.flushed_bytes = -1
        self.cuda = SimpleNamespace(Event=self._event, synchronize=lambda: self.log.append("synchronize"))

    def empty(self, elems: int, dtype: str, device: str) -> SimpleNamespace:
        assert (dtype, device) == ("uint8", "cuda")
        self.flushed_bytes = elems
        return SimpleNamespace(zero_=lambda: self._spend("flush", 1000.0))

    def call(self, name: str, *times_ms: float) -> Callable[[], None]:
        """A contender that takes these times, one after the other, and then the last one."""
        left = list(times_ms)
        return lambda: self._spend(name, left.pop(0) if len(left) > 1 else left[0])

    def _spend(self, what: str, time_ms: float) -> None:
        self.log.append(what)
        self.now_ms += time_ms

    def _event(self, *, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at=0.0, elapsed_time=lambda end: end.at - event.at)
        event.record = lambda: setattr(event, "at", self.now_ms)
        return event


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_medians_and_extremes_without_the_warm_up(torch: FakeTorch) -> None:
    slow_at_first = torch.call("a", *[50.0] * WARM_UP_ROUNDS, 1.0, 9.0, 2.0)
    found = interleaved({"a": slow_at_first, "b": torch.call("b", 0.5)}, rounds=3)
    assert found["a"] == Measurement(2000.0, 1000.0, 9000.0, 3)
    assert found["b"] == Measurement(500.0, 500.0, 500.0, 3)


def test_contenders_take_turns_and_each_finds_the_cache_overwritten(torch: FakeTorch) -> None:
    interleaved({"a": torch.call("a", 1.0), "b": torch.call("b", 1.0)}, rounds=2)
    assert torch.log == ["flush", "a", "flush", "b", "synchronize"] * (WARM_UP_ROUNDS + 2)
    assert torch.flushed_bytes == FLUSH_BYTES


def test_without_a_flush_nothing_is_overwritten(torch: FakeTorch) -> None:
    interleaved({"a": torch.call("a", 1.0)}, rounds=1, flush=False)
    assert torch.flushed_bytes == 0


def test_each_round_is_announced(torch: FakeTorch) -> None:
    rounds: list[int] = []
    interleaved({"a": torch.call("a", 1.0)}, rounds=4, after_round=lambda: rounds.append(1))
    assert len(rounds) == WARM_UP_ROUNDS + 4
