"""Slices of K that a cluster adds: how many it has, what it needs of memory, what is refused and what is proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import ProofError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.pipeline import SLICES
from cutegen.plan.prove import prove
from cutegen.render.spec_lines import settled_spec
from cutegen.spec import GemmSpec, Operand, Problem, Schedule, load_spec
from tests.run.wgmma import spec

TILE = (128, 128, 64)
CLUSTERED: dict[str, Any] = {"cta": TILE, "stages": 4, "split_k": 32, "reduction": "cluster"}


def planned(**parts: Any) -> GemmPlan:
    found = plan(spec("clustered", **{**CLUSTERED, **parts}), "sm_90")
    assert isinstance(found, GemmPlan)
    return found


@pytest.mark.parametrize(
    ("parts", "cluster", "part"),
    [
        ({}, (1, 1, 8), (64, 16)),
        ({"split_k": 12}, (1, 1, 4), (64, 32)),
        ({"split_k": 6}, (1, 1, 2), (64, 16)),
        ({"cta": (64, 64, 64)}, (1, 1, 4), (64, 16)),
        ({"cta": (64, 64, 64), "c": Operand("f32", "n")}, (1, 1, 8), (64, 8)),
        ({"cta": (64, 64, 64), "c": Operand("f16", "m")}, (1, 1, 8), (64, 8)),
        ({"cta": (64, 64, 64), "cluster": (1, 1, 8)}, (1, 1, 8), (64, 8)),
        ({"cta": (256, 128, 64)}, (1, 1, 8), (64, 16)),
        ({"cluster": (2, 1)}, (2, 1, 4), (64, 16)),
        ({"cluster": (2, 1, 2), "reduction": None}, (2, 1, 2), (64, 16)),
        ({"split_k": None}, (1, 1, 1), (64, 64)),
        ({"reduction": "workspace", "cluster": (4, 1)}, (4, 1, 1), (64, 16)),
        ({"reduction": None, "cluster": (2, 1, 1)}, (2, 1, 1), (64, 16)),
    ],
)
def test_a_cluster_has_as_many_slices_as_share_the_tile_evenly(
    parts: dict[str, Any], cluster: tuple[int, int, int], part: tuple[int, int]
) -> None:
    """Up to eight CTAs, each with whole sectors of rows of C."""
    found = planned(**parts)
    assert (found.mma.cluster, found.epilogue.part) == (cluster, part)
    launched = found.launch.geometry(ProblemShape(1000, 1000, 4096), multiprocessors=132, active_clusters=64)
    slices = found.spec.schedule.split_k
    assert launched.cluster == (cluster[0], cluster[2] if slices else cluster[1], 1)
    assert launched.grid[1] == (slices or 1)
    assert launched.grid[0] % cluster[0] == 0


@pytest.mark.parametrize(("split_k", "cluster"), [(8, (1, 1, 8)), (32, (1, 1, 8)), (32, (2, 1, 4)), (4, (2, 1))])
def test_the_workspace_has_what_clusters_leave(split_k: int, cluster: tuple[int, ...]) -> None:
    found = planned(split_k=split_k, cluster=cluster, reduction=None)
    shares = cluster[2] if len(cluster) == 3 else 1
    workspace = found.launch.workspace(ProblemShape(3 * 128, 200, 65536))
    tiles = -(-3 // cluster[0]) * cluster[0] * 2
    if split_k == shares:
        assert workspace is None
        assert found.launch.pointers == ("a", "b", "c")
        assert "split_k.write" not in found.predictions.sectors
        return
    assert workspace is not None
    assert workspace.sums_bytes == tiles * split_k // shares * 128 * 128 * 4
    assert workspace.counters == tiles * shares
    sectors = found.predictions.sectors
    assert sectors["split_k.write"] == sectors["split_k.read"]
    assert sectors["split_k.write"].predicted == 128 * 128 * 4 // (32 * shares)


@pytest.mark.parametrize(
    ("split_k", "cluster", "far", "written"),
    [(32, (1, 1, 8), 7 * 8192, 8192), (8, (1, 1, 8), 7 * 8192, 0), (28, (2, 1, 4), 3 * 16384, 16384)],
)
def test_what_a_cta_shares_with_others(split_k: int, cluster: tuple[int, ...], far: int, written: int) -> None:
    """Of 64 KB of sums: what it reads from other CTAs of its cluster, and what it writes to the workspace."""
    split = planned(split_k=split_k, cluster=cluster).split_k
    assert split is not None
    assert (split.far_bytes(TILE), split.slice_bytes(TILE)) == (far, written)


@pytest.mark.parametrize(
    ("parts", "in_flight"),
    [
        ({"split_k": 28, "cluster": (2, 1, 4)}, 7),
        ({"split_k": 24, "cluster": (1, 1, 4)}, 6),
        ({"split_k": 32, "cluster": (1, 1, 2)}, 16),
        ({"split_k": 8, "cluster": (1, 1, 8)}, 1),
        ({"split_k": 28, "reduction": None}, 28),
        ({"split_k": 2, "reduction": None}, 2),
    ],
)
def test_a_shares_slices_are_loaded_together(parts: dict[str, Any], in_flight: int) -> None:
    """A thread has 64 sums of a tile, of which it adds a part: all slices of that are on their way at once."""
    split = planned(**parts).split_k
    assert split is not None
    assert split.in_flight == in_flight


def test_sums_are_written_and_read_once() -> None:
    found = planned().predictions.wavefronts
    assert found["cluster.write"] == found["cluster.read"]
    assert found["cluster.write"].predicted == 128 * 128 * 4 // 128
    assert "cluster.read" not in planned(reduction="workspace").predictions.wavefronts


def test_stages_are_left_for_the_sums() -> None:
    """256 x 128 sums are 128 KB, a stage is 48."""
    with pytest.raises(SpecError, match=r"3 or more: the stages hold a tile's sums while a cluster adds them"):
        planned(cta=(256, 128, 64), stages=2)
    assert planned(cta=(256, 128, 64), stages=3).stages == 3
    assert planned(cta=(256, 128, 64), stages=2, reduction="workspace").stages == 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"split_k": 5}, '"cluster" with 5 slices of K; 2: 5 slices are not a multiple of 2'),
        ({"cta": (64, 8, 64)}, "less than a sector of a row of C in 1/2 of what a warpgroup multiplies"),
        ({"cluster": (8, 1)}, "16 CTAs, of at most 8"),
        ({"cluster": (1, 1, 8), "split_k": 12}, r"expected a divisor of 12 along K; schedule.split_k = 16"),
        ({"cluster": (1, 1, 2), "split_k": None}, "schedule.split_k makes the slices"),
        ({"cluster": (1, 1, 2), "reduction": "workspace"}, 'found 1x1x2 with reduction = "workspace"'),
        ({"cluster": (2, 1, 1)}, 'if and only if reduction = "cluster"'),
        (
            {"cluster": (1, 2)},
            r"apart from tiles along M, the CTAs of a cluster are slices of K; schedule.cluster = \[2, 1\]",
        ),
        ({"cluster": (1, 1, 8), "cta": (64, 32, 64)}, "8 along K, and 4 columns of 64 x 8 sums in a warpgroup"),
        ({"consumers": "pingpong"}, "count its slices together"),
    ],
)
def test_what_cannot_be_is_refused(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        planned(**parts)


@pytest.mark.parametrize("slices", [4, 1, None])
def test_other_families_have_no_clusters(slices: int | None) -> None:
    """Also where no slices are there to add: nothing but a problem would make some."""
    open_family = GemmSpec(problem=spec("x").problem, schedule=Schedule(split_k=slices, reduction="cluster"))
    with pytest.raises(SpecError, match=r'"cluster" in a family without clusters.*family = "sm90" has clusters'):
        plan(replace(open_family, family="sm80"), "sm_90")
    assert plan(open_family, "sm_90").family == "sm90"


@pytest.mark.parametrize("problem", [(256, 256, 65536), (64, 4096, 4096)])
def test_where_no_cluster_adds_slices_a_problem_has_the_best_tile_of_whole_k(problem: tuple[int, int, int]) -> None:
    """Slices are refused there, and with those of a tile the tile itself was passed over."""
    row = Operand("f16", "k")
    asked = GemmSpec(problem=Problem(a=row, b=row, c=Operand("f16", "n")))
    clustered, whole = (
        plan(replace(asked, schedule=schedule), "sm_80", problem)
        for schedule in (Schedule(reduction="cluster"), Schedule(split_k=1))
    )
    assert isinstance(clustered, GemmPlan)
    assert isinstance(whole, GemmPlan)
    assert (clustered.cta_tile, clustered.stages, clustered.split_k) == (whole.cta_tile, whole.stages, None)
    again = plan(settled_spec(clustered), "sm_80")
    assert isinstance(again, GemmPlan)
    assert (again.cta_tile, again.split_k) == (whole.cta_tile, None)


def of_launch(**fields: object) -> Callable[[GemmPlan], GemmPlan]:
    return lambda found: replace(found, launch=replace(found.launch, **fields))  # type: ignore[arg-type]


def fewer_bytes(found: GemmPlan) -> GemmPlan:
    assert found.launch.split is not None
    return of_launch(split=replace(found.launch.split, bytes_per_slice=4096))(found)


def parts_of_fewer_ctas(found: GemmPlan) -> GemmPlan:
    assert found.epilogue.parts is not None
    return replace(found, epilogue=replace(found.epilogue, parts=replace(found.epilogue.parts, ctas=4)))


def other_slices(found: GemmPlan) -> GemmPlan:
    assert found.split_k is not None
    return replace(found, scheduler=replace(found.scheduler, split_k=replace(found.split_k, clustered=4)))


def wider_sums(found: GemmPlan) -> GemmPlan:
    """Sums of which only those of half a tile have room in the stages."""
    stages_bytes = sum(x.smem.bytes for x in found.operands)
    regions = (replace(x, bytes=2 * stages_bytes) if x.name == SLICES else x for x in found.memory.regions)
    return replace(found, memory=replace(found.memory, regions=tuple(regions)))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (of_launch(cluster=(1, 4)), "a launch would not provide one counter per share"),
        (fewer_bytes, "a launch would provide a workspace of another size"),
        (parts_of_fewer_ctas, "would not store the parts of C that they add"),
        (other_slices, "split-K has slices that no cluster adds"),
        (wider_sums, "the shared memory of slices overlaps that of barriers"),
    ],
)
def test_a_spoiled_plan_is_not_proved(spoil: Callable[[GemmPlan], GemmPlan], said: str) -> None:
    found = planned(stages=2)
    prove(found)
    with pytest.raises(ProofError, match=said):
        prove(spoil(found))


def test_kernels_without_the_key_say_nothing_of_it() -> None:
    found = plan(load_spec("sm90_hgemm_tn"), "sm_90")
    assert isinstance(found, GemmPlan)
    assert (found.mma.cluster, found.split_k) == ((1, 1, 1), None)
