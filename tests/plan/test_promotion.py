"""When sums of 8-bit floats are promoted: where they lose digits, in whole k-tiles, with registers for both sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.plan.kernel.accumulator import PROMOTED_TILES, Promotion
from cutegen.plan.mma.wgmma import choose_promotion
from cutegen.spec import GemmSpec, Mma, Operand, Tile
from tests.plan.specs import promoted_k
from tests.run.wgmma import spec


def of(dtype: str, asked: int | None = None, k: int = 64, accumulator: str | None = None) -> GemmSpec:
    made = spec("promoted", dtype=dtype, accumulator=accumulator, cta=(128, 64, k))
    return replace(made, mma=Mma(promote_k=asked))


@pytest.mark.parametrize(
    ("dtype", "k", "promoted"),
    [("e4m3", 64, 128), ("e5m2", 128, 128), ("e4m3", 96, 96), ("e4m3", 256, 256), ("s8", 64, 0), ("f16", 64, 0)],
)
def test_every_128_of_k_in_whole_k_tiles(dtype: str, k: int, promoted: int) -> None:
    found = plan(of(dtype, k=k), "sm_90")
    assert promoted_k(found) == promoted
    assert ("mma.promote_k" in {decision.key for decision in found.decisions}) is (promoted > 0)


@pytest.mark.parametrize(("k", "promoted"), [(32, 128), (64, 128), (96, 96), (128, 128), (160, 160), (256, 256)])
def test_whole_k_tiles_within_128_of_k_or_one(k: int, promoted: int) -> None:
    chosen = choose_promotion(of("e4m3", k=k), (128, 64, k))
    assert chosen is not None
    assert (chosen.value, chosen.decision.chosen) == (promoted, str(promoted))


@pytest.mark.parametrize("asked", [0, 64, 192])
def test_as_the_spec_asks(asked: int) -> None:
    assert promoted_k(plan(of("e4m3", asked), "sm_90")) == asked


def test_not_where_sums_are_f16() -> None:
    assert promoted_k(plan(of("e4m3", accumulator="f16"), "sm_90")) == 0


def test_not_where_the_atom_says_that_sums_are_f16() -> None:
    atom = "SM90_64x64x32_F16E4M3E4M3_SS_TN"
    found = plan(replace(of("e4m3"), mma=Mma(atom=atom)), "sm_90")
    assert (found.atom.name, promoted_k(found)) == (atom, 0)
    with pytest.raises(SpecError, match="128 with e4m3 operands and f16 sums"):
        plan(replace(of("e4m3"), mma=Mma(atom=atom, promote_k=128)), "sm_90")


def test_sums_and_promoted_sums_have_registers_both() -> None:
    """128x128 for two warpgroups: 64 registers a thread, twice. 128x256 would be all 256."""
    open_tile = replace(of("e4m3"), tile=Tile(), mma=Mma())
    assert plan(open_tile, "sm_90").cta_tile[:2] == (128, 128)
    with pytest.raises(SpecError, match="256 registers per thread for sums"):
        plan(replace(open_tile, tile=Tile(cta=(128, 256, 128))), "sm_90")
    never = replace(open_tile, tile=Tile(cta=(128, 256, 128)), mma=Mma(promote_k=0))
    assert promoted_k(plan(never, "sm_90")) == 0


@pytest.mark.parametrize(
    ("dtype", "asked", "said"),
    [
        ("e4m3", 96, "expected a multiple of 64"),
        ("s8", 128, "with s8 operands and s32 sums; expected 8-bit floats and f32 sums"),
        ("f16", 64, "expected 8-bit floats and f32 sums"),
    ],
)
def test_what_cannot_be_is_refused(dtype: str, asked: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plan(of(dtype, asked), "sm_90")


def test_other_families_do_not_promote() -> None:
    with pytest.raises(SpecError, match="its sums stay in the accumulators"):
        plan(replace(of("e4m3", 128), family="sm120"), "sm_90")


@pytest.mark.parametrize(
    ("parts", "chosen", "staggered"),
    [
        ({"cta": (128, 64, 128)}, "two sets in turn, the second warpgroup one k-tile later", True),
        ({"cta": (64, 64, 128)}, "two sets in turn", False),
        ({"cta": (64, 64, 128), "consumers": "pingpong"}, "two sets in turn", False),
        ({"cta": (192, 64, 128), "groups": (3, 1, 1)}, "two sets in turn", False),
        ({"cta": (192, 128, 128), "groups": (3, 1, 1)}, "one set", False),
        ({"cta": (128, 64, 64)}, "one set", False),
    ],
)
def test_how_promoted_sums_are_held_is_said(parts: dict[str, Any], chosen: str, staggered: bool) -> None:
    found = plan(spec("promoted", dtype="e4m3", c=Operand("f16", "n"), **parts), "sm_90")
    (decision,) = (x for x in found.decisions if x.key == "schedule.promoted_sums")
    assert decision.chosen == chosen
    promotion = found.mma.accumulator.promotion
    assert promotion is not None
    sets, turn = (2, PROMOTED_TILES) if "two sets" in chosen else (1, 1)
    assert promotion == Promotion(promotion.k, sets, staggered, k_tiles_per_turn=turn)
    assert decision.rejected


def test_sums_that_are_not_promoted_say_nothing() -> None:
    assert "schedule.promoted_sums" not in {x.key for x in plan(of("s8"), "sm_90").decisions}
    assert "schedule.promoted_sums" not in {x.key for x in plan(of("e4m3", 0), "sm_90").decisions}
