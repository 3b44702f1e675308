"""The search of family sm100 beside tiles: slices of K, tiles that others take over, and sizes of groups."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import TARGETS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search.tensor_memory import MOST_SLICES, WORTH_A_CLUSTER, estimated
from cutegen.plan.values.decision import Decision
from cutegen.spec import Grouped, Mma, Schedule, Tile
from cutegen.spec.parts import Paired
from tests.plan.specs import gemm

OPEN = replace(gemm("kkn", "bf16"), family="sm100")
DEEP, LARGE = (128, 128, 16384), (8192, 8192, 8192)


def _planned(shape: tuple[int, int, int] | ProblemShape, **parts: Any) -> GemmPlan:
    found = plan(replace(OPEN, **parts), "sm_100", shape)
    assert isinstance(found, GemmPlan)
    return found


def _decided(found: GemmPlan, key: str) -> Decision:
    (decision,) = (each for each in found.decisions if each.key == key)
    return decision


def test_k_is_cut_where_tiles_leave_sms_idle() -> None:
    """At most 16 tiles of 64 x 16 have 256 k-tiles each: with one slice 132 of 148 SMs would be idle."""
    found = _planned(DEEP)
    decision = _decided(found, "schedule.split_k")
    assert 1 < found.slices <= MOST_SLICES
    assert found.mma.cluster == (1, 1, 1)
    assert decision.chosen == str(found.slices)
    assert not decision.given
    assert {"1 slice", "4 slices"} <= {each.what for each in decision.rejected}
    assert "must save 15%" in decision.why
    assert found.predicted_time is not None
    whole = estimated(OPEN, TARGETS["sm_100"], ProblemShape(*DEEP), found.cta_tile)
    assert found.predicted_time.us < WORTH_A_CLUSTER * whole.us


def test_slices_leave_sums_and_wait() -> None:
    """Of 148 tiles, one for each SM, two slices take two rounds of half of the k-tiles, and more for their sums."""
    problem, tile = ProblemShape(128 * 37, 128 * 4, 4096), (128, 128, 64)
    cut = replace(OPEN, schedule=Schedule(split_k=2))
    one, two = (estimated(spec, TARGETS["sm_100"], problem, tile).us for spec in (OPEN, cut))
    assert two > one


@pytest.mark.parametrize(
    ("problem", "parts"),
    [
        (LARGE, {}),
        (DEEP, {"mma": Mma(cta_group=2)}),
        (DEEP, {"schedule": Schedule(cluster=(2, 1))}),
        (DEEP, {"epilogue": replace(OPEN.epilogue, expression="x, y -> x * y", pairs=Paired("halves", "gate"))}),
        (DEEP, {"schedule": Schedule(split_k=1)}),
    ],
)
def test_k_is_whole_where_it_must_be(problem: tuple[int, int, int], parts: dict[str, Any]) -> None:
    """Many tiles; CTAs that multiply or copy together; pairs of columns; and what a spec says."""
    assert _planned(problem, **parts).slices == 1


def test_tiles_that_could_be_taken_over_are_a_rejected_alternative() -> None:
    """No estimate says that SMs differ: the tiles of a CTA are known at launch."""
    alone = {"tile": Tile((128, 256, 64)), "mma": Mma(cta_group=1), "schedule": Schedule(cluster=(1, 1))}
    decision = _decided(_planned(LARGE, **alone), "schedule.tiles")
    assert (decision.chosen, [each.what for each in decision.rejected]) == ("static", ["dynamic"])
    assert not any(each.key == "schedule.tiles" for each in _planned(LARGE, mma=Mma(cta_group=2)).decisions)


def test_packed_groups_are_chosen_for_uneven_sizes() -> None:
    """The time is the mean over uneven distributions; the fullest SM of a hot group has most to do."""
    problem = ProblemShape(512, 512, 8192, groups=32)
    found = _planned(problem, problem=replace(OPEN.problem, groups=Grouped("k")))
    assert found.predicted_time is not None
    assert found.predicted_time.of_sizes is not None
    times = dict(found.predicted_time.of_sizes.named)
    assert found.predicted_time.us == pytest.approx(fmean(us for name, us in times.items() if not name.even))
    assert max(times.values()) > 2 * min(times.values())
