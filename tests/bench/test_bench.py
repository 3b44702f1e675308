"""The benchmark's checks and tables, on the CPU: what is wrong is not timed, and figures follow from times."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from cutegen.bench import benchmark as room
from cutegen.bench import checked
from cutegen.bench.benchmark import x_torch
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.conditions import Conditions
from cutegen.bench.contenders import Entrant, Operands, only
from cutegen.bench.measure import Graph, Regime
from cutegen.bench.suites import SUITES
from cutegen.cli import bench as door
from cutegen.cli.main import main
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CheckError, DeviceError, OutsideError
from cutegen.plan import plan
from cutegen.spec import load_spec
from tests.bench.conftest import TYPES, result

CUBE = ProblemShape(1000, 1000, 1000)
SMALL = ProblemShape(64, 48, 32)
LAYOUTS = Path(__file__).parents[2] / "layouts"


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "present_target", lambda: None)


@pytest.mark.usefixtures("without_gpu")
def test_without_a_gpu_it_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sm80_hgemm_tn", "--suite", "seed"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "no supported GPU found" in said.err
    assert "cutegen report" in said.err


def test_a_torch_without_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "present_target", lambda: plan(load_spec("sm80_hgemm_tn"), "sm_90").target)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="sees no GPU"):
        room.require_gpu()
    monkeypatch.setattr(room, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="pip install torch"):
        room.require_gpu()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "squares"], "did you mean square?"),
        (["--problem", "1,2"], "expected three integers"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_a_wrong_request_is_told_before_a_gpu_is_looked_for(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "sm80_hgemm_tn", *words]) == 2
    assert said in capsys.readouterr().err


def test_problems_are_those_of_the_suite_and_those_named_each_once() -> None:
    assert door.choose_problems(None, None) == (ProblemShape(4096, 4096, 4096),)
    assert door.choose_problems(["8,16,24", "1024,1024,1024"], "square") == (*SUITES["square"], ProblemShape(8, 16, 24))


def test_figures_follow_from_the_median(ceilings: Ceilings) -> None:
    """2 10^9 operations in 40 us are 50 TFLOP/s; 6 10^6 bytes in 40 us are 0.15 TB/s, of 1.25 read and 1 copied."""
    found = result("torch.matmul", CUBE, 40.0, ours=False)
    assert found.tflops == pytest.approx(50)
    assert found.of_mma(ceilings) == pytest.approx(0.5)
    assert found.of_copy(ceilings) == pytest.approx(0.15)
    assert found.of_read(ceilings) == pytest.approx(0.12)
    assert found.intensity == pytest.approx(1000 / 3)


class FakeKernel:
    """A kernel that multiplies with torch, and spoils one element behind as many right results as it is told."""

    def __init__(self, name: str, arch: str = "sm_80", *, wrong: bool = False, wrong_from: int = 10**9) -> None:
        made = plan(load_spec(name), arch)
        self.contract, self.wrong_from, self.calls = made.launch, 0 if wrong else wrong_from, 0
        self.artifact = SimpleNamespace(plan_json=json.dumps(made.to_json()))

    def __call__(self, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
        self.calls += 1
        torch.matmul(a, b, out=out)
        if self.calls > self.wrong_from:
            out[3, 5] += 1


@pytest.mark.usefixtures("on_the_cpu")
def test_everyone_is_checked_on_the_operands_of_their_setting() -> None:
    kernels = {name: FakeKernel(name) for name in ("sm80_hgemm_tn", "sm80_bf16_nn")}
    entrants = [Entrant(name, kernel) for name, kernel in kernels.items()]  # type: ignore[arg-type]
    found = room.bench(entrants, SMALL, rounds=3)
    assert [(x.contender, x.ours, str(x.types)) for x in found if x.contender != "Triton"] == [
        ("torch.matmul", False, "f16 with f32 accumulation"),
        ("torch.matmul, reduced", False, "f16 with f32 accumulation"),
        ("sm80_hgemm_tn", True, "f16 with f32 accumulation"),
        ("torch.matmul", False, "bf16 with f32 accumulation"),
        ("torch.matmul, reduced", False, "bf16 with f32 accumulation"),
        ("sm80_bf16_nn", True, "bf16 with f32 accumulation"),
    ]
    assert all(0 < x.rel_error < 1e-2 for x in found)
    assert [kernel.calls for kernel in kernels.values()] == [1, 1]


class GatedKernel(FakeKernel):
    """SwiGLU of two halves of columns, gates first."""

    def __call__(self, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
        gate, up = (a.float() @ b.float()).chunk(2, dim=1)
        out.copy_(torch.nn.functional.silu(gate) * up)


@pytest.mark.usefixtures("on_the_cpu")
def test_a_product_of_pairs_is_measured_beside_the_plain_one(tmp_path: Path) -> None:
    """Its C is half as wide; others write all columns of the same product."""
    file = tmp_path / "plain.toml"
    file.write_text((LAYOUTS / "sm90_bf16_swiglu.toml").read_text().partition("[epilogue]")[0])
    fused, plain = GatedKernel("sm90_bf16_swiglu", "sm_90a"), FakeKernel(str(file), "sm_90a")
    entrants = [Entrant("fused", fused), Entrant("plain", plain)]  # type: ignore[arg-type]
    found = room.bench(entrants, SMALL, rounds=3, regimes=tuple(Regime), against=only("torch.matmul"))
    assert [(x.contender, x.setting.c) for x in found] == [
        *[("torch.matmul", ("bf16", "p")), ("fused", ("bf16", "p"))],
        *[("torch.matmul", ("bf16", "n")), ("plain", ("bf16", "n"))],
    ] * 2
    assert all(0 < x.rel_error < 1e-2 for x in found)


def mine(*, wrong: bool = False, wrong_from: int = 10**9) -> Entrant:
    """A contender of ours; one that is wrong from some call on counts its calls."""
    return Entrant("mine", FakeKernel("sm80_hgemm_tn", wrong=wrong, wrong_from=wrong_from))  # type: ignore[arg-type]


@pytest.mark.usefixtures("on_the_cpu")
def test_a_spec_named_like_a_library_is_timed_beside_it() -> None:
    named = replace(mine(), name="torch.matmul")
    found = room.bench([named], SMALL, rounds=3, against=only("torch.matmul"))
    assert [(x.contender, x.ours) for x in found] == [("torch.matmul", False), ("torch.matmul", True)]
    assert x_torch(found[1], [found[1]]) is None
    assert x_torch(found[1], found) == 1


@pytest.mark.usefixtures("on_the_cpu")
def test_both_regimes_have_a_result_of_everyone() -> None:
    found = room.bench([mine()], SMALL, rounds=3, regimes=tuple(Regime), against=only("torch.matmul"))
    assert [(x.regime, x.contender) for x in found] == [
        (regime, name) for regime in Regime for name in ("torch.matmul", "mine")
    ]


@pytest.mark.usefixtures("on_the_cpu")
def test_each_regime_has_its_own_error() -> None:
    """A library is prepared once for its single launch, and then for each set of the graph; here with less care."""
    factors = itertools.chain([1.0], itertools.repeat(1.002))

    def careless(x: Operands) -> Callable[[], object]:
        factor = next(factors)
        return lambda: torch.mul(x.a @ x.b, factor, out=x.out)

    regimes = tuple(Regime)
    found = room.bench([mine()], SMALL, rounds=3, regimes=regimes, against=lambda _: [("careless", careless)])
    errors = {x.regime: x.rel_error for x in found if x.contender == "careless"}
    assert errors[Regime.LAUNCH] < 1e-3 < errors[Regime.GRAPH]


@pytest.mark.usefixtures("on_the_cpu")
def test_torch_sums_in_f32_unless_its_default_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, settings, real = [], torch.backends.cuda.matmul, torch.matmul

    def matmul(*arguments: Any, **options: Any) -> Any:
        seen.append(settings.allow_fp16_reduced_precision_reduction)
        return real(*arguments, **options)

    monkeypatch.setattr(torch, "matmul", matmul)
    room.bench([mine()], SMALL, rounds=3, against=only("torch.matmul", "torch.matmul, reduced"))
    assert seen[:2] == [False, True]


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize(("entrant", "where"), [(mine(wrong=True), ""), (mine(wrong_from=1), " in a graph")])
def test_what_is_wrong_is_not_timed(entrant: Entrant, where: str) -> None:
    with pytest.raises(CheckError, match=rf"mine at 64x48x32{where}: .* elements wrong"):
        room.bench([entrant], SMALL, rounds=3, regimes=tuple(Regime), against=only())


@pytest.mark.usefixtures("on_the_cpu")
def test_the_last_set_of_a_graph_is_judged_too() -> None:
    """Sets of 13,312 bytes, of which three caches of 40,000 hold ten: two eager calls, then the graph's."""
    sets = 3 * 40_000 // (2 * (64 * 32 + 32 * 48 + 64 * 48)) + 1
    with pytest.raises(CheckError, match="in a graph"):
        room.bench([mine(wrong_from=sets)], SMALL, rounds=3, regimes=(Regime.GRAPH,), against=only())


@pytest.mark.usefixtures("on_the_cpu")
def test_a_library_that_cannot_run_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no C compiler\nand more")

    monkeypatch.setattr(room, "others", lambda *_, **__: [("Triton", lambda x: broken), ("another", broken)])
    assert [x.contender for x in room.bench([mine()], SMALL, rounds=3)] == ["mine"]
    assert caplog.messages == [f"{name} is left out: RuntimeError: no C compiler" for name in ("Triton", "another")]


@pytest.mark.usefixtures("on_the_cpu")
def test_a_library_that_cannot_be_captured_is_timed_by_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def captured(calls: Any) -> Graph:
        raise RuntimeError("not permitted when stream is capturing")

    monkeypatch.setattr(checked, "captured", captured)
    monkeypatch.setattr(checked, "_of_ours", lambda *_: iter(()))
    one = mine()
    against = only("torch.matmul")
    (ready, *_) = checked.prepared([one], SMALL, against, seed=0, in_graphs=True)
    assert (ready.name, ready.graph) == ("torch.matmul", None)
    assert "torch.matmul in a graph is left out" in caplog.text


@pytest.mark.usefixtures("on_the_cpu")
def test_a_file_that_is_not_cutlasss_example_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("x = 1\n")
    with pytest.raises(OutsideError, match=r"not CUTLASS's tensorop_gemm\.py"):
        room.bench([mine()], SMALL, rounds=3, cutlass=(other,))
    with pytest.raises(OutsideError, match="cannot be read"):
        room.bench([mine()], SMALL, rounds=3, cutlass=(tmp_path / "missing.py",))


def test_the_ratio_is_to_torch_on_the_same_operands_in_the_same_regime() -> None:
    fast, slow = (result("torch.matmul", problem, us, ours=False) for problem, us in ((SMALL, 10.0), (CUBE, 100.0)))
    graph = replace(fast, regime=Regime.GRAPH, measurement=slow.measurement)
    ours = result("mine", SMALL, 8.0, ours=True)
    assert x_torch(ours, [slow, graph, fast, ours]) == 1.25
    assert x_torch(ours, [slow, ours]) is None


def test_operands_are_aligned_for_every_kernel_of_a_setting() -> None:
    made = plan(load_spec("sm80_hgemm_tn"), "sm_80").launch
    a, b, c = made.tensors
    loose = replace(made, tensors=(replace(a, align_bytes=4), b, replace(c, align_bytes=64)))
    assert [x.align_bytes for x in checked.aligned_for_all([loose, made]).tensors] == [16, 16, 64]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, ceilings: Ceilings) -> None:
    """A machine that has answered already."""

    def run(entrants: list[Entrant], problem: ProblemShape, **options: Any) -> Any:
        assert options["regimes"] == tuple(Regime)
        options["after_round"]()
        return (result("torch.matmul", problem, 40.0, ours=False), result("mine", problem, 50.0, ours=True))

    made_with = Conditions("580.1", "13.0", {"torch": "2.11"})
    monkeypatch.setattr(door, "conditions", lambda: made_with)
    monkeypatch.setattr(door, "require_gpu", lambda: None)
    monkeypatch.setattr(
        door,
        "_entrant",
        lambda spec, arch, problem: SimpleNamespace(
            name=spec,
            types=TYPES,
            ceiling_types=(TYPES, TYPES),
            kernel=SimpleNamespace(contract=SimpleNamespace(groups=None)),
        ),
    )
    monkeypatch.setattr(door, "measure_ceilings", lambda types, after_round: ceilings)
    monkeypatch.setattr(door, "run_bench", run)


@pytest.mark.usefixtures("measured")
def test_the_table_shows_each_problem_once_with_all_contenders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "mine", "--problem", "1000,1000,1000", "--problem", "2000,1000,1000"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert (
        captured.out
        == """\
Ceilings measured on Imaginary 100, 100 SMs
  mma.sync, f16 with f32 accumulation  100 TFLOP/s, 1,000 operations per cycle and SM
  reading                              1.25 TB/s
  copy                                 1.00 TB/s, bytes read plus bytes written

1000x1000x1000: A f16 k-major, B f16 k-major, C f16 n-major; one launch, L2 cache cold and clean
  contender       us  (least..most)  x torch  TFLOP/s  of ceiling  of reading    error
  torch.matmul  40.0   (32.0..50.0)     1.00     50.0         50%         12%  2.0e-04
  mine          50.0   (40.0..62.5)     0.80     40.0         40%         10%  2.0e-04

2000x1000x1000: A f16 k-major, B f16 k-major, C f16 n-major; one launch, L2 cache cold and clean
  contender       us  (least..most)  x torch  TFLOP/s  of ceiling  of reading    error
  torch.matmul  40.0   (32.0..50.0)     1.00    100.0        100%         20%  2.0e-04
  mine          50.0   (40.0..62.5)     0.80     80.0         80%         16%  2.0e-04
"""
    )


@pytest.mark.usefixtures("measured")
def test_programs_get_every_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "roofline.svg"
    assert main(["bench", "mine", "--problem", "1000,1000,1000", "--json", "--plot", str(plot)]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["ceilings"]["device"] == "Imaginary 100"
    assert table["ceilings"]["mma"][0]["clock_hz"] == 1e9
    assert table["ceilings"]["mma"][0]["instruction"] == "mma.sync"
    assert table["conditions"] == {"driver": "580.1", "cuda": "13.0", "versions": {"torch": "2.11"}}
    reference, mine = table["results"]
    assert (reference["contender"], reference["ours"], mine["ours"]) == ("torch.matmul", False, True)
    assert mine == {
        "problem": [1000, 1000, 1000],
        "batch": 1,
        "operands": [{"dtype": "f16", "major": major} for major in "kkn"],
        "accumulator": "f32",
        "instruction": "mma.sync",
        "contender": "mine",
        "ours": True,
        "regime": "launch",
        "median_us": 50.0,
        "min_us": 40.0,
        "max_us": 62.5,
        "rounds": 3,
        "x_torch": 0.8,
        "tflops": 40.0,
        "intensity": pytest.approx(1000 / 3),
        "of_mma": pytest.approx(0.4),
        "of_read": pytest.approx(0.096),
        "of_copy": pytest.approx(0.12),
        "rel_error": 2e-4,
        "state": None,
    }
    titles = [x.text for x in ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}title")]
    assert titles[1] == "mine, 1000x1000x1000, A f16 k-major, B f16 k-major, C f16 n-major: 40.0 TFLOP/s"


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["mine", "mine"], 2, "two specs called mine"),
        (["mine", "--plot", "missing/roofline.svg"], 3, "--plot: missing/roofline.svg cannot be written"),
        (["mine", "--out", "missing/times.json"], 3, "--out: missing/times.json cannot be written"),
        (["mine", "--cutlass", "missing.py"], 2, "--cutlass: found no file missing.py"),
    ],
)
def test_what_is_in_the_way_is_named(
    words: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is measured, which would be lost."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(door, "measure_ceilings", lambda types, after_round: pytest.fail("measured"))
    assert main(["bench", *words]) == code
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("measured")
def test_a_plot_that_cannot_be_written_costs_no_times(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.svg").mkdir()
    assert main(["bench", "mine", "--plot", str(tmp_path / "a.svg")]) == 3
    assert "Ceilings measured on Imaginary 100" in capsys.readouterr().out


@pytest.mark.dsl
def test_a_built_artifact_takes_part_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    by_name = door._entrant("sm80_hgemm_tn", "sm_80", ProblemShape(64, 64, 64))
    by_folder = door._entrant(str(by_name.kernel.artifact.path), None, ProblemShape(64, 64, 64))
    assert by_folder.name == by_name.name == "sm80_hgemm_tn"
    assert by_folder.kernel.artifact.key == by_name.kernel.artifact.key
    assert by_folder.types == TYPES


def test_extra_operands_are_no_part_of_the_setting() -> None:
    contract = plan(load_spec("sm80_hgemm_bias_gelu"), "sm_90").launch
    entrant = Entrant("fused", SimpleNamespace(contract=contract))  # type: ignore[arg-type]
    assert len(contract.tensors) > 3
    assert str(entrant.setting) == "A f16 k-major, B f16 k-major, C f16 n-major"


@pytest.mark.usefixtures("measured")
def test_one_regime_alone_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def run(entrants: list[Entrant], problem: ProblemShape, **options: Any) -> Any:
        asked.append(options["regimes"])
        graph = replace(result("mine", problem, 50.0, ours=True), regime=Regime.GRAPH)
        return (graph,)

    monkeypatch.setattr(door, "run_bench", run)
    assert main(["bench", "mine", "--problem", "1000,1000,1000", "--regime", "graph"]) == 0
    assert asked == [(Regime.GRAPH,)]
    assert "launches in a CUDA graph, operands larger than the L2 cache" in capsys.readouterr().out
