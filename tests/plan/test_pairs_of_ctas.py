"""Pairs of CTAs and clusters in family sm100: when the plan takes them, with its reasons, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import TARGETS
from cutegen.hardware.tcgen05 import N_OF_CTAS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search.tensor_memory import COLUMNS, WORTH_A_CLUSTER, estimated
from cutegen.plan.values.decision import Decision
from cutegen.spec import Factors, GemmSpec, Mma, Schedule, Tile
from tests.plan.specs import gemm

OPEN = replace(gemm("kkn", "bf16"), family="sm100")
LARGE, SMALL = (8192, 8192, 8192), (300, 300, 4096)


def planned(problem: tuple[int, int, int] | None = None, **parts: Any) -> GemmPlan:
    found = plan(replace(OPEN, **parts), "sm_100", problem)
    assert isinstance(found, GemmPlan)
    return found


def decided(found: GemmPlan, key: str) -> Decision:
    (decision,) = (each for each in found.decisions if each.key == key)
    return decision


@pytest.mark.parametrize(("problem", "ctas"), [(LARGE, 2), (SMALL, 1), (None, 1)])
def test_the_estimate_chooses_pairs_where_copies_would_limit_one_cta(
    problem: tuple[int, int, int] | None, ctas: int
) -> None:
    """One CTA copies 48 KiB of a k-tile of 128 x 256, 768 cycles at 64 bytes, and multiplies 512; a pair copies 32."""
    found = planned(problem)
    decision = decided(found, "mma.cta_group")
    assert found.atom.ctas == ctas
    assert found.mma.cluster[0] % ctas == 0
    assert not decision.given
    assert [each.what for each in decision.rejected] == ["1 CTA" if ctas == 2 else "a pair"]
    if problem is not None:
        assert "estimated" in decision.for_problem
        assert "nothing was measured" in decision.why


def scaled(element: str, factors: Factors) -> GemmSpec:
    problem = gemm("kkn", element, c_dtype="bf16").problem
    return replace(OPEN, problem=replace(problem, scale_a=factors, scale_b=factors))


@pytest.mark.parametrize(("element", "factors"), [("e4m3", ("ue8m0", 32)), ("e2m1x2", ("ue4m3", 16))])
def test_the_search_chooses_pairs_for_scaled_products(element: str, factors: tuple[str, int]) -> None:
    """Of tiles that leave columns for four stages of factors: 192 columns of 8 bits, and 128 of 4, which have more."""
    dtype, of_k = factors
    found = plan(scaled(element, Factors((1, of_k), dtype)), "sm_100", LARGE)
    assert isinstance(found, GemmPlan)
    assert found.atom.ctas == 2
    assert found.cta_tile[1] <= (192 if element == "e4m3" else 128)
    assert found.stages >= 4
    decision = decided(found, "mma.cta_group")
    assert not decision.given
    assert [each.what for each in decision.rejected] == ["1 CTA"]
    tiles = [each.what for each in decided(found, "tile.cta").rejected]
    assert tiles
    assert not any(each.startswith("128x256") for each in tiles)


@pytest.mark.parametrize(
    ("parts", "ctas"),
    [
        ({"mma": Mma(cta_group=1)}, 1),
        ({"schedule": Schedule(cluster=(1, 2))}, 1),
        ({"mma": Mma(cta_group=2), "schedule": Schedule(cluster=(2, 2))}, 2),
        ({"mma": Mma(atom="SM100_256x128x16_F32BF16BF16_2x1SM_SS"), "tile": Tile((128, 128, 64))}, 2),
        ({"mma": Mma(atom="SM100_64x128x16_F32BF16BF16_SS"), "tile": Tile((64, 128, 64))}, 1),
    ],
)
def test_what_a_spec_gives_is_kept(parts: dict[str, Any], ctas: int) -> None:
    for problem in (None, LARGE):
        found = planned(problem, **parts)
        assert found.atom.ctas == ctas
        if "schedule" in parts:
            assert found.mma.cluster[:2] == parts["schedule"].cluster


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an odd cluster": (
        {"mma": Mma(cta_group=2), "schedule": Schedule(cluster=(1, 2))},
        r"schedule.cluster: found 1x2 with mma.cta_group = 2; expected an even number along M.*\[2, 2\]",
    ),
    "slices of K": ({"schedule": Schedule(cluster=(2, 1, 2))}, "schedule.cluster: found 2x1x2; expected 1 along K"),
    "columns that no pair has": (
        {"mma": Mma(cta_group=2), "tile": Tile((128, 48, 64))},
        "tile.cta: found 128x48x64; expected .* a multiple of 32 up to 256, of which each CTA of a pair has half",
    ),
    "rows that no CTA has": ({"tile": Tile((96, 64, 64))}, "tile.cta: found 96x64x64; expected M = 128.*half of them"),
    "half of the rows with factors": (
        {"mma": Mma(cta_group=2), "tile": Tile((64, 64, 128))},
        "tile.cta: found 64x64x128; expected M = 128.*32 up to 256.*; an atom of factors has those of 128 rows",
    ),
    "another family": (
        {"family": "sm120", "mma": Mma(cta_group=2)},
        "mma.cta_group: .* no instruction is for two CTAs",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str) -> None:
    parts, says = REFUSED[what]
    asked = scaled("e4m3", Factors((1, 32), "ue8m0")) if "factors" in what else OPEN
    with pytest.raises(SpecError, match=says):
        plan(replace(asked, **parts), "sm_100")


@pytest.mark.parametrize("problem", [(16, 4096, 4096), (256, 4096, 14336), (4096, 4096, 4096)])
def test_a_cluster_is_chosen_where_shared_copies_save_enough(problem: tuple[int, int, int]) -> None:
    """Of all tiles alone, straight and exchanged, the best time is computed here anew."""
    found, target, shape = planned(problem), TARGETS["sm_100"], ProblemShape(*problem)
    alone = [
        estimated(OPEN, target, each, (rows, columns, 64), ctas).us
        for each in (shape, ProblemShape(shape.n, shape.m, shape.k))
        for rows in (64, 128)
        for columns in COLUMNS
        for ctas in (1, 2)
        if columns in N_OF_CTAS[ctas]
    ]
    decision = decided(found, "schedule.cluster")
    assert found.predicted_time is not None
    if found.mma.cluster == (found.atom.ctas, 1, 1):
        assert found.predicted_time.us == pytest.approx(min(alone))
        return
    assert problem != (4096, 4096, 4096)
    assert found.predicted_time.us <= WORTH_A_CLUSTER * min(alone)
    assert "must save 15%" in decision.why
    assert {each.what for each in decision.rejected} >= {f"{found.atom.ctas}x1"}
    assert not decision.given


def test_few_rows_have_tiles_of_half_the_lanes() -> None:
    """With 16 rows half of a tile of 64 is idle, of one of 128 seven eighths: fewer bytes are copied for A."""
    assert planned((16, 4096, 4096)).cta_tile[0] == 64
    assert planned((4096, 4096, 4096)).cta_tile[0] == 128
