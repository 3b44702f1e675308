"""Every choice is kept with its reason, and what is predicted of it, against numbers worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cutegen.hardware import target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.predict import predict_occupancy
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    Mma,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
)
from tests.plan.specs import SHIPPED_ON, gemm

BY_WARPGROUPS = ("mma.atom", "mma.atom_layout", "schedule.consumers", "schedule.cluster")
MMA_KEYS = {
    "sm80": ("mma.atom", "mma.atom_layout", "mma.permutation"),
    "simt": ("mma.threads",),
    "sm90": BY_WARPGROUPS,
    "sm100": ("mma.cta_group", "mma.atom", "mma.accumulator", "schedule.cluster"),
}
FRAGMENT_KEYS = dict.fromkeys(("sm90", "sm100"), ("descriptor.a", "descriptor.b"))
OTHER_KEYS = ("smem.a", "smem.b", "tile.stages", "epilogue.smem", "schedule.raster")
OPTIONAL_KEYS = {
    "family",
    "problem.b.transposed",
    "mma.tf32",
    "mma.promote_k",
    "epilogue.ops",
    "epilogue.expression",
    "epilogue.pairs",
    "problem.groups",
    "problem.residual",
    "problem.bias",
    "problem.scale",
    "problem.aux",
    "schedule.registers",
    "schedule.persistent",
    "schedule.last_k_tiles",
    "schedule.promoted_sums",
    "schedule.split_k",
}


def chosen(found: GemmPlan) -> dict[str, str]:
    return {decision.key: decision.chosen for decision in found.decisions}


@pytest.mark.parametrize(("name", "arch"), SHIPPED_ON)
def test_every_key_is_decided_with_a_reason(name: str, arch: str) -> None:
    found = plan(load_spec(name), arch)
    fragments = FRAGMENT_KEYS.get(found.family, ("s2r.a", "s2r.b"))
    multiplied = MMA_KEYS.get(found.family, MMA_KEYS["sm80"])
    keys = ("tile.cta", *multiplied, "g2s.a", "g2s.b", *fragments, *OTHER_KEYS)
    of_factors = re.compile(r"\.scale_[ab]$")  # of blocks of A and B, beside the keys of A and B themselves
    decided = (x.key for x in found.decisions if x.key not in OPTIONAL_KEYS and not of_factors.search(x.key))
    assert tuple(decided) == keys
    for decision in found.decisions:
        assert decision.chosen
        assert decision.why
        assert all(rejected.what and rejected.why for rejected in decision.rejected)
        assert decision.chosen not in [rejected.what for rejected in decision.rejected]


def test_whatever_is_open_has_rejected_alternatives() -> None:
    open_choices = plan(gemm(), "sm_80")
    for decision in open_choices.decisions:
        assert not decision.given
        if decision.key not in ("tile.cta", "schedule.raster"):
            assert decision.rejected, decision.key


def test_what_is_written_is_obeyed_and_said_to_be_given() -> None:
    written = gemm(
        "mkm",
        accumulator="f16",
        tile=Tile(cta=(64, 96, 32), stages=5),
        mma=Mma(atom="SM80_16x8x8_F16F16F16F16_TN", atom_layout=(1, 2, 1), permutation=(32, 48, 16)),
        smem=Smem(a=SmemLayout(pad=16), b=SmemLayout(swizzle=(1, 3, 3))),
        g2s=G2s(
            a=G2sCopy(op="cp.async.ca", bits=64, threads="(16,4):(1,16)"),
            b=G2sCopy(op="cp.async.cg", bits=128, threads="(16,4):(4,1)"),
        ),
        s2r=S2r(a=S2rCopy("SM75_U16x4_LDSM_T"), b=S2rCopy("universal")),
        epilogue=Epilogue(SmemLayout(pad=24)),
        schedule=Schedule(Raster("m", 3, True)),
    )
    found = plan(written, "sm_80")
    assert all(decision.given for decision in found.decisions)
    assert (found.cta_tile, found.stages, found.tiled_mma.tile_mnk) == ((64, 96, 32), 5, (32, 48, 16))
    assert (found.a.smem.pad_elems, found.a.g2s.bits, found.a.s2r.atom.name) == (16, 64, "SM75_U16x4_LDSM_T")
    assert (found.b.smem.swizzle, found.b.s2r.bits) == (found.b.smem.swizzle, 32)
    assert found.b.smem.swizzle is not None
    assert (found.b.smem.swizzle.bits, found.b.smem.swizzle.base, found.b.smem.swizzle.shift) == (1, 3, 3)
    assert found.epilogue.smem is not None
    assert found.epilogue.smem.pad_elems == 24
    assert (found.scheduler.order.along, found.scheduler.order.group, found.scheduler.order.zigzag) == ("m", 3, True)


PLAIN = G2sCopy(op="universal", bits=32, threads="(16,8):(8,1)")


@pytest.mark.parametrize(
    ("family", "mma", "whole", "keys"),
    [
        ("sm80", Mma(atom_layout=(2, 2, 1)), PLAIN, ("op", "bits", "threads")),
        ("simt", Mma(threads="(16,8):(8,1)"), PLAIN, ("bits", "threads")),
        ("sm120", Mma(), G2sCopy(op="cp.async.bulk.tensor"), ("op",)),
    ],
)
def test_a_copy_of_which_a_key_is_left_open_is_chosen(
    family: str, mma: Mma, whole: G2sCopy, keys: tuple[str, ...]
) -> None:
    open_copy = replace(gemm(tile=Tile((64, 64, 32))), family=family, mma=mma)
    for left_out in (None, *keys):
        copy = replace(whole, **{left_out: None}) if left_out else whole
        found = plan(replace(open_copy, g2s=G2s(a=copy)), "sm_90").decisions
        assert [x.given for x in found if x.key == "g2s.a"] == [left_out is None], left_out


def test_the_forced_smaller_ldmatrix_says_what_the_larger_would_do() -> None:
    found = plan(gemm(s2r=S2r(b=S2rCopy("SM75_U32x2_LDSM_N"))), "sm_80")
    rejected = {row.what: row.why for row in found.b.s2r.rejected}
    assert "not what the spec requests" in rejected["SM75_U32x4_LDSM_N"]
    assert rejected["SM75_U32x1_LDSM_N"] == "2 times as many instructions as x2"
    assert set(rejected) == {"SM75_U32x4_LDSM_N", "SM75_U32x1_LDSM_N", "SM75_U16x8_LDSM_T", "universal, 32 bits"}


def test_too_few_values_are_rejected_in_cutes_words() -> None:
    mma = Mma(atom_layout=(2, 2, 1), permutation=(32, 16, 16))
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), mma=mma), "sm_80")
    rejected = {row.what: row.why for row in found.b.s2r.rejected}
    assert rejected["SM75_U32x4_LDSM_N"].startswith("TiledCopy uses too few vals for selected CopyAtom: V = 4")


def test_padding_narrows_the_copies() -> None:
    """A row that starts 8 bytes after a multiple of 16 takes 8-byte copies, and no ldmatrix."""
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), smem=Smem(a=SmemLayout(pad=4), b=SmemLayout(pad=2))), "sm_80")
    assert (found.a.g2s.bits, found.a.s2r.matrices, found.a.s2r.bits) == (64, None, 32)
    assert (found.b.g2s.bits, found.b.s2r.matrices, found.b.s2r.bits) == (32, None, 32)
    assert "keeps only 4 elements contiguous" in found.a.s2r.rejected[0].why


def test_a_pad_that_narrows_accesses_says_so_and_which_would_not() -> None:
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), smem=Smem(a=SmemLayout(pad=3), b=SmemLayout(pad=16))), "sm_80")
    why = {decision.key: decision.why for decision in found.decisions}
    said = "accesses are at most 2 bytes wide, the run that it keeps contiguous; pad = 8 would keep the 16 that"
    assert said in why["smem.a"]
    assert "accesses" not in why["smem.b"]
    assert "keeps only 1 element contiguous" in why["s2r.a"]
    aligned = plan(gemm(align=(4, None, None), smem=Smem(a=SmemLayout(pad=2))), "sm_80").decisions
    assert not any("accesses are at most" in decision.why for decision in aligned), "4 bytes of 4"


def test_a_padded_atom_keeps_its_padding_between_repetitions() -> None:
    atom = SmemLayout(layout="(8,32):(40,1)")
    found = plan(gemm(tile=Tile(cta=(128, 128, 32), stages=2), smem=Smem(a=atom)), "sm_80")
    assert found.a.smem.bytes == 2 * 128 * 40 * 2
    assert found.a.smem.chosen.read.ways == 1


@pytest.mark.parametrize(
    ("align", "bits", "op"),
    [(4, 32, "cp.async.ca"), (8, 64, "cp.async.ca"), (16, 128, "cp.async.cg"), (32, 128, "cp.async.cg")],
)
def test_the_copy_is_as_wide_as_the_operand_is_aligned(align: int, bits: int, op: str) -> None:
    found = plan(gemm(align=(align, 16, 16)), "sm_80")
    assert found.a.g2s.bits == bits
    assert chosen(found)["g2s.a"].startswith(op)
    assert found.b.g2s.bits == 128


@pytest.mark.parametrize(("align", "bits"), [(2, 16), (4, 32), (8, 64), (16, 128), (128, 128)])
@pytest.mark.parametrize("majors", ["kkn", "kkm"])
def test_stores_are_as_wide_as_c_is_aligned(majors: str, align: int, bits: int) -> None:
    found = plan(gemm(majors, align=(16, 16, align)), "sm_80")
    assert found.epilogue.store is not None
    assert found.epilogue.store.bits == bits


@pytest.mark.parametrize(("pad", "bits"), [(8, 128), (4, 64), (1, 16)])
def test_stores_are_as_wide_as_the_layout_of_c_keeps_together(pad: int, bits: int) -> None:
    store = plan(gemm(epilogue=Epilogue(SmemLayout(pad=pad))), "sm_80").epilogue.store
    assert store is not None
    assert store.bits == bits


@pytest.mark.parametrize(("majors", "columns", "staged"), [("kkn", 32, False), ("kkn", 64, True), ("kkm", 32, True)])
def test_four_sums_of_a_row_are_not_staged(majors: str, columns: int, staged: bool) -> None:
    """Of 128 threads each has 16 x 32 / 128 = 4 sums, in pairs along N: apart where C is contiguous along M."""
    found = plan(gemm(majors, tile=Tile((16, columns, 32)), mma=Mma(atom_layout=(1, 4, 1))), "sm_80")
    assert (found.epilogue.smem is not None) == staged


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


def test_c_goes_straight_from_registers_when_it_does_not_fit() -> None:
    found = plan(gemm(c_dtype="f32", tile=Tile(cta=(256, 128, 32), stages=2)), "sm_86")
    assert found.epilogue.smem is None
    assert "131,072 bytes" in next(row.why for row in found.decisions if row.key == "epilogue.smem")


def test_sectors_of_whole_lines_are_ideal_and_of_pairs_are_not() -> None:
    """A 128 x 64 tile is 512 sectors. Pairs, 4 lanes a row, take half a sector each time: twice the ideal."""
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), epilogue=Epilogue(smem=False)), "sm_80")
    assert (found.predictions.sectors["g2s.a"].ideal, found.predictions.sectors["g2s.a"].predicted) == (512, 512)
    direct = found.predictions.sectors["epilogue"]
    assert (direct.ideal, direct.predicted) == (1024, 2048)
    staged = plan(gemm(tile=Tile(cta=(128, 128, 64))), "sm_80").predictions.sectors["epilogue"]
    assert (staged.ideal, staged.predicted) == (1024, 1024)
    # Straight to a column-major C each lane stores 2 bytes; 8 lanes of a column share 16 bytes, 4 columns at once.
    columns = plan(gemm("kkm", tile=Tile(cta=(128, 128, 64)), epilogue=Epilogue(smem=False)), "sm_80")
    assert columns.predictions.sectors["epilogue"].predicted == 2048


def test_instructions_by_hand() -> None:
    """128x128x64, 3 stages, 4 warps: a warp does 4 x 8 atoms for each of 4 k-blocks, written 3 + 1 times."""
    counts = plan(gemm(tile=Tile(cta=(128, 128, 64), stages=3)), "sm_80").predictions.instructions
    assert counts["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] == 4 * 4 * 8 * 4
    # x4 loads 16 x 16: 4 for A's 64 rows, 4 for B's, each k-block; 4 times 4 k-blocks and one before.
    assert counts["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] == (4 + 4) * (4 * 4 + 1)
    # 8 + 8 vectors a thread, 2 stages before, 3 in a turn of the first loop and one in the second.
    assert counts["cp.async.cg.shared.global"] == (8 + 8) * (2 + 3 + 1)


def test_raster_says_what_its_group_does() -> None:
    def why(raster: Raster) -> str:
        decision = plan(gemm(schedule=Schedule(raster)), "sm_80").decisions[-1]
        return f"{decision.chosen} ({decision.why})"

    assert "one tile after the other along m" in why(Raster("n", 1))
    assert "share their rows of B" in why(Raster("n", 1))
    assert "share their rows of A" in why(Raster("m", 1))
    assert "bands of 8 tiles along n" in why(Raster())
    assert "reversed" in why(Raster(zigzag=True))
