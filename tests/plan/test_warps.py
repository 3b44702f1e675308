"""Warps and atoms: how a tile is shared out among the threads that multiply, each rule by examples by hand."""

from __future__ import annotations

from typing import Any

import pytest

from cutegen.errors import SpecError
from cutegen.hardware import target
from cutegen.plan import plan
from cutegen.plan.search import bulk, cp_async
from cutegen.spec import (
    Mma,
    Tile,
)
from tests.plan.said import decision, decisions, open_plan, planned, refusal, rejected
from tests.plan.specs import fma_spec, gemm

TILE = Tile(cta=(128, 128, 64))


@pytest.mark.parametrize("search", [bulk, cp_async])
def test_every_tile_of_the_search_is_shared_out_by_whole_warps(search: Any) -> None:
    """A warp multiplies 16 rows of M and 8 of N; no two share a result, so none lie along K."""
    found = [*search._rows(gemm(), target("sm_90"))]
    rows = {(row.cta, row.atom_layout): row.stages for row in found}
    assert len(rows) == len(found)
    for ((m, n, k), (wm, wn, wk)), depth in rows.items():
        assert (m % (16 * wm), n % (8 * wn), k % 32, wk) == (0, 0, 0, 1)
        assert wm * wn >= min(4, (m // 16) * (n // 16))
        mirrored = rows.get(((n, m, k), (wn, wm, wk)))
        assert mirrored in (None, depth)
    assert {layout for ((m, n, _), layout) in rows if m == n > 16} <= {(2, 2, 1), (2, 4, 1)}


@pytest.mark.parametrize(
    ("cta", "warps"), [((192, 128, 32), 8), ((128, 128, 32), 4), ((256, 64, 32), 4), ((16, 128, 64), 4)]
)
def test_warps_have_registers_for_their_sums(cta: tuple[int, int, int], warps: int) -> None:
    """128 x 128 sums are 128 registers for each thread of four warps; 192 x 128 would be 192."""
    found = plan(gemm(tile=Tile(cta=cta)), "sm_80")
    assert found.threads == 32 * warps
    layout = decisions(found)["mma.atom_layout"]
    wm, wn, _ = map(int, layout.chosen.split("x"))
    assert f"{cta[0] * wn + cta[1] * wm} fragment rows" in layout.why
    for option in (layout.chosen, *(other.what for other in layout.rejected)):
        wm, wn, _ = map(int, option.split("x"))
        assert (cta[0] % (16 * wm), cta[1] % (8 * wn)) == (0, 0)


@pytest.mark.parametrize(("m", "layout"), [(96, (4, 1, 1)), (64, (8, 1, 1))])
def test_warps_divide_the_tile(m: int, layout: tuple[int, int, int]) -> None:
    with pytest.raises(SpecError, match=rf"mma.atom_layout: found .* = {layout[0] * 16} along M; expected a divisor"):
        plan(gemm(tile=Tile(cta=(m, 64, 32)), mma=Mma(atom_layout=layout)), "sm_80")


def test_a_short_atom_is_repeated_to_two_rows_of_ldmatrix() -> None:
    assert planned("8 deep").tiled_mma.tile_mnk[2] == 16
    assert plan(gemm(tile=Tile(cta=(64, 64, 16))), "sm_80").mma.k_blocks == 2


def test_who_multiplies_is_a_warp_or_a_thread() -> None:
    assert [plan(fma_spec(align=4), "sm_80").atoms_are, open_plan().atoms_are] == ["threads", "warps"]


def test_warps_of_a_tile_of_128_by_128() -> None:
    """A warp's sums are 128 x 128 / 32 / warps registers a thread; a row is read once for each warp across."""
    found = rejected(plan(gemm(tile=TILE), "sm_80"), "mma.atom_layout")
    assert found["4x1x1"] == found["1x4x1"] == "640 fragment rows read per k-tile"
    assert found["4x2x1"] == found["2x4x1"] == found["8x1x1"] == "8 warps, but 4 suffice"
    assert found["4x4x1"] == "16 warps, but 4 suffice"
    assert found["1x1x1"].startswith("512 registers per thread for sums, more than")
    assert found["2x1x1"].startswith("256 registers per thread for sums, more than")
    assert found["1x2x1"] == found["2x1x1"]


def test_few_warps_leave_schedulers_idle() -> None:
    """64 x 64 over two warps are 64 registers a thread: enough, but two of four schedulers."""
    found = rejected(plan(gemm(tile=Tile(cta=(64, 64, 64))), "sm_80"), "mma.atom_layout")
    assert found["2x1x1"] == found["1x2x1"] == "only 2 of the 4 schedulers would have a warp"


def test_sums_that_would_spill_are_refused_with_the_threads_that_there_are() -> None:
    """256 x 256 over 1 x 2 warps of 32: 1,024 registers a thread, of 255."""
    said = refusal(gemm(tile=Tile(cta=(256, 256, 64)), mma=Mma(atom_layout=(1, 2, 1))))
    assert "1,024 registers per thread for sums" in said
    assert "the registers of each of 64 threads on sm_80" in said
    assert "use more warps, or a smaller tile.cta" in said


def test_atoms_that_are_not_chosen_say_why() -> None:
    found = plan(gemm(tile=TILE), "sm_80")
    assert rejected(found, "mma.atom") == {
        "SM80_16x8x8_F32F16F16F32_TN": "2,048 operations per instruction against 4,096"
    }
    short = plan(gemm(tile=Tile(cta=(128, 128, 16))), "sm_80")
    assert short.atom.name == "SM80_16x8x8_F32F16F16F32_TN"
    (why,) = rejected(short, "mma.atom").values()
    assert why == "a k-tile of 16 does not hold two or more k-blocks of 16"


def test_tf32_of_other_operands_is_refused_with_a_way_out() -> None:
    said = refusal(gemm(mma=Mma(tf32="nearest")))
    assert '"nearest" with f16 operands' in said
    assert "leave mma.tf32 out" in said


@pytest.mark.parametrize(("k", "block"), [(64, 16), (32, 16), (16, 8), (24, 8)])
def test_the_k_block_is_two_rows_of_ldmatrix_where_the_tile_holds_two(k: int, block: int) -> None:
    mma = Mma(atom="SM80_16x8x8_F32F16F16F32_TN")
    found = plan(gemm(tile=Tile(cta=(128, 128, k)), mma=mma), "sm_80")
    assert found.tiled_mma.tile_mnk == (32, 32, block)


def test_a_given_permutation_is_given() -> None:
    found = plan(gemm(tile=TILE, mma=Mma(atom_layout=(2, 2, 1), permutation=(32, 64, 16))), "sm_80")
    assert decision(found, "mma.permutation").given
    assert not decision(plan(gemm(tile=TILE), "sm_80"), "mma.permutation").given


@pytest.mark.parametrize(
    ("cta", "warps"),
    [((128, 128, 64), (2, 2, 1)), ((256, 128, 64), (4, 2, 1)), ((64, 64, 32), (2, 2, 1)), ((128, 64, 32), (4, 1, 1))],
)
def test_warps_are_few_and_nearly_square(cta: tuple[int, int, int], warps: tuple[int, int, int]) -> None:
    found = plan(gemm(tile=Tile(cta=cta)), "sm_90")
    assert found.tiled_mma.atom_layout.shape == warps
    assert cta[0] * cta[1] / found.threads <= 128


def test_a_small_tile_has_no_more_threads_than_it_has_copies() -> None:
    found = plan(gemm(tile=Tile(cta=(64, 8, 16))), "sm_80")
    assert 8 * 16 * 2 // found.threads >= 4
