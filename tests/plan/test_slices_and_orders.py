"""Slices of K and the order of tiles: what the rules choose, and what they say of the rest."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cutegen.contract.problem import MAX_EXTENT, ProblemShape
from cutegen.errors import ProofError, SpecError
from cutegen.plan import plan
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.prove import prove
from cutegen.plan.schedule import order
from cutegen.plan.schedule.order import _Cache
from cutegen.spec import (
    Epilogue,
    Raster,
    Schedule,
    Tile,
    load_spec,
)
from tests.plan.said import decision, decisions, open_plan, planned, refusal
from tests.plan.specs import fma_spec, gemm

TILE = Tile(cta=(128, 128, 64))


def test_slices_that_are_not_taken_are_told_with_their_times() -> None:
    found = decisions(planned("for a problem"))["schedule.split_k"]
    told = [int(rejected.what.split()[0]) for rejected in found.rejected]
    assert int(found.chosen) > 1
    assert sorted([*told, int(found.chosen)]) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert all(rejected.why.endswith(" us predicted") for rejected in found.rejected)


def test_orders_that_are_rejected_read_more() -> None:
    found = decisions(planned("many tiles"))["schedule.raster"]
    arithmetic = re.search(r"([\d,.]+) MB from device memory in total", found.for_problem)
    assert arithmetic is not None
    read = float(arithmetic[1].replace(",", ""))
    for rejected in found.rejected:
        assert float(rejected.why.split()[0].replace(",", "")) >= read


@pytest.mark.parametrize("slices", [None, 1])
@pytest.mark.parametrize(("family", "reduction"), [("sm80", "workspace"), ("sm90", "workspace"), ("sm90", "cluster")])
def test_how_slices_would_be_added_is_said_to_be_without_use(family: str, reduction: str, slices: int | None) -> None:
    asked = replace(gemm(schedule=Schedule(split_k=slices, reduction=reduction)), family=family)
    found = decisions(plan(asked, "sm_90"))["schedule.reduction"]
    assert (found.chosen, found.given) == (reduction, True)
    assert "K is not split, so there are no slices to add" in found.why
    sliced = replace(asked, schedule=replace(asked.schedule, split_k=4))
    assert "schedule.reduction" not in decisions(plan(sliced, "sm_90"))


def test_sums_added_by_atomics_are_given() -> None:
    spec = gemm(c_dtype="f32", epilogue=Epilogue(smem=False), schedule=Schedule(split_k=4, reduction="atomics"))
    found = decisions(plan(spec, "sm_80"))["schedule.split_k"]
    assert (found.chosen, found.given) == ("4, by atomics", True)


def test_a_slice_leaves_the_whole_tile() -> None:
    split = plan(gemm(tile=Tile(cta=(128, 64, 32)), schedule=Schedule(split_k=4)), "sm_80").split_k
    assert isinstance(split, SplitK)
    assert split.slice_bytes((128, 64, 32)) == 128 * 64 * 4


def test_slices_in_flight_divide_the_slices() -> None:
    found = plan(gemm(schedule=Schedule(split_k=6)), "sm_80")
    assert found.split_k is not None
    prove(found)
    with pytest.raises(ProofError, match="split-K loads slices that do not exist"):
        prove(replace(found, scheduler=replace(found.scheduler, split_k=replace(found.split_k, in_flight=4))))


def test_slices_go_through_the_tiles_once_each() -> None:
    found = plan(gemm(schedule=Schedule(split_k=4)), "sm_80")
    shape = ProblemShape(1024, 1024, 4096, 3)
    one, four = (
        order.tiles_in_flight(shape, found.target, found.mma, found.operands, found.predictions.occupancy, split)
        for split in (None, found.split_k)
    )
    assert one is not None
    assert four is not None
    assert (one.passes, four.passes) == (3, 12)
    assert one.grid.bytes_a == 4 * four.grid.bytes_a == found.a.tile[0] * 4096 * 2


def test_bands_are_8_tiles_wide_where_nothing_is_said() -> None:
    assert plan(gemm(tile=Tile(cta=(64, 64, 32))), "sm_80").scheduler.order.group == 8


def test_each_schedule_launches_as_many_ctas_as_it_says() -> None:
    assert planned("sm120").launch.ctas_per_multiprocessor == 1
    assert open_plan().launch.ctas_per_multiprocessor is None
    with pytest.raises(SpecError, match=r"schedule.split_k: found 2; expected 1: "):
        plan(fma_spec(align=4, schedule=Schedule(split_k=2)), "sm_80")


@pytest.mark.parametrize(("extent", "at_once"), [(256, True), (8192, False)])
def test_whether_all_tiles_are_in_flight_is_said(extent: int, *, at_once: bool) -> None:
    found = plan(gemm(tile=TILE), "sm_80", ProblemShape(extent, extent, 256))
    said = decision(found, "schedule.raster").for_problem
    assert said is not None
    assert ("all are in flight at once" in said) == at_once


def test_a_cache_that_is_just_full_keeps_everything() -> None:
    cache = _Cache(100, np.array([60, 40, 1]))
    assert cache.read(np.array([0, 1])) == 100
    assert cache.read(np.array([0])) == 0
    assert cache.read(np.array([1])) == 0
    assert cache.read(np.array([2])) == 1
    assert cache.read(np.array([1])) == 0, "of the two older ones the row used last is kept"


def test_split_sums_are_whole_sectors() -> None:
    """16,384 bytes of sums a tile and slice are 512 sectors of 32 bytes."""
    found = plan(load_spec("sm80_split_k_tn"), "sm_80").predictions.sectors
    assert {key: (found[key].ideal, found[key].predicted) for key in ("split_k.write", "split_k.read")} == {
        "split_k.write": (512, 512),
        "split_k.read": (512, 512),
    }
    atomics = gemm(tile=TILE, c_dtype="f32", schedule=Schedule(split_k=4, reduction="atomics"))
    atomics = replace(atomics, epilogue=Epilogue(smem=False))
    assert not [key for key in plan(atomics, "sm_80").predictions.sectors if key.startswith("split_k")]


def test_atomics_add_to_sums_only() -> None:
    assert "f16" in refusal(gemm(tile=TILE, schedule=Schedule(split_k=4, reduction="atomics")))


def test_a_block_is_a_row_of_threads_and_counting_stays_within_int32() -> None:
    assert plan(gemm(tile=TILE), "sm_80").launch.geometry(ProblemShape(128, 128, 64)).block == (128, 1, 1)
    assert MAX_EXTENT + 2**13 * 2**3 <= 2**31 - 1 < MAX_EXTENT + 2**17


def test_slices_that_are_not_chosen_are_all_named() -> None:
    """With K = 65,536 and four tiles, fewer and more slices than the chosen ones are compared."""
    found = plan(gemm(), "sm_90", ProblemShape(256, 256, 65536))
    chosen = decision(found, "schedule.split_k")
    others = sorted(int(one.what.split()[0]) for one in chosen.rejected)
    assert int(chosen.chosen) not in others
    assert min(others) < int(chosen.chosen) < max(others)
    assert found.split_k is not None
    assert found.split_k.slices == int(chosen.chosen)
    assert decision(found, "tile.stages").chosen == str(found.stages)
    assert np.prod(found.tiled_mma.atom_layout.shape) * 32 == found.threads


def test_raster_says_what_its_group_does() -> None:
    def why(raster: Raster) -> str:
        decision = plan(gemm(schedule=Schedule(raster)), "sm_80").decisions[-1]
        return f"{decision.chosen} ({decision.why})"

    assert "one tile after the other along m" in why(Raster("n", 1))
    assert "share their rows of B" in why(Raster("n", 1))
    assert "share their rows of A" in why(Raster("m", 1))
    assert "bands of 8 tiles along n" in why(Raster())
    assert "reversed" in why(Raster(zigzag=True))
