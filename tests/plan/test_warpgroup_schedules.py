"""Warpgroups that take turns, clusters, slices of K: what is asked for is planned, what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import ProofError, SpecError
from cutegen.hardware import TARGETS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.prove import prove
from cutegen.plan.search.warpgroups import space_for
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.spec import Epilogue, Operand, Schedule, Tile
from tests.plan.changed import with_path
from tests.plan.specs import gemm
from tests.run.wgmma import spec


def planned(**parts: Any) -> GemmPlan:
    found = plan(spec("scheduled", **parts), "sm_90")
    assert isinstance(found, GemmPlan)
    return found


def test_in_turns_each_of_two_warpgroups_has_a_tile() -> None:
    found = planned(cta=(128, 128, 64), consumers="pingpong")
    assert (found.tiled_mma.threads, found.threads, found.mma.role.alternates) == (128, 384, True)
    together = planned(cta=(128, 128, 64))
    assert found.epilogue.smem is not None
    assert together.epilogue.smem is not None
    assert found.epilogue.smem.bytes == together.epilogue.smem.bytes
    assert found.smem_bytes == together.smem_bytes + 16


def test_left_open_the_tile_leaves_one_warpgroup_room_for_its_sums() -> None:
    open_spec = replace(
        spec("open"), tile=replace(spec("open").tile, cta=None), schedule=Schedule(consumers="pingpong")
    )
    assert plan(open_spec, "sm_90").cta_tile == (128, 128, 64)


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (2, 2), (1, 8)])
def test_a_cta_of_a_cluster_copies_its_share_of_what_it_shares(cluster: tuple[int, int]) -> None:
    alone, found = planned(cta=(128, 128, 64)), planned(cta=(128, 128, 64), cluster=cluster)
    m, n = cluster
    assert [found.a.g2s.box, found.b.g2s.box] == [(64, 128 // n), (64, 128 // m)]
    assert found.stages == alone.stages
    assert found.launch.geometry(ProblemShape(1000, 1000, 64), multiprocessors=132).grid[:2] == (
        -(-8 // m) * -(-8 // n) * m,
        n,
    )
    sectors, before = found.predictions.sectors, alone.predictions.sectors
    assert sectors["g2s.a"].predicted * n == before["g2s.a"].predicted
    assert sectors["g2s.b"].predicted * m == before["g2s.b"].predicted


def test_slices_are_ctas_beside_each_other() -> None:
    found = planned(cta=(64, 64, 64), split_k=3)
    geometry = found.launch.geometry(ProblemShape(640, 64, 4096), multiprocessors=59)
    assert geometry.grid == (10, 3, 1)
    room_for_two = found.launch.geometry(ProblemShape(640, 64, 4096), multiprocessors=60)
    assert room_for_two.grid == (20, 3, 1), "every second leaves at once"
    workspace = found.launch.workspace(ProblemShape(640, 64, 4096))
    assert workspace is not None
    assert workspace.sums_bytes == 10 * 3 * 64 * 64 * 4


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"consumers": "pingpong", "groups": (2, 1, 1)}, "expected 1x1x1"),
        ({"consumers": "pingpong", "cta": (128, 256, 64)}, 'use a smaller tile.cta, or schedule.consumers = "coop'),
        ({"consumers": "pingpong", "cta": (256, 256, 64)}, "512 registers per thread for sums.*a smaller tile.cta$"),
        ({"consumers": "pingpong", "cta": (192, 256, 64)}, "384 registers per thread for sums.*a smaller tile.cta$"),
        ({"cluster": (8, 1), "cta": (64, 24, 32)}, "a divisor of 12: shares are multiples of 2 rows"),
        ({"cluster": (1, 2), "split_k": 2}, "apart from tiles along M, the CTAs of a cluster are slices of K"),
        ({"consumers": "pingpong", "split_k": 2}, "count its slices together"),
    ],
)
def test_what_cannot_be_is_refused(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        planned(**parts)


def test_a_share_that_begins_where_no_box_may_is_noticed() -> None:
    """Of 24 rows of 64 bytes, four CTAs have 6 each, whose boxes begin at multiples of 128; eight would have 3."""
    right = planned(cta=(64, 24, 32), cluster=(4, 1))
    prove(right)
    copy = right.b.g2s
    assert isinstance(copy, BulkTensorCopy)
    assert (copy.box, copy.shares) == ((32, 6), 4)
    spoiled = replace(copy, box=(32, 3), shares=8)
    with pytest.raises(ProofError, match=r"g2s\.b begins at an address where no box may begin"):
        prove(with_path(right, "b", g2s=spoiled))


@pytest.mark.parametrize("slices", [2, 1, None])
def test_atomics_are_another_familys(slices: int | None) -> None:
    """Also where no slices are there to add; an open family becomes one that adds so."""
    asked = gemm(c_dtype="f32", epilogue=Epilogue(smem=False), schedule=Schedule(split_k=slices, reduction="atomics"))
    with pytest.raises(SpecError, match=r'"atomics" in family "sm90".*bulk tensor stores do not add to C'):
        plan(replace(asked, family="sm90"), "sm_90")
    assert plan(replace(asked, family=None), "sm_90").family == "sm80"


@pytest.mark.parametrize("slices", [None, 8])
def test_for_a_problem_atomics_are_no_workspace(slices: int | None) -> None:
    asked = gemm(c_dtype="f32", epilogue=Epilogue(smem=False), schedule=Schedule(split_k=slices, reduction="atomics"))
    found = plan(replace(asked, family=None), "sm_90", (256, 256, 65536))
    assert isinstance(found, GemmPlan)
    assert found.split_k is not None
    assert found.split_k.atomics
    whole = replace(asked, family="sm90")
    if slices is None:
        alone = plan(whole, "sm_90", (256, 256, 65536))
        assert isinstance(alone, GemmPlan)
        assert alone.split_k is None
    else:
        with pytest.raises(SpecError, match="bulk tensor stores do not add to C"):
            plan(whole, "sm_90", (256, 256, 65536))


@pytest.mark.parametrize("key", [{"consumers": "pingpong"}, {"cluster": (2, 1)}])
def test_other_families_have_no_such_key(key: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="expected no such key in this family"):
        plan(replace(spec("other"), family="sm120", schedule=Schedule(**key)), "sm_90")


def test_registers_go_to_c_as_wide_as_it_is_aligned() -> None:
    """A thread has two columns side by side, which one store takes where it may."""
    wide, narrow = (planned(dtype="u8", c=Operand("u8", "n", align), cta=(128, 32, 64)) for align in (2, 1))
    stored, apart = (found.predictions.sectors["epilogue"].predicted for found in (wide, narrow))
    assert (stored, apart) == (128 * 32 // 8, 2 * 128 * 32 // 8)


OPEN = replace(gemm(), family="sm90")


def searched(problem: tuple[int, int, int], tile: Tile | None = None, **schedule: Any) -> GemmPlan:
    found = plan(replace(OPEN, tile=tile or Tile(), schedule=Schedule(**schedule)), "sm_90", problem)
    assert isinstance(found, GemmPlan)
    return found


@pytest.mark.parametrize(
    ("problem", "asked"),
    [
        ((7040, 4800, 256), {}),
        ((2304, 1344, 3200), {}),
        ((4784, 4856, 2048), {"swap": True}),
        ((384, 8192, 256), {"swap": True, "cluster": (2, 1)}),
    ],
)
def test_a_given_tile_gets_the_schedule_that_it_has_where_it_is_chosen(
    problem: tuple[int, int, int], asked: dict[str, Any]
) -> None:
    left_open = searched(problem, **asked)
    given = searched(problem, Tile(cta=left_open.cta_tile), **asked)
    assert left_open.swapped == ("swap" in asked)
    assert (given.mma.role.alternates, given.mma.cluster) == (left_open.mma.role.alternates, left_open.mma.cluster)


def test_a_given_tile_that_was_measured_in_clusters_alone_is_not_always_in_one() -> None:
    """64 rows are one tile of 64x256: half of the CTAs of clusters of two along M would have none."""
    assert searched((64, 4096, 4096), Tile(cta=(64, 256, 64))).mma.cluster == (1, 1, 1)


def test_tuning_of_a_given_tile_compares_clusters_and_slices_that_were_not_measured() -> None:
    asked = replace(OPEN, tile=Tile(cta=(128, 112, 64)))
    found = [each.spec.schedule for each in space_for(asked, TARGETS["sm_90"], ProblemShape(512, 512, 4096))]
    assert {each.cluster for each in found} >= {(1, 1), (2, 1), (1, 2), (1, 1, 2)}
    assert {each.split_k for each in found} >= {1, 2, 4, 8}


@pytest.mark.parametrize(
    "asked",
    [
        {"split_k": 8, "cluster": (1, 1, 4)},
        {"split_k": 4, "cluster": (4, 1, 2)},
        {"split_k": 16, "reduction": "cluster"},
        {"split_k": 6, "reduction": "cluster"},
    ],
)
def test_slices_and_clusters_that_were_not_measured_together_still_get_a_tile_for_the_problem(
    asked: dict[str, Any],
) -> None:
    """Without candidates the plan was that of no problem: 128x256, for 32 rows."""
    found = searched((32, 1024, 16384), **asked)
    assert found.split_k is not None
    assert found.split_k.slices == asked["split_k"]
    assert found.mma.cluster[2] > 1
    assert found.mma.cluster == asked.get("cluster", found.mma.cluster)
    assert found.cta_tile[0] * found.cta_tile[1] <= 64 * 128


def test_an_n_major_operand_in_narrow_spans_counts_whatever_the_cluster() -> None:
    """With 112 columns B is swizzled in spans of 32 bytes, which takes up to 1.7 times as long."""
    asked = replace(gemm("knn"), family="sm90", schedule=Schedule(cluster=(1, 8)))
    found = plan(asked, "sm_90", (576, 4360, 1256))
    assert found.cta_tile[1] % 32 == 0


def test_each_rejected_number_of_slices_is_named_once() -> None:
    found = searched((512, 512, 8192))
    (decision,) = (each for each in found.decisions if each.key == "schedule.split_k")
    names = [each.what for each in decision.rejected]
    assert len(names) == len(set(names)) > 1
