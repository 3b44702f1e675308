"""`schedule.programmatic`: a launch may begin early, and touches no memory before what comes before it has ended."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.launch import LaunchContract
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Schedule, Tile
from cutegen.verify import compare, float64_reference, random_operands
from tests.plan.specs import gemm

MEMORY = re.compile(r"^\s*(?:@%p\d+ )?(ld\.global|st\.global|atom|red\.|cp\.async|cp\.reduce|griddepcontrol)\S*", re.M)


def spec(**schedule: object) -> GemmSpec:
    return replace(
        gemm(),
        family="sm90",
        tile=Tile((64, 64, 64), 2),
        schedule=Schedule(**schedule),  # type: ignore[arg-type]
        name="programmatic",
    )


def launch(of: GemmSpec) -> LaunchContract:
    found = plan(of, "sm_90")
    assert isinstance(found, GemmPlan)
    return found.launch


def test_it_is_off_where_nothing_is_said() -> None:
    found = launch(spec())
    assert not found.programmatic
    assert "programmatic" not in found.to_json()
    assert "griddepcontrol" not in render(plan(spec(), "sm_90")).text


def test_a_launcher_is_told() -> None:
    found = launch(spec(programmatic=True))
    assert found.programmatic
    assert LaunchContract.from_json(found.to_json()) == found
    (decision,) = (x for x in plan(spec(programmatic=True), "sm_90").decisions if x.key == "schedule.programmatic")
    assert (decision.chosen, decision.given) == ("true", True)


def test_no_memory_is_touched_before_the_wait(kernels: Cache) -> None:
    artifact = build(build_request(spec(programmatic=True), "sm_90"), kernels)
    first, second, *others = (match[0].split()[-1] for match in MEMORY.finditer(artifact.ptx))
    assert (first, second) == ("griddepcontrol.wait;", "griddepcontrol.launch_dependents;")
    assert any(text.startswith("cp.async.bulk") for text in others)
    kernel = Kernel(artifact)
    a, b, out = random_operands(kernel.contract, 100, 72, 136, seed=3)
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype="f16").ok


@pytest.mark.parametrize("reduction", [None, "workspace"])
def test_slices_that_need_a_zeroed_workspace_are_refused(reduction: str | None) -> None:
    with pytest.raises(SpecError, match=r"schedule\.programmatic: found true with K in 4 slices"):
        plan(spec(programmatic=True, split_k=4, reduction=reduction), "sm_90")


def test_false_is_obeyed_with_a_workspace_too() -> None:
    for schedule in ({}, {"split_k": 4, "reduction": "workspace"}):
        asked = spec(programmatic=False, **schedule)
        assert not launch(asked).programmatic
        (decision,) = (x for x in plan(asked, "sm_90").decisions if x.key == "schedule.programmatic")
        assert (decision.chosen, decision.why) == ("false", "given")


def test_slices_of_one_cluster_are_not() -> None:
    assert launch(spec(programmatic=True, split_k=2, reduction="cluster")).programmatic


def test_other_families_have_no_such_key() -> None:
    with pytest.raises(SpecError, match=r"schedule\.programmatic"):
        plan(replace(gemm(), schedule=Schedule(programmatic=True)), "sm_90")
