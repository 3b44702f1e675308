"""Stages, registers and shared memory of a CTA: how many fit, by examples worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.algebra import Layout, TiledMma
from cutegen.errors import SpecError
from cutegen.hardware import MMA_ATOMS, target
from cutegen.plan import plan
from cutegen.plan.operands import staging
from cutegen.plan.operands.staging import expected_registers
from cutegen.plan.predict import estimate_registers, predict_occupancy
from cutegen.plan.schedule.consumers import Reallocation, split_registers
from cutegen.plan.search import cp_async
from cutegen.plan.search.problem import Candidate, with_stages
from cutegen.spec import (
    G2s,
    G2sCopy,
    Mma,
    Tile,
)
from tests.plan.said import rejected
from tests.plan.specs import fma_spec, gemm

ATOM = MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"]

TWO_BY_TWO = TiledMma(ATOM, Layout((2, 2, 1)), None)


@pytest.mark.parametrize("cta", [(128, 128, 64), (256, 128, 64), (64, 64, 64), (4096, 4096, 64)])
def test_as_many_stages_as_shared_memory_holds(cta: tuple[int, int, int]) -> None:
    row = target("sm_80")
    fitting = row.smem_per_cta_bytes // ((cta[0] + cta[1]) * cta[2] * 2)
    assert cp_async._most_stages(gemm(), row, cta) == min(8, fitting)


@pytest.mark.parametrize(("passing", "registers"), [(0, 104), (16, 120), (17, 128)])
def test_registers_of_a_thread_by_hand(passing: int, registers: int) -> None:
    """64 x 64 over 2 x 2 warps: 32 sums; 16 of A and 16 of B, f16, twice, in 32 registers; 40 for addresses."""
    found = estimate_registers(target("sm_80"), (64, 64, 32), TWO_BY_TWO, ATOM, passing)
    assert found == registers


def test_registers_that_a_k_tile_passes_through_by_hand() -> None:
    """128 x 64 of A for 128 threads: 64 elements each, two in a register; B goes by cp.async."""
    spec = gemm(g2s=G2s(a=G2sCopy(op="universal")))
    assert expected_registers(spec, (128, 128, 64), 128) == 32
    assert expected_registers(gemm(), (128, 128, 64), 128) == 0


def test_a_tile_of_which_one_stage_does_not_fit_is_refused_first() -> None:
    row = target("sm_80")
    with pytest.raises(SpecError, match="not even one stage fits; use a smaller tile"):
        staging.check_stage(gemm(), row, (512, 512, 128))
    staging.check_stage(gemm(), row, (512, 512, 64))
    with pytest.raises(SpecError, match="not even one stage fits"):
        staging.choose_stages(gemm(), row, (200_000, 200_000), 1)
    with pytest.raises(SpecError, match="not even one stage fits"):
        staging.choose_plain_stages(fma_spec(align=4), row, (200_000, 128))
    with pytest.raises(SpecError, match=r"2 stages: 2 x \(100,000 \+ 128\) = 200,320 bytes .* one stage fits"):
        staging.choose_plain_stages(fma_spec(align=4, tile=Tile(stages=2)), row, (100_000, 128))


def test_one_stage_of_plain_copies_where_two_do_not_fit() -> None:
    found = staging.choose_plain_stages(fma_spec(align=4), target("sm_80"), (100_000, 128))
    assert found.value == 1
    (rejected,) = found.decision.rejected
    assert (rejected.what, rejected.why.split(" bytes")[0]) == ("2 stages", "200,320")


def test_stages_that_do_not_fit_are_rejected_with_their_bytes() -> None:
    """(128 + 256) x 64 x 2 = 49,152 bytes a stage; 163 KiB hold three."""
    found = rejected(plan(gemm(tile=Tile(cta=(128, 256, 64))), "sm_80"), "tile.stages")
    assert found["4 stages"] == "196,608 bytes > 166,912"
    assert set(found) <= {"2 stages", "3 stages", "4 stages"}


@pytest.mark.parametrize(
    ("threads", "most", "least"),
    [
        (128, 255, 255),
        (192, 168, 168),  # 6 warps and 4: setmaxnreg is for whole warpgroups
        (256, 240, 24),
        (384, 160, 24),
        (512, 112, 24),  # 640 x 96 at launch - 24 x 128 = 58,368; 120 each would never come
        (640, 88, 24),
    ],
)
def test_registers_that_the_copying_warps_leave(threads: int, most: int, least: int) -> None:
    """65,536 - 24 x 128 = 62,464 registers: of 384 threads each may have 162, in eights; 256 have 240, the most."""
    split, decision = split_registers(target("sm_120"), threads)
    if most == least:
        assert (split, decision.chosen) == (None, f"{most} per thread")
    else:
        assert split == Reallocation(most, least)


@pytest.mark.parametrize("warps", range(1, 29))
def test_no_warp_waits_for_registers_that_its_cta_never_had(warps: int) -> None:
    """At launch the compiler gives each of the threads as many, of whole quarters of the multiprocessor."""
    threads, quarters = 32 * warps + 128, -(-(warps + 4) // 4)
    at_launch = min(65536 // (128 * quarters) // 8 * 8, 255) * threads
    split, _ = split_registers(target("sm_90"), 32 * warps)
    if split is not None:
        assert split.mma * 32 * warps + split.producer * 128 <= at_launch
        assert warps % 4 == 0, "setmaxnreg is for whole warpgroups"


def test_stages_come_with_a_row_unless_they_do_not_fit() -> None:
    rows = [Candidate((128, 128, 64), (2, 2, 1), 3), Candidate((256, 128, 64), (4, 2, 1), 3)]
    spec = gemm()

    def most(cta: tuple[int, int, int]) -> int:
        return {128: 6, 256: 1}[cta[0]]

    assert [row.stages for row in with_stages(spec, rows, most)] == [3]
    assert [row.stages for row in with_stages(spec, rows, lambda _: 2)] == [2, 2]
    given = replace(spec, tile=Tile(stages=5))
    assert [row.stages for row in with_stages(given, rows, most)] == [5, 5]


def test_stages_leave_room_for_the_ctas_that_registers_allow() -> None:
    """32,768 bytes a stage: two CTAs have 2 each in sm_80's 167,936 bytes, and 3 each in sm_90's 233,472."""
    assert plan(gemm(), "sm_80").stages == 2
    assert plan(gemm(), "sm_90").stages == 3
    assert plan(gemm(tile=Tile(cta=(64, 64, 32))), "sm_80").stages == 4


@pytest.mark.parametrize(("align", "stages"), [((16, 16), 4), ((16, 2), 4), ((2, 2), 2)])
def test_stages_are_filled_ahead_if_any_copy_is_asynchronous(align: tuple[int, int], stages: int) -> None:
    """`cp.async` copies 4 bytes at least; what is aligned to less passes through registers, one k-tile at a time."""
    assert plan(gemm(align=(*align, None), tile=Tile((64, 64, 32))), "sm_80").stages == stages


def test_occupancy_by_hand() -> None:
    """sm_80: 65,536 registers, 2,048 threads, 167,936 bytes, of which each CTA costs 1,024 more than it asks for."""
    found = predict_occupancy(target("sm_80"), 128, 98304, 168)
    # 168 x 32 = 5,376 registers a warp, 21 x 256; 65,536 // 5,376 = 12 warps; 12 // 4 = 3 CTAs.
    assert (found.by_registers, found.by_threads, found.by_smem, found.ctas_per_sm) == (3, 16, 1, 1)
    found = predict_occupancy(target("sm_80"), 256, 40960, 64)
    # 64 x 32 = 2,048; 32 warps; 4 CTAs. 41,984 bytes: 4 CTAs of 167,936.
    assert (found.by_registers, found.by_threads, found.by_smem, found.ctas_per_sm) == (4, 8, 4, 4)
    found = predict_occupancy(target("sm_120"), 32, 1024, 24)
    assert found.by_threads == 24  # not 1,536 // 32 = 48: an SM of sm_120 holds 24 CTAs


def test_registers_are_never_more_than_a_cta_can_have() -> None:
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), mma=Mma(atom_layout=(4, 8, 1))), "sm_80")
    assert found.threads == 1024
    assert found.predictions.occupancy.registers_per_thread <= 64
    assert found.predictions.occupancy.ctas_per_sm == 1


def test_bytes_are_stages_of_both_operands_or_the_tile_of_c() -> None:
    found = plan(gemm(tile=Tile(cta=(128, 64, 32), stages=3)), "sm_80")
    assert (found.a.smem.bytes, found.b.smem.bytes) == (3 * 128 * 32 * 2, 3 * 64 * 32 * 2)
    assert [each.offset_bytes for each in found.memory.regions] == [0, 24576, 0]
    assert found.smem_bytes == 36864
    shallow = plan(gemm(c_dtype="f32", tile=Tile(cta=(128, 128, 32), stages=2)), "sm_80")
    assert shallow.smem_bytes == 128 * 128 * 4  # C in f32, more than 2 x 16,384
