"""The proof of boxes and their memory, of views of fragments, and of launches: each way to spoil one is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cutegen.algebra import Layout, inner_layout, make_layout, mode, with_inner
from cutegen.errors import ProofError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.memory import Phase, allocate
from cutegen.plan.kernel.pipeline import AB, Scope, Turns
from cutegen.plan.prove import prove
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.spec import GemmSpec, Operand, Problem, Tile, load_spec
from tests.plan.changed import moved, with_path, with_region, with_regions


def boxes() -> GemmPlan:
    return plan(load_spec("sm120_hgemm_tn"), "sm_120")


def warpgroups() -> GemmPlan:
    """C in parts, and two barriers more by which warpgroups take turns."""
    found = plan(load_spec("sm90_hgemm_tn"), "sm_90")
    assert found.mma.role.turns is Turns.LAST_K_TILES
    return found


def split() -> GemmPlan:
    return plan(load_spec("sm80_split_k_tn"), "sm_80")


def viewed() -> GemmPlan:
    """B's bytes along N: an ldmatrix numbers a thread's values otherwise than the MMA."""
    problem = Problem(a=Operand("s8", "k"), b=Operand("s8", "n"), c=Operand("s32", "n"))
    found = plan(GemmSpec(family="sm120", problem=problem), "sm_120")
    assert found.b.s2r.view is not None
    return found


def with_boxes(**fields: object) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        assert isinstance(found.a.g2s, BulkTensorCopy)
        return with_path(found, "a", g2s=replace(found.a.g2s, **fields))

    return spoil


def with_moved(**by: int) -> Callable[[GemmPlan], GemmPlan]:
    """Regions of the shared memory so many bytes further, or nearer."""
    return lambda found: moved(found, **by)


def with_fewer_bytes(name: str, bytes: int) -> Callable[[GemmPlan], GemmPlan]:
    return lambda found: with_region(found, name, bytes=found.memory.region(name).bytes - bytes)


def c_over_stages(found: GemmPlan) -> GemmPlan:
    """C in the place of the stages, as if no copies of the next tile's k-tiles came while it is stored."""
    regions = (
        replace(each, phases=frozenset({Phase.K_TILES})) if each.owner == AB else each for each in found.memory.regions
    )
    return with_regions(found, *allocate(regions).regions)


def stages_apart(found: GemmPlan) -> GemmPlan:
    """B's stages lie half a period of the swizzle further from each other, with the memory that they need."""
    smem, half = found.b.smem, 512
    inner, stage_bytes = inner_layout(smem.layout), smem.bytes // found.stages + half
    stages = Layout(found.stages, stage_bytes // found.b.dtype.bytes)
    layout = with_inner(smem.layout, make_layout(mode(inner, 0), mode(inner, 1), stages))
    wider = replace(smem, layout=layout, bytes=found.stages * stage_bytes)
    return with_path(found, "b", smem=wider)


def another_view(found: GemmPlan) -> GemmPlan:
    """The values of each load in the MMA's own order."""
    view = found.b.s2r.view
    assert view is not None
    straight = Layout(view.shape)
    return with_path(found, "b", s2r=replace(found.b.s2r, view=straight))


def other_bytes(found: GemmPlan) -> GemmPlan:
    assert found.launch.split is not None
    less = replace(found.launch.split, bytes_per_slice=found.launch.split.bytes_per_slice - 16)
    return replace(found, launch=replace(found.launch, split=less))


def launched_slices(more: int) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        assert found.launch.split is not None
        other = replace(found.launch.split, slices=found.launch.split.slices + more)
        return replace(found, launch=replace(found.launch, split=other))

    return spoil


def other_slices_in_flight(found: GemmPlan) -> GemmPlan:
    assert found.split_k is not None
    return replace(found, scheduler=replace(found.scheduler, split_k=replace(found.split_k, in_flight=3)))


def without_region(name: str) -> Callable[[GemmPlan], GemmPlan]:
    return lambda found: with_regions(found, *(each for each in found.memory.regions if each.name != name))


def producer_registers(count: int) -> Callable[[GemmPlan], GemmPlan]:
    """The warp that copies asks for so many; the idle ones of its warpgroup for what they had."""

    def spoil(found: GemmPlan) -> GemmPlan:
        roles = (replace(each, registers=count) if each.name == "producer" else each for each in found.loop.roles)
        return replace(found, loop=replace(found.loop, roles=tuple(roles)))

    return spoil


def stages_of_a_pair(found: GemmPlan) -> GemmPlan:
    pipelines = (replace(each, scope=Scope.PAIR) if each.name == AB else each for each in found.loop.pipelines)
    return replace(found, loop=replace(found.loop, pipelines=tuple(pipelines)))


SPOILED: dict[str, tuple[Callable[[], GemmPlan], Callable[[GemmPlan], GemmPlan], str]] = {
    "another swizzle": (boxes, with_boxes(swizzle_bits=2), "does not write where the layout says"),
    "no swizzle": (boxes, with_boxes(swizzle_bits=0), "does not write where the layout says"),
    "one box too few": (boxes, with_boxes(boxes=2), "leaves gaps"),
    "less aligned than boxes need": (
        boxes,
        lambda found: with_path(found, "a", align_bytes=8),
        "multiples of 16 bytes",
    ),
    "an address where the kernel takes a map": (
        boxes,
        lambda found: replace(found, launch=replace(found.launch, maps=found.launch.maps[:1])),
        "other addresses",
    ),
    "B begins within a period of the swizzle": (
        boxes,
        with_moved(b=512),
        "of b does not begin at a multiple of 1024",
    ),
    "C begins within a period of the swizzle": (
        warpgroups,
        with_moved(c=512, barriers=512),
        "of c does not begin at a multiple",
    ),
    "C written over the stages": (
        warpgroups,
        c_over_stages,
        "of a could be overwritten while it is in use",
    ),
    "barriers within C": (warpgroups, with_moved(barriers=-8), "of c overlaps that of barriers"),
    "barriers that are not aligned": (boxes, with_moved(barriers=4), "of barriers does not begin"),
    "no memory for a stage's barriers": (boxes, with_fewer_bytes("barriers", 16), "of barriers are too few"),
    "no memory for the barriers of turns": (warpgroups, with_fewer_bytes("barriers", 8), "of barriers are too few"),
    "stages within a period of the swizzle": (boxes, stages_apart, "b has a stage that does not begin at a period"),
    "parts of C within B's stages": (warpgroups, with_moved(c=-1024), "of b overlaps that of c"),
    "registers in another order": (viewed, another_view, "numbers its registers wrongly"),
    "a workspace of another size": (split, other_bytes, "workspace of another size"),
    "a workspace that nobody uses": (
        split,
        lambda found: replace(found, scheduler=replace(found.scheduler, split_k=None)),
        "split K another way|nobody",
    ),
    "a launch of fewer slices": (split, launched_slices(-1), "split K another way"),
    "a launch of more slices": (split, launched_slices(1), "split K another way"),
    "slices that do not exist": (split, other_slices_in_flight, "slices that do not exist"),
    "B without memory": (warpgroups, without_region("b"), "b has no shared memory"),
    "a target of smaller CTAs": (
        warpgroups,
        lambda found: replace(found, target=replace(found.target, threads_per_cta=found.threads - 1)),
        "384 threads do not fit a CTA",
    ),
    "a warp with registers of its own": (
        warpgroups,
        producer_registers(56),
        "warps of a warpgroup request different numbers of registers",
    ),
    "stages that a pair of CTAs would share": (warpgroups, stages_of_a_pair, "stages are shared by a cta pair"),
}


@pytest.mark.parametrize("make", [boxes, warpgroups, split, viewed])
def test_plans_as_they_are(make: Callable[[], GemmPlan]) -> None:
    prove(make())


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_launch_is_noticed(name: str) -> None:
    make, spoil, reason = SPOILED[name]
    spoiled = spoil(make())
    with pytest.raises(ProofError, match=reason):
        prove(spoiled)


def test_maps_name_the_operands_in_the_order_of_the_kernels_parameters() -> None:
    launch = boxes().launch
    assert [each.name for each in launch.maps] == ["a", "b"]
    assert [x.name for x in launch.parameters if x.type == "tensormap"] == ["map_a", "map_b"]


@pytest.mark.parametrize("stages", [3, None])
def test_gaps_behind_stages_that_are_no_whole_periods_are_counted(stages: int | None) -> None:
    """B and C begin at multiples of 1024 bytes. Three stages of 7680 and 12288 bytes and 40960 of C leave 512 of
    sm_120's 101376: the gap behind A takes them, and nothing is left for the barriers.
    """
    problem = Problem(a=Operand("s8", "k"), b=Operand("s8", "k"), c=Operand("s32", "m"))
    found = plan(GemmSpec(family="sm120", problem=problem, tile=Tile(cta=(80, 128, 96), stages=stages)), "sm_120")
    assert found.smem_bytes <= 101376
