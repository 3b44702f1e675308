"""The benchmark of groups, on the CPU: torch's two ways beside a kernel, on the same ends, checked before timing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cutegen.api import compile as compile_spec
from cutegen.bench import benchmark as room
from cutegen.bench.benchmark import x_torch
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.contenders import TORCH_GROUPED, TORCH_LOOP, Entrant, Operands
from cutegen.bench.grouped import GroupSizes
from cutegen.bench.measure import Regime
from cutegen.bench.tables import result_lines, result_table
from cutegen.cli.bench import _sizes
from cutegen.cli.groups import named_groups
from cutegen.cli.main import main
from cutegen.contract.problem import Distribution, Groups, ProblemShape
from cutegen.errors import CheckError, RequestError
from cutegen.plan import plan
from cutegen.spec import load_spec
from tests.bench.conftest import result

ROWS = Groups("m")
SIZES = GroupSizes(ROWS, (3, 0, 29), "3,0,29")
SMALL = ProblemShape(32, 48, 64, groups=3)


class FakeKernel:
    """A kernel of groups that multiplies each with torch, and leaves the last one's rows out if it is told so."""

    def __init__(self, *, wrong: bool = False) -> None:
        made = plan(load_spec("sm80_bf16_grouped"), "sm_80")
        self.contract, self.wrong, self.wrote = made.launch, wrong, 0
        self.artifact = SimpleNamespace(plan_json=json.dumps(made.to_json()))

    def __call__(self, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, offs: torch.Tensor) -> None:
        self.wrote = out.data_ptr()
        ends = [0, *offs.tolist()]
        for group in range(len(b) - self.wrong):
            rows = slice(ends[group], ends[group + 1])
            out[rows] = a[rows] @ b[group]


def mine(*, wrong: bool = False) -> Entrant:
    return Entrant("mine", FakeKernel(wrong=wrong))  # type: ignore[arg-type]


@pytest.mark.usefixtures("on_the_cpu")
def test_torch_multiplies_the_same_groups_in_both_regimes() -> None:
    found = room.bench([mine()], SMALL, rounds=3, regimes=tuple(Regime), sizes=SIZES)
    assert [(x.regime, x.contender, x.ours) for x in found] == [
        (regime, name, name == "mine") for regime in Regime for name in (TORCH_GROUPED, TORCH_LOOP, "mine")
    ]
    assert all(0 < x.rel_error < 1e-2 for x in found)
    assert all(x_torch(x, found) == 1 for x in found)


@pytest.mark.usefixtures("on_the_cpu")
def test_a_kernel_that_leaves_a_group_out_is_not_timed() -> None:
    """Neither the results of those before it nor its own earlier ones are there for it."""
    with pytest.raises(CheckError, match=r"mine at 32x48x64 in 3 groups: .* elements wrong"):
        room.bench([mine(wrong=True)], SMALL, rounds=3, sizes=SIZES)


@pytest.mark.usefixtures("on_the_cpu")
def test_without_a_grouped_product_torch_is_a_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(torch.nn.functional, "grouped_mm")
    found = room.bench([mine()], SMALL, rounds=3, sizes=SIZES)
    assert [x.contender for x in found] == [TORCH_LOOP, "mine"]
    assert x_torch(found[1], found) == 1
    assert not caplog.messages


@pytest.mark.usefixtures("on_the_cpu")
def test_a_library_that_is_wrong_in_one_group_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = torch.nn.functional.grouped_mm
    wrong = lambda a, b, **options: real(a, b.flip(0), **options)  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "grouped_mm", wrong)
    assert [x.contender for x in room.bench([mine()], SMALL, rounds=3, sizes=SIZES)] == [TORCH_LOOP, "mine"]
    assert f"{TORCH_GROUPED} is left out: relative error" in caplog.text


@pytest.mark.usefixtures("on_the_cpu")
def test_results_that_a_library_allocates_stay_its_own() -> None:
    """Kernels write the memory that is aligned for them."""
    aligned: list[int] = []

    def allocating(x: Operands) -> Callable[[], object]:
        aligned.append(x.out.data_ptr())
        result = torch.nn.functional.grouped_mm(x.a, x.b, offs=x.extras["offs"])
        return lambda: x.out.set_(result)

    entrant = mine()
    found = room.bench([entrant], SMALL, rounds=3, against=lambda _: [("allocating", allocating)], sizes=SIZES)
    assert [x.contender for x in found] == ["allocating", "mine"]
    assert [entrant.kernel.wrote] == aligned  # type: ignore[attr-defined]


def test_work_is_that_of_the_groups(ceilings: Ceilings) -> None:
    """Weights of a group without rows are not read; parts of K have a result each."""
    of_rows = replace(result("mine", SMALL, 1.0, ours=True), sizes=SIZES)
    assert of_rows.flops == 2 * 32 * 48 * 64
    assert of_rows.compulsory_bytes == 2 * (32 * 64 + 2 * 64 * 48 + 32 * 48)
    of_k = replace(of_rows, sizes=GroupSizes(Groups("k"), (3, 0, 61), "3,0,61"))
    assert of_k.flops == of_rows.flops
    assert of_k.compulsory_bytes == 2 * (32 * 64 + 64 * 48 + 3 * 32 * 48)
    assert "32x48x64 in 3 groups, 3,0,29: A f16 k-major" in "\n".join(result_lines(ceilings, [of_rows]))
    table = result_table(ceilings, of_rows, [of_rows])
    assert (table["sizes"], table["sizes_name"]) == ([3, 0, 29], "3,0,29")


@pytest.mark.parametrize(
    ("number", "sizes", "values"),
    [(3, None, (11, 10, 11)), (3, "hot", (8, 16, 8)), (None, "3,0,29", (3, 0, 29))],
)
def test_sizes_fill_the_problem(number: int | None, sizes: str | None, values: tuple[int, ...]) -> None:
    found = _sizes([mine()], SMALL, named_groups(number, sizes))
    assert found == GroupSizes(ROWS, values, sizes or "uniform")


def test_groups_that_cannot_be_measured_are_refused() -> None:
    with pytest.raises(RequestError, match="found 23 along M; expected 32"):
        _sizes([mine()], SMALL, named_groups(None, "3,20"))
    with pytest.raises(RequestError, match="found a kernel of groups without --groups"):
        _sizes([mine()], replace(SMALL, groups=None), named_groups(None, None))
    dense = Entrant("dense", SimpleNamespace(contract=plan(load_spec("sm80_bf16_nn"), "sm_80").launch))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="expected kernels of the same groups"):
        _sizes([mine(), dense], SMALL, named_groups(3, None))
    with pytest.raises(RequestError, match="a spec without groups"):
        _sizes([dense], SMALL, named_groups(3, None))


def test_without_a_gpu_groups_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(room, "present_target", lambda: None)
    words = ["bench", "sm80_bf16_grouped", "--problem", "512,256,128", "--groups", "8", "--sizes", "zipf"]
    assert main(words) == 3
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "no supported GPU found" in said.err
    assert main([*words[:-1], "gauss"]) == 2
    assert "or one of uniform, spread, routed, zipf, hot" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_real_kernel_is_timed_beside_torch_in_both_regimes() -> None:
    problem = ProblemShape(2048, 512, 256, groups=8)
    sizes = GroupSizes(ROWS, Distribution.ZIPF.sizes(2048, 8), Distribution.ZIPF)
    entrant = Entrant("mine", compile_spec(load_spec("sm80_bf16_grouped"), problem=problem))
    found = room.bench([entrant], problem, rounds=3, regimes=tuple(Regime), sizes=sizes)
    ours = [x for x in found if x.ours]
    assert [x.regime for x in ours] == list(Regime)
    assert all(x_torch(x, found) is not None for x in ours)
    assert {TORCH_LOOP} <= {x.contender for x in found}
    assert all(0 < x.rel_error < 1e-2 and x.measurement.median_us > 0 for x in found)
