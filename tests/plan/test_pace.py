"""`schedule.pace`: a CTA requests a tile's k-tiles no faster than the spec says, and computes the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.plan import GemmPlan, plan
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Schedule, Tile
from cutegen.verify import compare, float64_reference, random_operands
from tests.plan.specs import gemm

PACE = 300


def spec(**schedule: object) -> GemmSpec:
    return replace(
        gemm(),
        family="sm90",
        tile=Tile((64, 64, 64), 3),
        schedule=Schedule(**schedule),  # type: ignore[arg-type]
        name="paced",
    )


def planned(of: GemmSpec) -> GemmPlan:
    found = plan(of, "sm_90")
    assert isinstance(found, GemmPlan)
    return found


@pytest.mark.parametrize("pace", [None, 0])
def test_no_clock_is_read_without_a_pace(pace: int | None) -> None:
    found = planned(spec(pace=pace))
    assert found.pace == 0
    assert "clock" not in render(found).text
    assert [x.chosen for x in found.decisions if x.key == "schedule.pace"] == ["none"] * (pace == 0)


def test_the_plan_compares_the_pace_with_the_tensor_cores() -> None:
    (decision,) = (x for x in planned(spec(pace=PACE)).decisions if x.key == "schedule.pace")
    assert (decision.chosen, decision.given) == ("300 cycles", True)
    assert decision.why.endswith("the tensor cores multiply one in 128")  # 64 x 64 x 64 / 2048 multiply-adds


def test_the_generated_spec_keeps_it() -> None:
    assert "pace = 300" in render(planned(spec(pace=PACE))).text


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        pytest.param({"consumers": "pingpong"}, marks=pytest.mark.slow),
        {"cluster": (2, 1)},
        pytest.param({"split_k": 2, "reduction": "cluster"}, marks=pytest.mark.slow),
        pytest.param({"split_k": 3, "reduction": "workspace"}, marks=pytest.mark.slow),
        pytest.param({"swap": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_results_are_the_same(schedule: dict[str, object], kernels: Cache) -> None:
    found = []
    for pace in (0, PACE):
        kernel = Kernel(build(build_request(spec(pace=pace, **schedule), "sm_90"), kernels))
        a, b, out = random_operands(kernel.contract, 200, 136, 520, seed=5)
        kernel(a, b, out=out)
        assert compare(out, float64_reference(a, b), dtype="f16").ok
        found.append(out)
    assert (found[0] == found[1]).all()


def test_each_k_tile_in_the_loop_waits_for_its_time_first(kernels: Cache) -> None:
    artifact = build(build_request(spec(pace=PACE), "sm_90"), kernels)
    kinds = re.findall(r"%clock|try_wait|cp\.async\.bulk\.tensor\S+global", artifact.ptx)
    loop = [x.split(".")[0] for x in kinds[kinds.index("%clock") :]]
    # Before the loop of a tile the clock is read; in it a k-tile waits until it is due, then for a stage.
    assert loop[:5] == ["%clock", "%clock", "try_wait", "cp", "cp"]
    assert re.search(rf"add\.s32\s+%r\d+, %r\d+, {PACE};", artifact.ptx[artifact.ptx.index("%clock") :])
