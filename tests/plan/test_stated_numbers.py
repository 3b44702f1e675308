"""The numbers in sentences of an explanation, each worked out by hand in the comment before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.plan import plan
from cutegen.spec import Epilogue, G2s, G2sCopy, GemmSpec, Operand, Schedule, Tile
from tests.plan.specs import gemm
from tests.run.wgmma import spec as of_warpgroups

SM90, SM120 = replace(gemm(), family="sm90"), replace(gemm(), family="sm120")
EIGHT_BITS = replace(gemm(dtype="e4m3", c_dtype="f16"), family="sm120")
FMA = replace(gemm(dtype="f32", align=(4, 4, 4)), family="simt")
PROMOTED = of_warpgroups("promoted", dtype="e4m3", c=Operand("f16", "n"), cta=(128, 64, 64))
IN_EIGHT = replace(SM90, tile=Tile((128, 128, 64)), schedule=Schedule(split_k=8, cluster=(1, 1, 4)))
SMALL = gemm("mnn", tile=Tile((128, 64, 32), 3))


def copied_by(threads: str) -> GemmSpec:
    """A's tile of 128 x 64, copied 16 bytes at a time by these threads."""
    return gemm(tile=Tile((128, 128, 64)), g2s=G2s(a=G2sCopy(threads=threads)))


SAID: tuple[tuple[GemmSpec, str, tuple[str, ...]], ...] = (
    # 65,536 registers for 384 threads are 170, in eights; 256 x 232 + 128 x 40 = 384 x 168.
    (SM90, "schedule.registers", ("384 threads would have 168 each", "232 to the 256 consumer threads and 40 to the")),
    # 128 x 256 multiply-adds for 128 + 256 elements.
    (SM90, "tile.cta", ("85 multiply-adds per element", "two warpgroups have 64 rows each", "64 elements along K")),
    # C's 128 x 256 elements have 2 bytes, a part's 64 x 64 too.
    (SM90, "epilogue.smem", ("whole tile at once: 65,536 bytes that", "2 buffers", "8,192 bytes per part")),
    # 256 rows of 64 elements: one box of 128 bytes, or two of 64. Each of two warpgroups reads all of it.
    (SM90, "smem.b", ("1 copy of rows of 128 bytes", "Layout_K_SW64_Atom: 2 copies instead of 1")),
    (SM90, "g2s.b", ("a copy of 128 contiguous bytes of 256 rows",)),
    (SM90, "descriptor.a", ("; 1 time per k-tile",)),
    (SM90, "descriptor.b", ("; 2 times per k-tile",)),
    # 128 x 256 sums of 256 threads.
    (SM120, "tile.cta", ("85 multiply-adds per element", "each thread of 8 warps has 128 registers of sums")),
    (EIGHT_BITS, "tile.cta", ("128x128x128", "8 warps has 64 registers of sums, which leaves some for the f16 values")),
    # Two k-tiles of 64 before each 128 is promoted.
    (PROMOTED, "schedule.promoted_sums", ("the sums of 2 k-tiles accumulate in one set", "another warpgroup")),
    # Two clusters of four slices; of 128 x 128 sums of 4 bytes, a CTA adds a quarter and reads three others'.
    (IN_EIGHT, "schedule.cluster", ("each of 4 CTAs adds 1/4 of the tile", "2 such shares are added in the workspace")),
    (IN_EIGHT, "schedule.split_k", ("reads 49,152 bytes", "writes 16,384 of its share", "each of 2 CTAs that arrives")),
    # tf32 keeps 10 bits after the leading one: half a step when rounded, a whole one when cut off.
    (gemm(dtype="tf32"), "mma.tf32", ("ignores 13: an error up to 2^-10", "nearest: cvt.rna.tf32", "up to 2^-11")),
    # Of C's pairs along N a thread holds two f16; along M they are in different threads.
    (gemm("kkn"), "epilogue.smem", ("a thread holds at most 4 adjacent bytes",)),
    (gemm("kkm"), "epilogue.smem", ("a thread holds at most 2 adjacent bytes",)),
    (gemm(epilogue=Epilogue(ops=("scale_m", "scale_n"))), "problem.scale", ("f32, along m and n",)),
    # Four warps of 32 x 64: rows 4 x 64 of B and 1 x 128 of A; 128 x 64 sums of 128 threads.
    (SMALL, "mma.atom_layout", ("warp tiles of 32 x 64; 384 fragment rows", "64 registers per thread for sums")),
    (SMALL, "mma.atom", ("4,096 operations per instruction",)),
    (SMALL, "mma.permutation", ("warps x atom is 64x8x16; 2 times along N",)),
    (SMALL, "g2s.a", ("16 threads x 16 bytes = 256 contiguous bytes",)),
    # Threads 0 to 31 of 128: four rows of 8, in any order; 16 rows of two; 32 rows of one, and 128 in all.
    (copied_by("(16,8):(8,1)"), "g2s.a", ("8 threads x 16 bytes = 128 contiguous bytes",)),
    (copied_by("(16,(2,4)):(8,(4,1))"), "g2s.a", ("8 threads x 16 bytes = 128 contiguous bytes",)),
    (copied_by("(16,8):(1,16)"), "g2s.a", ("2 threads of a warp x 16 bytes = 32 contiguous bytes",)),
    (copied_by("(32,4):(1,32)"), "g2s.a", ("1 thread of a warp x 16 bytes = 16 contiguous bytes",)),
    (copied_by("(128,1):(1,0)"), "g2s.a", ("1 thread x 16 bytes = 16 contiguous bytes",)),
    # Four registers of 32 bits; 16-bit elements that are not adjacent along K.
    (
        SMALL,
        "s2r.a",
        (
            "x4 is the widest: 8 values per thread fill whole x4 loads",
            "universal, 16 bits: 8 loads per SM75_U16x8_LDSM_T",
        ),
    ),
    (SMALL, "s2r.b", ("SM75_U32x4_LDSM_N: reads rows along k, but this operand is contiguous along n",)),
    (gemm(), "s2r.b", ("SM75_U16x8_LDSM_T: reads rows along n, but this operand is contiguous along k",)),
    (
        replace(SMALL, tile=Tile((128, 64, 32))),
        "tile.stages",
        ("12,288 bytes per stage", "3 CTAs per SM, 36,864 bytes"),
    ),
    (
        gemm(tile=Tile((256, 128, 64))),
        "tile.stages",
        ("4 stages: 196,608 bytes > 166,912", "1 CTA per SM; 49,152 bytes"),
    ),
    # 8 of K, 128 + 128 rows, 4 bytes; 256 threads in 32 x 8, and in 16 x 16.
    (FMA, "tile.cta", ("64 multiply-adds", "64 sums per thread with 256 threads", "8,192 bytes of shared memory")),
    (
        FMA,
        "mma.threads",
        ("a thread loads 16 elements for 64 multiply-adds", "8x32 threads: a thread loads 20 elements"),
    ),
    (FMA, "g2s.a", ("4 loads per thread; 8 threads x 4 bytes = 32 contiguous bytes",)),
    (FMA, "s2r.a", ("4 elements along k are contiguous", "elements along m are 16 apart")),
)


@pytest.mark.parametrize(("spec", "key", "said"), SAID, ids=[f"{spec.family} {key}" for spec, key, _ in SAID])
def test_what_is_said_names_the_number_that_was_used(spec: GemmSpec, key: str, said: tuple[str, ...]) -> None:
    arch = "sm_80" if spec.family in ("sm80", "simt") else "sm_90"
    (found,) = (each for each in plan(spec, arch).decisions if each.key == key)
    text = "; ".join((found.chosen, found.why, *(f"{each.what}: {each.why}" for each in found.rejected)))
    assert [part for part in said if part not in text] == [], text


def test_what_is_said_of_a_cta() -> None:
    """36 KB and 1 KB of 164 KB; 152 registers of 128 threads, of 64 Ki; 2,048 threads."""
    text = plan(gemm(tile=Tile((128, 64, 32), 3)), "sm_80").explain()
    assert "limits, in CTAs per SM: threads 16, shared memory 4, registers 3" in text
    pair = of_warpgroups("pair", cta=(64, 64, 64), stages=3, consumers="pingpong")
    assert "384 in 12 warps: 2 warpgroups multiply one tile each, 4 producer warps" in plan(pair, "sm_90").explain()
    assert "384 in 12 warps: 2x1x1 warpgroups along M, N, K multiply" in plan(SM90, "sm_90").explain()
