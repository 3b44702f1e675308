"""Measurements that nobody made, of a GPU that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cutegen.bench import benchmark as room
from cutegen.bench import checked
from cutegen.bench.benchmark import Result
from cutegen.bench.ceilings import Ceilings, MmaCeiling
from cutegen.bench.contenders import Setting
from cutegen.bench.measure import Graph, Measurement
from cutegen.bench.peak_kernel import MmaTypes
from cutegen.contract.problem import ProblemShape
from cutegen.verify import random_operands

TYPES = MmaTypes("f16", "f32")
SETTING = Setting(("f16", "k"), ("f16", "k"), ("f16", "n"))


@pytest.fixture
def ceilings() -> Ceilings:
    """100 TFLOP/s of mma.sync at 1 GHz, copies of 1 TB/s, reading at 1.25."""
    row = MmaCeiling(types=TYPES, flops_per_s=100e12, flops_per_cycle=1000)
    return Ceilings(device="Imaginary 100", sms=100, mma=(row,), copy_bytes_per_s=1e12, read_bytes_per_s=1.25e12)


def result(contender: str, problem: ProblemShape, median_us: float, *, ours: bool) -> Result:
    """One of three runs that took 20% less, the median, and 25% more."""
    return Result(
        problem=problem,
        setting=SETTING,
        contender=contender,
        ours=ours,
        types=TYPES,
        rel_error=2e-4,
        measurement=Measurement(median_us, 0.8 * median_us, 1.25 * median_us, 3),
    )


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time is one microsecond, and a graph is a list of calls."""

    def operands(*arguments: Any, **options: Any) -> Any:
        return random_operands(*arguments, **{**options, "device": "cpu"})

    def timed(calls: dict[str, Callable[[], object]], **options: Any) -> Any:
        return {name: Measurement(1.0, 1.0, 1.0, 3) for name in calls}

    monkeypatch.setattr(checked, "random_operands", operands)
    monkeypatch.setattr(checked, "captured", lambda calls: Graph(lambda: [call() for call in calls], len(calls)))
    monkeypatch.setattr(checked, "l2_bytes", lambda: 4 * 10_000)
    monkeypatch.setattr(room, "launch_times", timed)
    monkeypatch.setattr(room, "graph_times", timed)
