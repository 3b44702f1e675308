"""Kernels are written from their pipelines: an edit of one reaches the text and the PTX, and the PTX is checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.build.emission import count_mbarriers
from cutegen.errors import EmissionError, ProofError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.pipeline import (
    AB,
    C_STORE,
    SLICES,
    TURN,
    By,
    Pipeline,
    Sync,
    initial_counts,
    mbarriers_bytes,
)
from cutegen.plan.kernel.program import Action, KernelLoop, Program, Range, Section
from cutegen.plan.prove import prove
from cutegen.render import render
from cutegen.spec import GemmSpec, load_spec
from tests.run.wgmma import CASES


def planned(name: str) -> GemmPlan:
    spec = CASES.get(name) or load_spec(name)
    assert isinstance(spec, GemmSpec)
    found = plan(spec, "sm_120" if name.startswith("sm120") else "sm_90")
    assert isinstance(found, GemmPlan)
    return found


def edited(found: GemmPlan, name: str, edit: Callable[[Pipeline], Pipeline]) -> GemmPlan:
    pipelines = tuple(edit(x) if x.name == name else x for x in found.loop.pipelines)
    return replace(found, loop=replace(found.loop, pipelines=pipelines))


def without(found: GemmPlan, name: str) -> GemmPlan:
    """The plan without a pipeline and all steps on it."""

    def others(each: Range | Section) -> Range | Section:
        if isinstance(each, Section):
            return replace(each, steps=tuple(x for x in each.steps if x.pipeline != name))
        return replace(each, slots=tuple(tuple(x for x in slot if x.pipeline != name) for slot in each.slots))

    def kept(program: Program) -> Program:
        return replace(program, tile=tuple(map(others, program.tile)), end=tuple(map(others, program.end)))

    loop: KernelLoop = replace(
        found.loop,
        programs=tuple(map(kept, found.loop.programs)),
        pipelines=tuple(x for x in found.loop.pipelines if x.name != name),
    )
    return replace(found, loop=loop)


def counted(pipeline: Pipeline, by: int) -> Pipeline:
    """With another count at `empty`."""
    assert pipeline.empty is not None
    return replace(pipeline, empty=replace(pipeline.empty, count=pipeline.empty.count + by))


def test_the_pipelines_of_a_kernel_by_hand() -> None:
    """Two stages of 64 x 128 and 128 x 64 halves; two warpgroups that share a tile have two buffers of C each."""
    found = planned("pingpong")
    (ab, turn, c_store) = found.loop.pipelines
    assert ab.payload_bytes == sum(x.smem.bytes for x in found.operands) // found.stages
    assert (ab.stages, ab.full.count, turn.stages, turn.full.count) == (found.stages, 1, 2, 4)
    assert ab.empty is not None
    assert (ab.empty.count, c_store.stages) == (4, 2), "one warpgroup reads a k-tile, and stores two parts"
    assert mbarriers_bytes(found.loop.pipelines) == 8 * (2 * found.stages + 2)
    assert initial_counts(found.loop.pipelines) == {
        "ab.full": (found.stages, 1),
        "ab.empty": (found.stages, 4),
        "turn.full": (2, 4),
    }


@pytest.mark.parametrize(("name", "line"), [("tn", "EMPTY_ARRIVALS = 9 "), ("sm120_hgemm_tn", "(empty + stage, 9)")])
def test_a_count_reaches_the_text(name: str, line: str) -> None:
    found = planned(name)
    assert line not in render(found).text
    assert line in render(edited(found, AB, lambda ab: counted(ab, 9 - ab.mbarriers[1].count))).text


@pytest.mark.dsl
@pytest.mark.parametrize("name", ["pingpong", "ends_in_turns"])
def test_a_kernel_without_its_turns_has_neither_their_barriers_nor_their_steps(name: str, kernels: Cache) -> None:
    found = planned(name)
    alone = without(found, TURN)
    texts = [build(request_of(each), kernels).ptx for each in (found, alone)]
    before, after = (count_mbarriers(ptx) for ptx in texts)
    own = found.loop.pipelines[0].mbarriers[1].count
    assert before[4] - after.get(4, 0) == 2
    assert {count: number for count, number in after.items() if count not in (1, own)} == {}
    waits, arrivals = ([ptx.count(f"mbarrier.{x}.") for ptx in texts] for x in ("try_wait", "arrive"))
    assert waits[1] < waits[0]
    assert arrivals[1] == arrivals[0] - 1


@pytest.mark.dsl
@pytest.mark.parametrize("name", ["tn", "cluster_along_m", "sm120_hgemm_tn"])
def test_a_kernel_with_other_barriers_than_its_plan_is_refused(name: str, kernels: Cache) -> None:
    request = request_of(planned(name))
    build(request, kernels)
    other = edited(planned(name), AB, lambda ab: counted(ab, 1))
    mistaken = replace(request_of(other), mbarriers=request.mbarriers)
    with pytest.raises(EmissionError, match=r"emitted .* mbarriers, but the plan's pipelines have .*\(ab\.empty\)"):
        build(mistaken, kernels)


INCONSISTENT: dict[str, tuple[str, Callable[[GemmPlan], GemmPlan], str]] = {
    "bytes that are not copied": (
        "tn",
        lambda found: edited(found, AB, lambda ab: replace(ab, payload_bytes=ab.payload_bytes + 16)),
        "a stage of ab waits for .* bytes, and copies bring",
    ),
    "stages that the plan does not have": (
        "tn",
        lambda found: edited(found, AB, lambda ab: replace(ab, stages=ab.stages + 1)),
        "other stages than the plan",
    ),
    "a CTA that is not told": (
        "cluster_along_m",
        lambda found: replace(found, mma=replace(found.mma, cluster=(1, 1, 1))),
        "a stage is released 2 times, and 1 CTAs or pairs",
    ),
    "buffers of C without a pipeline": ("tn", lambda found: without(found, C_STORE), "C's shared memory and its pipe"),
    "a buffer of C more": (
        "tn",
        lambda found: edited(found, C_STORE, lambda x: replace(x, payload_bytes=2 * x.payload_bytes)),
        "not that of its pipeline's buffers",
    ),
    "slices that nobody adds": (
        "slices_of_a_cluster",
        lambda found: without(found, SLICES),
        "slices of K and the pipe",
    ),
}


@pytest.mark.parametrize("name", INCONSISTENT)
def test_pipelines_that_are_not_the_plans_are_not_proved(name: str) -> None:
    kernel, edit, words = INCONSISTENT[name]
    found = planned(kernel)
    prove(found)
    with pytest.raises(ProofError, match=words):
        prove(edit(found))


def written(loop: KernelLoop, action: Action, *, sync: Sync, by: By | None = None) -> int:
    """How often the text of a kernel has an operation on barriers of one kind, in each CTA that it is for."""
    found = 0
    for program in loop.programs:
        for each in program.sections:
            for step in each.steps:
                pipeline = loop.pipeline(step.pipeline)
                if step.action is not action or pipeline is None:
                    continue
                barrier = pipeline.full if action is Action.COMMIT else pipeline.empty
                if barrier is None or barrier.sync is not sync or by not in (None, barrier.arrivals[0].by):
                    continue
                times = each.times if isinstance(each, Section) else len(step.nth.of(each.copies))
                found += times * barrier.arrivals[0].ctas
    return found


@pytest.mark.dsl
@pytest.mark.parametrize(
    "name",
    [
        *("tn", "pingpong", "ends_in_turns", "cluster_along_m", "e4m3", "clusters_leave_shares", "sm120_hgemm_tn"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("cluster_taking_turns", "pingpong_e4m3", "nt")),
    ],
)
def test_the_ptx_arrives_as_often_as_the_programs_say(name: str, kernels: Cache) -> None:
    """A release in a cluster is one arrival for each CTA. Buffers of C are waited for, and once more before the end."""
    found = planned(name)
    counts = Counter(ARRIVALS.findall(build(request_of(found), kernels).ptx))
    loop = found.loop
    released = written(loop, Action.RELEASE, sync=Sync.MBARRIER)
    passed_on = written(loop, Action.COMMIT, sync=Sync.MBARRIER, by=By.WARP)
    stored = (Action.ACQUIRE, Action.TAIL)
    assert counts["mbarrier.arrive.expect_tx"] == written(loop, Action.COMMIT, sync=Sync.MBARRIER, by=By.COPY)
    assert counts["mbarrier.arrive"] == released + passed_on
    assert counts["cp.async.bulk.wait_group"] == sum(written(loop, x, sync=Sync.STORE_GROUPS) for x in stored)


ARRIVALS = re.compile(r"\bmbarrier\.arrive(?:\.expect_tx)?|\bcp\.async\.bulk\.wait_group")
