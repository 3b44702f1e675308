"""The tables of docs/performance.md and README.md: of made-up figures, and the real ones as they stand there."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.performance import __main__ as door
from benchmarks.performance import by_hand, choice, documents, tables
from benchmarks.performance import measure as run_room
from benchmarks.performance.figures import OURS, Figures, Time, dumped, loaded
from benchmarks.performance.measure import KINDS, SWEEP, described
from benchmarks.performance.problems import LARGE, SMALL, sample
from cutegen.bench import benchmark as bench_room
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.contenders import CUTLASS, TRITON, Operands
from cutegen.bench.measure import Measurement
from cutegen.contract.problem import ProblemShape
from cutegen.errors import OutsideError
from cutegen.hardware import TARGETS
from cutegen.plan import plan
from cutegen.spec import GemmSpec
from cutegen.verify import random_operands

THIN = ProblemShape(1000, 500, 8)
EVEN = ProblemShape(1000, 500, 16)


def timed(problem: ProblemShape, **median_us: float) -> tuple[Time, ...]:
    """A time for each contender, 20 % less at the least and 25 % more at the most."""
    names = {"ours": OURS, "example": CUTLASS, "wmma": by_hand.NAME, "torch": "torch.matmul", "sm80": "sm80_hgemm_tn"}
    return tuple(
        Time(problem=problem, contender=names.get(name, name), median_us=us, min_us=0.8 * us, max_us=1.25 * us)
        for name, us in median_us.items()
    )


@pytest.fixture
def figures() -> Figures:
    """A run that nobody made, of a GPU that does not exist."""
    large = LARGE[0]  # 137,438,953,472 operations: at 500 us 274.9 TFLOP/s
    return Figures(
        device="Imaginary 100",
        sms=100,
        date="2001-02-03",
        versions={"torch": "1.2"},
        seconds=300,
        rounds=20,
        mma_tflops=500.0,
        copy_tb_per_s=4.567,
        chosen={
            large: "sm120 128x256x64, 3 stages",
            THIN: "sm120 16x64x64, 8 stages",
            EVEN: "sm120 16x64x64, 8 stages",
        },
        peers=timed(large, torch=250.0, example=1000.0, sm80=800.0, ours=500.0),
        sweep=timed(large, slow=1000.0, fast=625.0, ours=500.0),
        kinds=timed(large, TN=500.0, NT=510.0),
        sample=(*timed(THIN, torch=1.0, example=8.0, wmma=2.0, ours=4.0), *timed(EVEN, example=8.0, ours=1.0)),
    )


def test_the_peers_have_a_row_for_each_problem(figures: Figures) -> None:
    header, rule, row = tables.peers(figures).splitlines()
    assert header.startswith(
        "| M x N x K | `torch.matmul` | CUTLASS example | `sm80_hgemm_tn` | cutegen's choice | least"
    )
    assert header.count("|") == rule.count("|") == row.count("|")
    spread, kernel = "220 to 344", "sm120 128x256x64, 3 stages"
    assert row == f"| 4096 x 4096 x 4096 | 550 | 137 | 172 | 275 | {spread} | {kernel} | 55% | 2.00 |"


def test_the_readme_ranks_by_speed(figures: Figures) -> None:
    assert (
        tables.square(figures)
        == """\
| kernel | TFLOP/s | of `mma.sync` alone |
|---|---|---|
| `torch.matmul` | 550 | 110% |
| `sm80_hgemm_tn` | 172 | 34% |
| CUTLASS example | 137 | 27% |"""
    )


def test_the_sweep_ends_with_its_best_beside_ours(figures: Figures) -> None:
    assert tables.sweep(figures).splitlines()[2:] == [
        "| fast | 220 |",
        "| slow | 137 |",
        "| **the best of them** | 220 |",
        "| **cutegen's choice** | 275 |",
        "| ratio | 1.25 |",
    ]


def test_kinds_are_relative_to_the_first(figures: Figures) -> None:
    assert tables.kinds(figures).splitlines()[2:] == ["| TN | 275 | 1.00 |", "| NT | 269 | 0.98 |"]


def test_the_sample_is_judged_by_the_better_peer_and_worst_first(figures: Figures) -> None:
    sentence, table = tables.sample(figures).split("\n\n")
    assert "with the example on 2 of them and with the WMMA kernel on 1:" in sentence
    assert "geometric average 2.00 times" in sentence  # of 0.5 and 8
    assert "at the worst 0.50 times; 1 below 0.9" in sentence
    assert table.splitlines()[2:] == [
        "| 1000 x 500 x 8 | 4.0 | sm120 16x64x64, 8 stages | 8.0 | 2.0 | 1.0 | 0.50 |",
        "| 1000 x 500 x 16 | 1.0 | sm120 16x64x64, 8 stages | 8.0 |  |  | 8.00 |",
    ]


def test_what_was_not_measured_is_said(figures: Figures) -> None:
    alone = replace(figures, peers=timed(LARGE[0], ours=500.0), sweep=(), sample=timed(THIN, ours=4.0))
    assert tables.peers(alone).endswith("| 55% |  |")
    assert tables.sweep(alone).startswith("Not measured")
    assert tables.sample(alone).startswith("Not measured")


@pytest.mark.parametrize(
    ("us", "shown"), [(1374.4, "100"), (1375.8, "99.9"), (13_743.9, "10.0"), (13_760.0, "9.99"), (261.3, "526")]
)
def test_three_digits_are_shown(figures: Figures, us: float, shown: str) -> None:
    assert tables.kinds(replace(figures, kinds=timed(LARGE[0], TN=us))).splitlines()[-1] == f"| TN | {shown} | 1.00 |"


def test_figures_survive_their_file_a_line_for_each_time(figures: Figures) -> None:
    text = dumped(figures)
    assert loaded(text) == figures
    assert '["4096x4096x4096", "torch.matmul", 250.0, 200.0, 312.5]' in text.replace(",\n", "\n").splitlines()


def test_only_what_stands_between_markers_is_written(figures: Figures) -> None:
    text = "before\n<!-- performance: kinds -->\nold\n<!-- end -->\nafter\n<!-- modules: x -->\nkept\n<!-- end -->\n"
    once = documents.filled(text, figures)
    assert once == text.replace("old", "\n" + tables.kinds(figures) + "\n")
    assert documents.filled(once, figures) == once


def test_the_documents_ask_for_every_block_once() -> None:
    asked = [name for path in documents.DOCUMENTS for name in documents.asked_for(path.read_text())]
    assert sorted(asked) == sorted(tables.BLOCKS)


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
    assert "| NT | 269 | 0.98 |" in document.read_text()
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


@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        *zip(LARGE, [(128, 256, 64), (128, 192, 64), (128, 256, 64)], strict=True),
        *zip(SMALL, [(128, 64, 128), (128, 256, 64), (64, 64, 128), (64, 16, 256)], strict=True),
    ],
    ids=str,
)
def test_the_choice_is_the_plans_own(problem: ProblemShape, tile: tuple[int, int, int]) -> None:
    made = plan(choice.SPEC, "sm_90", (problem.m, problem.n, problem.k))
    assert made.cta_tile == tile
    assert described(_Built(made.to_json())).startswith("sm90 ")  # type: ignore[arg-type]


class _Built:
    """As much of a kernel as is described."""

    def __init__(self, plan_json: object) -> None:
        self.artifact = SimpleNamespace(plan_json=json.dumps(plan_json))


def test_the_sweep_fits_shared_memory_and_has_the_examples_own_tile() -> None:
    limit = TARGETS["sm_90"].smem_per_cta_bytes
    for one in SWEEP:
        m, n, k = one.cta
        assert 2 * (m + n) * k * one.stages <= limit, one
    assert "128x128x32, 4 stages, 2x2 warps" in map(str, SWEEP)
    assert len(set(SWEEP)) == len(SWEEP)


def test_kinds_are_all_majors_of_f16_and_two_more_types() -> None:
    plain = {(a, b) for element, a, b, sums in KINDS.values() if (element, sums) == ("f16", "f32")}
    assert plain == {("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")}
    assert {(element, sums) for element, _, _, sums in KINDS.values()} == {
        ("f16", "f32"),
        ("bf16", "f32"),
        ("f16", "f16"),
    }


def test_the_kernel_by_hand_is_given_what_it_takes() -> None:
    header = (by_hand.SOURCE.parent / "wmma_gemm.h").read_text()
    for name in ("M_MULTIPLE", "N_MULTIPLE", "K_MULTIPLE", "K_LEAST"):
        assert f"{name} = {getattr(by_hand, name)}" in header
    assert by_hand.padded_extents(1, 1, 1) == (256, 128, 64)
    assert by_hand.padded_extents(257, 128, 65) == (512, 128, 96)


class _Kernel(_Built):
    """A planned kernel that multiplies with torch, on the CPU."""

    def __init__(self, spec: GemmSpec, *, problem: tuple[int, int, int] | None = None) -> None:
        made = plan(spec, "sm_90", problem)
        super().__init__(made.to_json())
        self.contract = made.launch

    def __call__(self, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
        torch.matmul(a, b, out=out)


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch, ceilings: Ceilings) -> None:
    """A run of three small problems, in which every time is one microsecond."""

    def operands(*arguments: Any, **options: Any) -> Any:
        return random_operands(*arguments, **{**options, "device": "cpu"})

    def interleaved(calls: dict[str, Any], **options: Any) -> dict[str, Measurement]:
        return {name: Measurement(1.0, 0.5, 2.0, 3) for name in calls}

    def everyone(contract: Any, x: Operands, cutlass: Path | None) -> Any:
        return [(name, lambda: partial(torch.matmul, x.a, x.b, out=x.out)) for name in ("torch.matmul", TRITON)]

    monkeypatch.setattr(bench_room, "random_operands", operands)
    monkeypatch.setattr(bench_room, "interleaved", interleaved)
    monkeypatch.setattr(bench_room, "others", everyone)
    monkeypatch.setattr(run_room, "others", everyone)
    monkeypatch.setattr(run_room, "require_gpu", lambda: None)
    monkeypatch.setattr(run_room, "measure_ceilings", lambda types: ceilings)
    monkeypatch.setattr(run_room, "compile_spec", _Kernel)
    monkeypatch.setattr(choice, "compile_spec", _Kernel)
    monkeypatch.setattr(run_room, "LARGE", (ProblemShape(32, 16, 32),))
    monkeypatch.setattr(run_room, "SMALL", (ProblemShape(16, 16, 16),))
    monkeypatch.setattr(run_room, "sample", lambda: (ProblemShape(8, 16, 24),))
    example = lambda path, a, b, out, one: partial(torch.matmul, a, b, out=out)  # noqa: E731
    monkeypatch.setattr(run_room, "cutlass_example", example)
    by_hand_too = lambda x: partial(torch.matmul, x.a, x.b, out=x.out)  # noqa: E731
    monkeypatch.setattr(by_hand, "compile_by_hand", lambda: by_hand_too)


@pytest.mark.usefixtures("on_the_cpu")
def test_a_run_measures_every_section() -> None:
    found = run_room.measure(Path("tensorop_gemm.py"))
    everyone = {"torch.matmul", TRITON}
    assert {x.contender for x in found.peers} == {*everyone, *run_room.SHIPPED, OURS}
    assert {str(x.problem) for x in found.peers} == {"32x16x32", "16x16x16"}
    assert {x.contender for x in found.sweep} == {*map(str, SWEEP), OURS}
    assert {x.contender for x in found.kinds} == set(KINDS)
    assert {x.contender for x in found.sample} == {"torch.matmul", by_hand.NAME, OURS}
    assert set(map(str, found.chosen)) == {"32x16x32", "16x16x16", "8x16x24"}
    assert (found.device, found.mma_tflops, found.copy_tb_per_s) == ("Imaginary 100", 100.0, 1.0)
    assert loaded(dumped(found)) == found


@pytest.mark.usefixtures("on_the_cpu")
def test_without_the_example_there_is_no_sweep() -> None:
    assert run_room.measure(None).sweep == ()


def test_a_problem_by_hand_lies_among_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    def halfs(address: int, rows: int, columns: int) -> np.ndarray[Any, Any]:
        memory = (ctypes.c_uint16 * (rows * columns)).from_address(address)
        return np.frombuffer(memory, dtype=np.float16).reshape(rows, columns)

    def gemm(problem: Any, a: int, b: int, c: int, stream: int) -> int:
        m, n, k = problem.m, problem.n, problem.k
        assert (m, n, k) == (256, 128, 64)
        halfs(c, m, n)[:] = halfs(a, m, k).astype(float) @ halfs(b, n, k).astype(float).T
        return stream

    streams = iter([0, 7])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=next(streams)))
    a, b, out = torch.randn(24, 40).half(), torch.randn(16, 40).half().T, torch.empty(24, 16).half()
    by_hand.prepare(gemm, Operands(a, b, out))()
    assert torch.allclose(out.double(), a.double() @ b.double(), rtol=1e-3, atol=1e-3)
    with pytest.raises(OutsideError, match="CUDA error 7"):
        by_hand.prepare(gemm, Operands(a, b, out))
