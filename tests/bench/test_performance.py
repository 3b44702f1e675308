"""The tables of docs/performance.md and README.md: of made-up figures, and the real ones as they stand there."""

from __future__ import annotations

import ctypes
import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import host_cost
from benchmarks.host_cost import HostCost
from benchmarks.performance import __main__ as door
from benchmarks.performance import by_hand, choice, claims, documents, tables
from benchmarks.performance import measure as run_room
from benchmarks.performance.energy import Energy, Reading, between_steps
from benchmarks.performance.figures import OURS, Ceiling, Clock, Figures, Time, dumped, loaded
from benchmarks.performance.kinds import KINDS
from benchmarks.performance.measure import Asked, described
from benchmarks.performance.problems import LADDER, SUITE, sample
from cutegen.bench import benchmark as bench_room
from cutegen.bench import checked
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.conditions import Conditions
from cutegen.bench.contenders import CUTLASS_HOPPER, QUACK, TORCH, TRITON, Operands
from cutegen.bench.measure import Graph, Measurement, Regime
from cutegen.contract.problem import ProblemShape
from cutegen.errors import OutsideError
from cutegen.plan import plan
from cutegen.spec import GemmSpec
from cutegen.verify import random_extras, random_operands
from examples.hopper_ladder import ladder

THIN = ProblemShape(1000, 500, 8)
EVEN = ProblemShape(1000, 500, 16)


def timed(problem: ProblemShape, regime: Regime = Regime.GRAPH, **median_us: float) -> tuple[Time, ...]:
    """A time for each contender, 20 % less at the least and 25 % more at the most."""
    names = {"ours": OURS, "hopper": f"{CUTLASS_HOPPER} 128x256", "narrow": f"{CUTLASS_HOPPER} 64x64"}
    names |= {"wmma": by_hand.NAME, "torch": TORCH, "sm80": "sm80_hgemm_tn"}
    return tuple(
        Time(
            problem=problem,
            regime=regime,
            contender=names.get(name, name),
            median_us=us,
            min_us=0.8 * us,
            max_us=1.25 * us,
        )
        for name, us in median_us.items()
    )


@pytest.fixture
def figures() -> Figures:
    """A run that nobody made, of a GPU that does not exist."""
    large = LADDER  # 137,438,953,472 operations: at 500 us 274.9 TFLOP/s
    rungs = [rung.name for rung in ladder()]
    kinds = {name: 500.0 + 5 * i for i, name in enumerate(KINDS)}
    of_suite: dict[str, float] = {"torch": 250.0, "hopper": 400.0, "narrow": 1000.0, "sm80": 800.0, "ours": 500.0}
    return Figures(
        device="Imaginary 100",
        sms=100,
        driver="580.1",
        cuda="13.0",
        date="2001-02-03",
        versions={"torch": "1.2"},
        seconds=300,
        rounds=20,
        ceilings=(
            Ceiling(instruction="mma.sync", operands="f16", accumulator="f32", tflops=400.0),
            Ceiling(instruction="wgmma", operands="f16", accumulator="f32", tflops=550.0),
        ),
        read_tb_per_s=4.5,
        copy_tb_per_s=4.2,
        chosen={
            large: "sm90 128x256x64, 4 stages",
            THIN: "sm120 16x64x64, 8 stages",
            EVEN: "sm120 16x64x64, 8 stages",
        },
        clocks=(
            Clock(
                problem=large,
                regime=Regime.GRAPH,
                sm_clock_mhz=1500,
                memory_clock_mhz=3201,
                power_w=699.5,
                temperature_c=60,
            ),
        ),
        suite=(*timed(large, **of_suite), *timed(large, Regime.LAUNCH, **of_suite)),
        sample=(
            *timed(THIN, torch=1.0, hopper=8.0, wmma=2.0, ours=4.0),
            *timed(EVEN, torch=16.0, hopper=8.0, ours=1.0),
            *timed(THIN, Regime.LAUNCH, torch=2.0, ours=4.0),
            *timed(EVEN, Regime.LAUNCH, torch=4.0, ours=4.0),
        ),
        kinds=timed(large, **kinds),
        ladder=timed(LADDER, Regime.LAUNCH, **{name: 1000.0 / (i + 1) for i, name in enumerate(rungs)}, torch=100.0),
        energy=(Energy(OURS, large, 1.5, 600.0, 1400),),
        host=(
            HostCost("sm80", host_cost.OURS, 9.0),
            HostCost("sm80", host_cost.TORCH, 10.0),
            HostCost("sm90", host_cost.OURS, 12.0),
            HostCost("sm90", host_cost.TORCH, 10.0),
        ),
    )


def test_the_suite_has_a_row_for_each_problem_and_a_mean(figures: Figures) -> None:
    header, rule, row, mean = tables.suite_graph(figures).splitlines()
    assert header.count("|") == rule.count("|") == row.count("|") == mean.count("|")
    assert row == (
        "| 4096 x 4096 x 4096 | 250.0 |  | 400.0 CUTLASS Hopper 128x256 | 500.0 | 400.0 to 625.0 | "
        "sm90 128x256x64, 4 stages | 0.50 | 0.80 | 50% |"
    )
    assert mean == "| geometric mean |  |  |  |  |  |  | **0.500** | **0.800** |  |"
    assert tables.suite_launch(figures).splitlines()[2] == row


def test_the_floor_is_the_tighter_of_operations_and_bytes(figures: Figures) -> None:
    assert tables.floor_us(figures, LADDER) == pytest.approx(2 * 4096**3 / 550e12 * 1e6)
    assert tables.floor_us(figures, ProblemShape(1, 8192, 8192)) == pytest.approx(
        2 * (8192 + 8192 * 8192 + 8192) / 4.5e12 * 1e6
    )


def test_everyone_is_shown_and_the_examples_best_tile(figures: Figures) -> None:
    assert tables.contenders(figures).splitlines()[2] == "| 4096 x 4096 x 4096 | 550 | 344 |  |  | 172 |  | 275 |"
    assert tables.hopper(figures).splitlines()[0] == "| M x N x K | 128x256 | 64x64 | ours |"
    assert tables.hopper(figures).splitlines()[2] == "| 4096 x 4096 x 4096 | 400.0 | 1,000 | 500.0 |"


def test_the_readme_ranks_by_speed(figures: Figures) -> None:
    assert (
        tables.square(figures)
        == """\
| kernel | TFLOP/s | of `wgmma` alone |
|---|---|---|
| `torch.matmul` | 550 | 100% |
| CUTLASS Hopper 128x256 | 344 | 62% |
| cutegen's choice | 275 | 50% |
| `sm80_hgemm_tn` | 172 | 31% |
| CUTLASS Hopper 64x64 | 137 | 25% |"""
    )
    assert "0.50 times as fast as `torch.matmul`" in tables.headline(figures)
    assert "2.00 times over 2 random ones (0.25 to 16.00)" in tables.headline(figures)


def test_quack_has_rows_where_it_took_part(figures: Figures) -> None:
    assert tables.quack(figures).startswith("Not measured")
    times = (*timed(LADDER, torch=250.0, ours=200.0, **{QUACK: 240.0}), *timed(THIN, torch=1.0, ours=2.0))
    assert tables.quack(replace(figures, quack=times)).splitlines()[2:] == [
        "| 4096 x 4096 x 4096 | 250.0 | 240.0 | 200.0 | 1.20 |"
    ]


def test_kinds_are_relative_to_tn(figures: Figures) -> None:
    assert tables.kinds(figures).splitlines()[2:4] == ["| TN | 275 | 1.00 |", "| NT | 272 | 0.99 |"]


def test_the_sample_is_judged_beside_torch_and_worst_first(figures: Figures) -> None:
    sentences, _, table = tables.sample(figures).split("\n\n")
    launch, graph = sentences.splitlines()
    assert "2 problems, on geometric average 2.000 times as fast" in graph  # of 0.25 and 16
    assert "at the worst 0.25, at the best 16.00; 1 below 1, 1 below 0.97, 1 below 0.9" in graph
    assert "on geometric average 0.707 times" in launch
    assert [row.split(" | ")[0] for row in table.splitlines()[2:]] == ["| 1000 x 500 x 8", "| 1000 x 500 x 16"]
    assert table.splitlines()[2] == (
        "| 1000 x 500 x 8 | 1.00 | 4.00 | 0.25 | 6% | 8.00 | 2.00 | sm120 16x64x64, 8 stages | 0.50 |"
    )


def test_the_ladder_has_each_rungs_gain_over_the_one_below(figures: Figures) -> None:
    lines = tables.ladder(figures).splitlines()
    assert len(lines) == 2 + len(list(ladder())) + 1
    assert "| 1,000 | 137 |  |" in lines[2]
    assert "| 500.0 | 275 | 2.00 |" in lines[3]


def test_claims_are_held_against_the_figures(figures: Figures) -> None:
    found = {claim.text: claim for claim in claims.claims(figures)}
    alike = found["bf16 and all majors within 3% of fp16 TN from 2048^3 on"]
    assert (alike.found, alike.holds) == ("+4.0% time, TN, bf16 at 4096x4096x4096", False)
    assert found["bias and tanh-GELU cost at most 3%"].found.startswith("+6.0%")
    assert not found["s8: at least 1.6 times fp16"].holds
    cost = found["an eager call costs the host at most what torch's does, of every family and with an epilogue"]
    assert (cost.found, cost.holds) == ("12.0 us, torch 10.0 us: sm90", False)
    before = found["`sm80_hgemm_tn` at 4096^3 has as much of `mma.sync` as before, 72%"]
    assert (before.found, before.holds) == ("43%", False)
    faster = tuple(x for regime in Regime for x in timed(LADDER, regime, torch=530.0, ours=500.0))
    worst = next(x for x in claims.claims(replace(figures, suite=faster)) if x.text.startswith("no problem"))
    assert (worst.found, worst.holds) == ("1.06 at 4096x4096x4096", True)


def test_energy_and_host_cost_have_their_rows(figures: Figures) -> None:
    assert tables.energy(figures).splitlines()[2] == "| cutegen's choice | 1.500 | 10.914 | 600 | 55.0 | 1400 |"
    assert tables.host(figures).splitlines()[2:] == ["| sm80 | 9.0 | 10.0 |", "| sm90 | 12.0 | 10.0 |"]


def test_the_counter_of_energy_is_read_between_its_steps() -> None:
    """10 J a launch, counted in steps of 30 J: what lies before the first step and after the last one is left out."""
    readings = [Reading(n, 0.1 * n, 30.0 * (n // 3)) for n in range(3, 25)]
    joules, watts = between_steps(readings)
    assert (joules, watts) == (pytest.approx(10), pytest.approx(100))


def test_what_was_not_measured_is_said(figures: Figures) -> None:
    alone = replace(figures, suite=timed(LADDER, torch=250.0, ours=500.0), energy=(), clocks=())
    assert tables.hopper(alone).startswith("Not measured")
    assert tables.energy(alone).startswith("Not measured")
    assert "NVML was not asked" in tables.run(alone)
    assert "250.0 torch.matmul" in tables.suite_graph(alone)


@pytest.mark.parametrize(
    ("us", "shown"), [(1374.4, "100"), (1375.8, "99.9"), (13_743.9, "10.0"), (13_760.0, "9.99"), (261.3, "526")]
)
def test_three_digits_are_shown(figures: Figures, us: float, shown: str) -> None:
    row = tables.kinds(replace(figures, kinds=timed(LADDER, TN=us))).splitlines()[2]
    assert row == f"| TN | {shown} | 1.00 |"


def test_figures_survive_their_file_a_line_for_each_time(figures: Figures) -> None:
    text = dumped(figures)
    assert loaded(text) == figures
    lines = text.replace(",\n", "\n").splitlines()
    assert '["4096x4096x4096", "graph", "torch.matmul", 250.0, 200.0, 312.5]' in lines


def test_only_what_stands_between_markers_is_written(figures: Figures) -> None:
    text = "before\n<!-- performance: kinds -->\nold\n<!-- end -->\nafter\n<!-- modules: x -->\nkept\n<!-- end -->\n"
    once = documents.filled(text, figures)
    assert once == text.replace("old", "\n" + tables.kinds(figures) + "\n")
    assert documents.filled(once, figures) == once


@pytest.mark.skipif(not documents.FIGURES.exists(), reason="no run is kept")
def test_the_documents_ask_for_every_block_once() -> None:
    asked = [name for path in documents.DOCUMENTS for name in documents.asked_for(path.read_text())]
    assert sorted(asked) == sorted(tables.BLOCKS)


@pytest.mark.skipif(not documents.FIGURES.exists(), reason="no run is kept")
@pytest.mark.parametrize("path", documents.DOCUMENTS, ids=lambda path: path.name)
def test_the_documents_have_the_figures_that_are_kept(path: Path) -> None:
    text = path.read_text()
    assert documents.filled(text, loaded(documents.FIGURES.read_text())) == text, (
        "python -m benchmarks.performance write"
    )


def test_write_rewrites_the_documents_and_keeps_the_figures(
    figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, kept, measured = tmp_path / "doc.md", tmp_path / "kept.json", tmp_path / "out.json"
    document.write_text("<!-- performance: kinds -->\n<!-- end -->\n")
    measured.write_text(dumped(figures))
    monkeypatch.setattr(documents, "DOCUMENTS", (document,))
    monkeypatch.setattr(documents, "FIGURES", kept)
    assert door.main(["write", str(measured)]) == 0
    assert "| NT | 272 | 0.99 |" in document.read_text()
    assert loaded(kept.read_text()) == figures


def test_without_a_gpu_it_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cutegen.bench.benchmark.present_target", lambda: None)
    out = tmp_path / "out.json"
    assert door.main(["measure", str(out)]) == 1
    assert "there is none here" in capsys.readouterr().err
    assert not out.exists()


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
    assert ("exchanged" in said) == made.swapped


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


def test_the_kernel_by_hand_is_given_what_it_takes() -> None:
    header = (by_hand.SOURCE.parent / "wmma_gemm.h").read_text()
    for name in ("M_MULTIPLE", "N_MULTIPLE", "K_MULTIPLE", "K_LEAST"):
        assert f"{name} = {getattr(by_hand, name)}" in header
    assert by_hand.padded_extents(1, 1, 1) == (256, 128, 64)
    assert by_hand.padded_extents(257, 128, 65) == (512, 128, 96)


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
    monkeypatch.setattr(run_room, "QUACK_PROBLEMS", (small,))
    monkeypatch.setattr(run_room, "sample", lambda: (ProblemShape(8, 16, 24),))
    monkeypatch.setattr(run_room, "energies", lambda calls, problem: [Energy(x, problem, 1.0, 2.0, 3) for x in calls])
    monkeypatch.setattr(host_cost, "host_costs", lambda kernels, rounds: [HostCost(x, "call", 1.0) for x in kernels])
    by_hand_too = lambda x: partial(torch.matmul, x.a, x.b, out=x.out)  # noqa: E731
    monkeypatch.setattr(by_hand, "compile_by_hand", lambda: by_hand_too)


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
    assert {x.contender for x in found.kinds} == set(KINDS)
    assert {x.contender for x in found.ladder} == {TORCH, *(rung.name for rung in ladder())}
    assert {x.contender for x in found.sample} == {TORCH, by_hand.NAME, OURS}
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


def test_a_problem_by_hand_lies_among_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    def halfs(address: int, rows: int, columns: int) -> np.ndarray[Any, Any]:
        memory = (ctypes.c_uint16 * (rows * columns)).from_address(address)
        return np.frombuffer(memory, dtype=np.float16).reshape(rows, columns)

    def gemm(problem: Any, a: int, b: int, c: int, stream: int) -> int:
        m, n, k = problem.m, problem.n, problem.k
        assert (m, n, k) == (256, 128, 64)
        halfs(c, m, n)[:] = halfs(a, m, k).astype(float) @ halfs(b, n, k).astype(float).T
        return stream

    streams = iter([0, 0, 7])  # the launch that checks, a call, and another launch that fails
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=next(streams)))
    a, b, out = torch.randn(24, 40).half(), torch.randn(16, 40).half().T, torch.empty(24, 16).half()
    by_hand.prepare(gemm, Operands(a, b, out))()
    assert torch.allclose(out.double(), a.double() @ b.double(), rtol=1e-3, atol=1e-3)
    with pytest.raises(OutsideError, match="CUDA error 7"):
        by_hand.prepare(gemm, Operands(a, b, out))
