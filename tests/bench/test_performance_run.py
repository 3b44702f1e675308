"""The run behind docs/performance.md, on the CPU: which problems, kernels and contenders it has, and what it keeps."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import host_cost
from benchmarks.host_cost import HostCost
from benchmarks.performance import choice
from benchmarks.performance import measure as run_room
from benchmarks.performance.energy import Energy
from benchmarks.performance.figures import OURS, Figures, dumped, loaded
from benchmarks.performance.kinds import KINDS
from benchmarks.performance.measure import Asked, described
from benchmarks.performance.problems import SUITE, sample
from cutegen.bench import benchmark as bench_room
from cutegen.bench import checked
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.conditions import Conditions
from cutegen.bench.contenders import TORCH, TRITON
from cutegen.bench.measure import Graph, Measurement, Regime
from cutegen.contract.problem import ProblemShape
from cutegen.plan import plan
from cutegen.spec import GemmSpec
from cutegen.tuned.store import folder
from cutegen.verify import random_extras, random_operands
from examples.hopper_ladder import ladder


def test_the_sample_is_what_the_documents_say() -> None:
    problems = sample()
    assert len(set(problems)) == 60
    sides = [side for problem in problems for side in (problem.m, problem.n, problem.k)]
    assert all(16 <= side <= 8192 and side % 8 == 0 for side in sides)
    # Log-uniform: as many below the geometric mean of 16 and 8192 as above it, about.
    assert 70 <= sum(side < (16 * 8192) ** 0.5 for side in sides) <= 110


@pytest.mark.parametrize("problem", SUITE, ids=str)
def test_the_choice_is_the_plans_own(problem: ProblemShape) -> None:
    made = plan(choice.SPEC, "sm_90", (problem.m, problem.n, problem.k))
    said = described(_Built(made.to_json()))  # type: ignore[arg-type]
    tile = "x".join(map(str, made.cta_tile))
    assert said.startswith(f"{made.family} {tile}, {made.stages} stages")
    assert ("swapped" in said) == made.swapped


def test_what_was_tuned_here_takes_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_TUNED_DIR", str(tmp_path))
    assert folder().is_dir()
    with choice.untuned():
        assert not folder().is_dir()
    assert folder() == tmp_path


class _Built:
    """As much of a kernel as is described."""

    def __init__(self, plan_json: object) -> None:
        self.artifact = SimpleNamespace(plan_json=json.dumps(plan_json))


def test_kinds_are_all_majors_of_f16_and_what_differs_in_one_thing() -> None:
    plain = [x for x in KINDS.values() if (x.problem.a.dtype, x.problem.accumulator, x.family) == ("f16", "f32", None)]
    assert {(x.problem.a.major, x.problem.b.major) for x in plain} == {("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")}
    assert {x.problem.a.dtype for x in KINDS.values()} == {"f16", "bf16", "e4m3", "s8"}
    assert {x.family for x in KINDS.values()} == {None, "sm80", "sm90", "sm120"}
    assert all(plan(spec, "sm_90", (2048, 2048, 2048)) for spec in KINDS.values())


def test_each_rung_of_the_ladder_changes_something_and_can_be_planned() -> None:
    rungs = list(ladder())
    assert len({rung.name for rung in rungs}) == len({rung.spec.name for rung in rungs}) == len(rungs)
    for before, after in itertools.pairwise(rungs):
        assert replace(before.spec, name="") != replace(after.spec, name="")
    families = [plan(rung.spec, "sm_90", (4096, 4096, 4096)).family for rung in rungs]
    assert families[:3] == ["sm80", "sm120", "sm90"]


class _Kernel(_Built):
    """A planned kernel that multiplies with torch, on the CPU."""

    def __init__(self, spec: GemmSpec, arch: str | None = None, *, problem: tuple[int, int, int] | None = None) -> None:
        made = plan(spec, arch or "sm_90", problem)
        super().__init__(made.to_json())
        self.contract = made.launch
        self._ops = spec.epilogue.ops or ()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, **extras: Any) -> None:
        if self.contract.tensor("a").dtype == "e4m3":
            out.copy_(a.view(torch.float8_e4m3fn).double() @ b.view(torch.float8_e4m3fn).double())
            return
        product = a.double() @ b.double()
        if "bias_n" in self._ops:
            product += extras["bias"]
        if "gelu_erf" in self._ops or "gelu_tanh" in self._ops:
            form = "none" if "gelu_erf" in self._ops else "tanh"
            product = torch.nn.functional.gelu(product, approximate=form)
        out.copy_(product)


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch, ceilings: Ceilings) -> None:
    """A run of three small problems, in which every time is one microsecond."""

    def operands(*arguments: Any, **options: Any) -> Any:
        return random_operands(*arguments, **{**options, "device": "cpu"})

    def extras(*arguments: Any, **options: Any) -> Any:
        return random_extras(*arguments, **{**options, "device": "cpu"})

    def times(calls: dict[str, Any], **options: Any) -> dict[str, Measurement]:
        return {name: Measurement(1.0, 0.5, 2.0, 3) for name in calls}

    def everyone(contract: Any, cutlass: Any = ()) -> Any:
        return [(name, lambda x: partial(torch.matmul, x.a, x.b, out=x.out)) for name in (TORCH, TRITON)]

    small = ProblemShape(32, 16, 32)
    monkeypatch.setattr(checked, "random_operands", operands)
    monkeypatch.setattr(checked, "random_extras", extras)
    monkeypatch.setattr(checked, "captured", lambda calls: Graph(lambda: [call() for call in calls], len(calls)))
    monkeypatch.setattr(checked, "l2_bytes", lambda: 0)
    monkeypatch.setattr(run_room, "random_operands", operands)
    monkeypatch.setattr(bench_room, "launch_times", times)
    monkeypatch.setattr(bench_room, "graph_times", times)
    monkeypatch.setattr(run_room, "others", everyone)
    monkeypatch.setattr(run_room, "only", lambda *names: lambda contract: everyone(contract)[:1])
    monkeypatch.setattr(run_room, "require_gpu", lambda: None)
    monkeypatch.setattr(run_room, "measure_ceilings", lambda types: ceilings)
    monkeypatch.setattr(run_room, "compile_gemm", _Kernel)
    monkeypatch.setattr(run_room, "conditions", lambda: Conditions("580.1", "13.0", {"torch": "2.11"}))
    monkeypatch.setattr(run_room, "SUITE", (small, ProblemShape(16, 16, 16)))
    monkeypatch.setattr(run_room, "SQUARES", (small,))
    monkeypatch.setattr(run_room, "LADDER", small)
    monkeypatch.setattr(run_room, "ENERGY", small)
    monkeypatch.setattr(run_room, "sample", lambda: (ProblemShape(8, 16, 24),))
    monkeypatch.setattr(run_room, "energies", lambda calls, problem: [Energy(x, problem, 1.0, 2.0, 3) for x in calls])
    monkeypatch.setattr(host_cost, "host_costs", lambda kernels, rounds: [HostCost(x, "call", 1.0) for x in kernels])


@pytest.mark.usefixtures("on_the_cpu")
def test_a_run_measures_every_section() -> None:
    saved: list[Figures] = []
    found = run_room.measure(Asked(), saved.append)
    assert saved[-1] == found
    assert [bool(x.sample) for x in saved].index(True) > [bool(x.suite) for x in saved].index(True)
    assert {x.contender for x in found.suite} == {TORCH, TRITON, *run_room.SHIPPED, OURS}
    assert {(str(x.problem), x.regime) for x in found.suite} == {
        (problem, regime) for problem in ("32x16x32", "16x16x16") for regime in Regime
    }
    assert {x.contender for x in found.kinds} == {*KINDS, "torch.matmul"}
    assert {x.contender for x in found.ladder} == {TORCH, *(rung.name for rung in ladder())}
    assert {x.contender for x in found.sample} == {TORCH, OURS}
    assert set(map(str, found.chosen)) == {"32x16x32", "16x16x16", "8x16x24"}
    assert {x.contender for x in found.energy} == {TORCH, OURS}
    assert {x.kernel for x in found.host} == set(host_cost.FAMILIES)
    assert (found.device, found.ceilings[0].tflops, found.read_tb_per_s) == ("Imaginary 100", 100.0, 1.25)
    assert loaded(dumped(found)) == found


@pytest.mark.usefixtures("on_the_cpu")
def test_when_time_is_up_no_further_problem_is_begun() -> None:
    found = run_room.measure(Asked(seconds=-1.0))
    assert (found.suite, found.sample, found.kinds) == ((), (), ())
    assert found.host
