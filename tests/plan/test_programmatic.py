"""`schedule.programmatic`: a launch may begin early, and touches no memory before what comes before it has ended."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.launch import LaunchContract
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.ptx import ExecutionFault, LaunchReport
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Grouped, Schedule, Tile
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


AHEAD = {
    "one warpgroup": {},
    "swapped": {"swap": True},
    "cluster": {"cluster": (2, 1)},
    "ping-pong": {"consumers": "pingpong"},
    "slices in a cluster": {"split_k": 2, "reduction": "cluster"},
}


def executed(artifact: Any, m: int, n: int, k: int) -> LaunchReport:
    """The report of a launch whose predecessor may use all memory but what the contract says."""
    kernel = Kernel(artifact)
    a, b, out = random_operands(kernel.contract, m, n, k, seed=3)
    report = kernel.execute(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype="f16").ok
    return report


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=() if x in ("one warpgroup", "swapped") else pytest.mark.slow) for x in AHEAD]
)
def test_weights_are_copied_before_the_wait_and_nothing_else(kernels: Cache, name: str) -> None:
    asked = spec(programmatic="weights", **AHEAD[name])
    found = plan(asked, "sm_90")
    assert found.launch.ahead == ("b",)
    assert LaunchContract.from_json(found.launch.to_json()) == found.launch
    artifact = build(build_request(asked, "sm_90"), kernels)
    assert artifact.manifest.warnings == ()
    order = [match[0].split()[-1].partition(".tensor")[0] for match in MEMORY.finditer(artifact.ptx)]
    assert order.index("cp.async.bulk") < order.index("griddepcontrol.wait;")
    for extents in ((100, 72, 1000), (8, 8, 16)):  # more k-tiles than stages, and one
        assert executed(artifact, *extents).violations == ()


def test_a_kernel_that_reads_more_before_the_wait_is_noticed(kernels: Cache) -> None:
    asked = build_request(spec(programmatic="weights"), "sm_90")
    wait, roles = "    cute.arch.griddepcontrol_wait()\n", "    stage, phase = Int32(0), Int32(0)\n"
    text = asked.source.text
    assert text.count(wait) == text.count(roles) == 1
    late = replace(asked.source, text=text.replace(wait, "").replace(roles, wait + roles))
    with pytest.raises(ExecutionFault, match=r"bulk copy of global memory that the grid before may still .*wait"):
        executed(build(replace(asked, source=late, edited=True), kernels), 100, 72, 136)


def test_weights_that_a_predecessor_may_write_are_not_copied_before_the_wait(kernels: Cache) -> None:
    artifact = build(build_request(spec(programmatic="weights"), "sm_90"), kernels)
    table = json.loads(artifact.plan_json)
    assert table["launch"].pop("ahead") == ["b"]
    promised = SimpleNamespace(path="", plan_json=json.dumps(table), ptx=artifact.ptx, manifest=artifact.manifest)
    promised.cubin = artifact.cubin
    with pytest.raises(ExecutionFault, match=r"no griddepcontrol\.wait comes first"):
        executed(promised, 100, 72, 136)


@pytest.mark.parametrize(
    ("schedule", "of"), [({}, "k"), ({"swap": True}, "n"), ({"cluster": (1, 2)}, "m")], ids=["k", "n", "cluster"]
)
def test_groups_without_weights_of_their_own_and_clusters_of_groups_are_refused(
    schedule: dict[str, Any], of: str
) -> None:
    asked = spec(programmatic="weights", **schedule)
    asked = replace(asked, problem=replace(asked.problem, groups=Grouped(of)))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"schedule\.programmatic: found \"weights\" .*; programmatic = true$"):
        plan(asked, "sm_90")
