"""What a plan refuses: at which key, what was found, what was expected with the arithmetic, and a way out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.spec import Epilogue, G2s, G2sCopy, Mma, S2r, S2rCopy, Smem, SmemLayout, Tile
from tests.plan.specs import gemm

Case = tuple[dict[str, Any], str, tuple[str, ...]]

CASES: dict[str, Case] = {
    "atom of other operands": (
        {"dtype": "bf16", "mma": Mma(atom="SM80_16x8x16_F32F16F16F32_TN")},
        "mma.atom",
        ("for f16 operands and f32 sums", "bf16 operands", "SM80_16x8x16_F32BF16BF16F32_TN"),
    ),
    "atom of another accumulator": (
        {"accumulator": "f16", "mma": Mma(atom="SM80_16x8x16_F32F16F16F32_TN")},
        "mma.atom",
        ("f32 sums", "f16 sums", "SM80_16x8x16_F16F16F16F16_TN"),
    ),
    "bf16 summed in f16": (
        {"dtype": "bf16", "accumulator": "f16"},
        "problem.accumulator",
        ('"f16" with bf16 operands', "no mma.sync", 'accumulator = "f32"'),
    ),
    "f32 operands": (
        {"dtype": "f32"},
        "problem.a.dtype",
        ('"f32"', "f16 or bf16 or tf32", "operands: there is no mma.sync for others", 'dtype = "tf32"'),
    ),
    "atom layout that does not divide": (
        {"tile": Tile(cta=(96, 64, 32)), "mma": Mma(atom_layout=(4, 1, 1))},
        "mma.atom_layout",
        ("4 warps x 16 = 64 along M", "M = 96", "M = 128"),
    ),
    "warps along K": (
        {"mma": Mma(atom_layout=(2, 1, 2))},
        "mma.atom_layout",
        ("2x1x2", "1 along K", "2x1x1 or 4x1x1"),
    ),
    "permutation that does not divide": (
        {"tile": Tile(cta=(128, 128, 64)), "mma": Mma(atom_layout=(2, 2, 1), permutation=(32, 48, 16))},
        "mma.permutation",
        ("48 along N", "warps x atom = 16", "N = 128", "rounds up", "32 is the nearest"),
    ),
    "permutation of a whole k-tile": (
        {"tile": Tile(cta=(128, 128, 32)), "mma": Mma(atom_layout=(2, 2, 1), permutation=(32, 32, 32))},
        "mma.permutation",
        ("32 along K", "at least twice", "16 is the nearest"),
    ),
    "one k-block": (
        {"tile": Tile(cta=(128, 128, 8))},
        "tile.cta",
        ("K = 8", "at least 16", "one k-block is multiplied while the next is loaded", "K = 16"),
    ),
    "k-tile that the atom does not divide": (
        {"tile": Tile(cta=(128, 128, 40)), "mma": Mma(atom="SM80_16x8x16_F32F16F16F32_TN")},
        "tile.cta",
        ("K = 40", "16", "K = 32 is the nearest"),
    ),
    "tile no atom divides": ({"tile": Tile(cta=(100, 64, 32))}, "tile.cta", ("100x64x32", "16", "112x64x32")),
    "126 of 128 threads": (
        {
            "tile": Tile(cta=(128, 128, 48)),
            "mma": Mma(atom_layout=(2, 2, 1)),
            "g2s": G2s(a=G2sCopy(threads="(21,6):(6,1)")),
        },
        "g2s.a.threads",
        ("126 of 128 threads", "(64,2):(2,1)", "128x48"),
    ),
    "threads past the tile": (
        {
            "tile": Tile(cta=(128, 128, 32)),
            "mma": Mma(atom_layout=(2, 2, 1)),
            "g2s": G2s(a=G2sCopy(bits=128, threads="(16,8):(8,1)")),
        },
        "g2s.a.threads",
        ("16x64", "128x32", "(32,4):(4,1)"),
    ),
    "more threads than vectors": (
        {"tile": Tile(cta=(128, 16, 16)), "mma": Mma(atom_layout=(8, 2, 1))},
        "tile.cta",
        ("B's tile of 16x16 for 512 threads", "larger tile"),
    ),
    "a width that leaves threads without a vector": (
        {"tile": Tile((32, 32, 16), 2), "mma": Mma(atom_layout=(2, 4, 1)), "g2s": G2s(a=G2sCopy(bits=128))},
        "g2s.a.bits",
        ("A's tile of 32x16 for 256 threads", '"(32,8):(8,1)" with bits = 32 covers 32x16 exactly'),
    ),
    "an op that leaves threads without a vector": (
        {"tile": Tile((32, 32, 16), 2), "mma": Mma(atom_layout=(2, 4, 1)), "g2s": G2s(a=G2sCopy(op="cp.async.cg"))},
        "g2s.a.op",
        ("A's tile of 32x16 for 256 threads", '"(32,8):(8,1)" with bits = 32 covers 32x16 exactly'),
    ),
    "cp.async of an operand aligned to 2": (
        {"align": (2, None, None), "g2s": G2s(a=G2sCopy(op="cp.async.ca"))},
        "g2s.a.op",
        ("aligned to 2 bytes", "4, 8 or 16 bytes", 'op = "universal"'),
    ),
    "align 2 with a 16-byte copy": (
        {"align": (None, 2, None), "g2s": G2s(b=G2sCopy(bits=128))},
        "g2s.b.bits",
        ("128 bits", "aligned to 2 bytes", "problem.b.align = 16"),
    ),
    "cg of an operand aligned to 8": (
        {"align": (8, None, None), "g2s": G2s(a=G2sCopy(op="cp.async.cg"))},
        "g2s.a.op",
        ("16 bytes", "aligned to 8 bytes", '"cp.async.ca" with bits = 64', "problem.a.align = 16"),
    ),
    "16-byte copy into rows of 8": (
        {"smem": Smem(a=SmemLayout(pad=4)), "g2s": G2s(a=G2sCopy(bits=128))},
        "g2s.a.bits",
        ("keeps only 8 bytes together", "bits = 64", "a layout that keeps 16 bytes together"),
    ),
    "cp.async into an odd pad": (
        {"smem": Smem(b=SmemLayout(pad=1)), "g2s": G2s(b=G2sCopy(op="cp.async.ca"))},
        "g2s.b.op",
        ("keeps only 2 bytes together", '"universal"'),
    ),
    "wide copies into a layout across the major": (
        {"smem": Smem(a=SmemLayout(layout="(64,8):(1,64)")), "g2s": G2s(a=G2sCopy(bits=32))},
        "g2s.a.bits",
        ("keeps only 2 bytes together", "bits = 16"),
    ),
    "x4 where V allows x2": (
        {
            "tile": Tile(cta=(128, 128, 64)),
            "mma": Mma(atom_layout=(2, 2, 1), permutation=(32, 16, 16)),
            "s2r": S2r(b=S2rCopy("SM75_U32x4_LDSM_N")),
        },
        "s2r.b.atom",
        ("8 values per thread", "V = 4", "too few vals", "SM75_U32x2_LDSM_N", "mma.permutation"),
    ),
    "T on K-major": (
        {"s2r": S2r(a=S2rCopy("SM75_U16x8_LDSM_T"))},
        "s2r.a.atom",
        ("K-major", "the row of 8 elements (0,0) to (7,0) lies 64 elements apart", "SM75_U32x4_LDSM_N"),
    ),
    "N on M-major": (
        {"majors": "mkn", "s2r": S2r(a=S2rCopy("SM75_U32x4_LDSM_N"))},
        "s2r.a.atom",
        ("M-major", "the row of 8 elements (0,0) to (0,7) lies 128 elements apart", "SM75_U16x8_LDSM_T"),
    ),
    "N on N-major": (
        {"majors": "knn", "s2r": S2r(b=S2rCopy("SM75_U32x1_LDSM_N"))},
        "s2r.b.atom",
        ("N-major", "SM75_U16x2_LDSM_T"),
    ),
    "ldmatrix of rows of 8 bytes": (
        {"smem": Smem(a=SmemLayout(pad=4)), "s2r": S2r(a=S2rCopy("SM75_U32x4_LDSM_N"))},
        "s2r.a.atom",
        ("keeps only 4 elements contiguous", "16 contiguous", "universal", "a pad that is a multiple of 8"),
    ),
    "swizzle base too small": (
        {"smem": Smem(a=SmemLayout(swizzle=(3, 2, 3)))},
        "smem.a.swizzle",
        ("base 2", "at least 3", "[3, 3, 3]"),
    ),
    "swizzle longer than the tile": (
        {"tile": Tile(cta=(48, 64, 16)), "smem": Smem(a=SmemLayout(swizzle=(3, 3, 3)))},
        "smem.a.swizzle",
        ("2^9 = 512", "48x16 = 768"),
    ),
    "atom that does not divide": (
        {"tile": Tile(cta=(128, 128, 48)), "smem": Smem(a=SmemLayout(layout="(8,64):(64,1)"))},
        "smem.a.layout",
        ("(8, 64)", "128x48"),
    ),
    "swizzle past its tile": (
        {"smem": Smem(a=SmemLayout(layout="Sw<1,7,1> o (8,8):(8,1)")), "tile": Tile(cta=(16, 16, 24))},
        "smem.a.layout",
        ("maps to offset 511, past the last of the tile, 383", "permutes"),
    ),
    "too many stages": (
        {"tile": Tile(cta=(256, 256, 64), stages=4)},
        "tile.stages",
        ("4 x (32,768 + 32,768) = 262,144 bytes > 166,912", "sm_80", "2 stages fit"),
    ),
    "more stages than several numbers that fit": (
        {"tile": Tile(cta=(128, 128, 64), stages=8)},
        "tile.stages",
        ("8 x (16,384 + 16,384) = 262,144 bytes > 166,912", "2, 3, 4 or 5 stages fit"),
    ),
    "tile that never fits": (
        {"tile": Tile(cta=(256, 256, 256))},
        "tile.cta",
        ("1 x (131,072 + 131,072) = 262,144 bytes > 166,912", "not even one stage fits; use a smaller tile"),
    ),
    "sums that no thread can hold": (
        {"tile": Tile(cta=(2048, 2048, 16))},
        "tile.cta",
        ("32,768 registers per thread for sums", "at most 255", "a smaller tile"),
    ),
    "sums of too few warps": (
        {"tile": Tile(cta=(256, 256, 32)), "mma": Mma(atom_layout=(2, 2, 1))},
        "mma.atom_layout",
        ("512 registers per thread for sums", "at most 255", "more warps"),
    ),
    "C that does not fit": (
        {"tile": Tile(cta=(256, 256, 32), stages=2), "c_dtype": "f32", "epilogue": Epilogue(SmemLayout(pad=8))},
        "epilogue.smem",
        ("256x256 f32", "at most 166,912", "smem = false"),
    ),
    "a layout that the DSL would address wrongly": (
        {"tile": Tile(cta=(128, 128, 64)), "smem": Smem(a=SmemLayout(layout="Sw<3,3,6> o (64,64):(64,1)"))},
        "smem.a",
        (
            "Swizzle<3,3,6> on 64x64",
            "the swizzle XORs bits in which a thread's own accesses",
            "a pad is always possible",
        ),
    ),
    "a tile that ends within the swizzle's period": (
        {
            "majors": "mnn",
            "dtype": "tf32",
            "tile": Tile(cta=(32, 80, 96), stages=1),
            "smem": Smem(b=SmemLayout(swizzle=(1, 4, 3))),
        },
        "smem.b",
        ("Swizzle<1,4,3>", "80x96: the tile is not a multiple of", "a pad is always possible"),
    ),
    "a swizzle's atoms that three warps cannot share": (
        {
            "majors": "mkn",
            "tile": Tile(cta=(96, 96, 32)),
            "mma": Mma(atom_layout=(3, 1, 1)),
            "smem": Smem(a=SmemLayout(swizzle=(2, 3, 3))),
        },
        "smem.a",
        (
            "Swizzle<2,3,3> on 32x8 for a tile of 96x32",
            "and of the layout do not nest",
            "a pad is always possible",
        ),
    ),
    "a swizzle that three warps end within": (
        {
            "majors": "mkn",
            "tile": Tile(cta=(96, 96, 32)),
            "mma": Mma(atom_layout=(3, 1, 1)),
            "smem": Smem(a=SmemLayout(layout="Sw<2,3,3> o (16,8):(1,16)")),
        },
        "smem.a",
        ("96x32: the threads of the tiled MMA do not cover a multiple", "a pad is always possible"),
    ),
    "C's atom that does not divide": (
        {"tile": Tile(cta=(64, 48, 32)), "epilogue": Epilogue(SmemLayout(layout="(8,64):(64,1)"))},
        "epilogue.smem.layout",
        ("(8, 64)", "64x48"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_at_its_key_with_the_arithmetic_and_a_way_out(name: str) -> None:
    asked, key, said = CASES[name]
    with pytest.raises(SpecError) as caught:
        plan(gemm(**asked), "sm_80")
    assert caught.value.key == key
    assert [part for part in said if part not in str(caught.value)] == [], str(caught.value)


def test_loads_of_simt_are_not_torn_by_a_swizzle() -> None:
    """With both of these compiled, the CPU executor found the second one's loads outside of shared memory."""
    majors, tile, swizzles = "mnn", Tile(cta=(64, 64, 16)), ((2, 3, 3), (2, 2, 3))
    asked = [
        replace(gemm(majors, "f32", tile=tile, smem=Smem(a=SmemLayout(swizzle=x))), family="simt") for x in swizzles
    ]
    assert plan(asked[0], "sm_80").a.smem.chosen.name == "Swizzle<2,3,3> on 32x8"
    with pytest.raises(
        SpecError, match=r"smem.a: found Swizzle<2,2,3> on 32x8 for a tile of 64x16: the swizzle XORs bits"
    ):
        plan(asked[1], "sm_80")


OF_SM120: dict[str, Case] = {
    "an operand that nothing transposes": (
        {"majors": "mkn", "dtype": "tf32"},
        "problem.a.major",
        ('"m" for sm_90', "splits them in halves"),
    ),
    "plain loads": ({"s2r": S2r(b=S2rCopy("universal"))}, "s2r.b.atom", ('"universal"', "an ldmatrix")),
    "a layout without rows for ldmatrix": (
        {"smem": Smem(a=SmemLayout(layout="(8,(2,32)):(2,(1,16))"))},
        "smem.a",
        ("keeps only 2 elements contiguous", "what ldmatrix can load"),
    ),
}


@pytest.mark.parametrize("name", OF_SM120)
def test_fragments_of_sm120_come_by_ldmatrix(name: str) -> None:
    """The error stands at the key that leaves no ldmatrix, which the spec wrote."""
    asked, key, said = OF_SM120[name]
    with pytest.raises(SpecError) as caught:
        plan(replace(gemm(**asked), family="sm120"), "sm_90")
    assert caught.value.key == key
    assert [part for part in (*said, 'family = "sm80"') if part not in str(caught.value)] == [], str(caught.value)


def test_operands_of_two_types() -> None:
    spec = gemm()
    mixed = replace(spec, problem=replace(spec.problem, b=replace(spec.problem.b, dtype="bf16")))
    with pytest.raises(SpecError, match=r'problem.b.dtype: found "bf16"; expected "f16" as A has'):
        plan(mixed, "sm_80")


def test_the_way_out_of_too_few_threads_works() -> None:
    spec = gemm(
        tile=Tile(cta=(128, 128, 48)),
        mma=Mma(atom_layout=(2, 2, 1)),
        g2s=G2s(a=G2sCopy(threads="(64,2):(2,1)")),
    )
    assert plan(spec, "sm_80").a.g2s.bits == 128


def test_a_given_grid_takes_the_width_that_fits_it() -> None:
    """8 threads x 16 bytes are more than 64-byte rows, 8 x 8 bytes are not."""
    spec = gemm(
        tile=Tile(cta=(128, 128, 32)), mma=Mma(atom_layout=(2, 2, 1)), g2s=G2s(a=G2sCopy(threads="(16,8):(8,1)"))
    )
    assert plan(spec, "sm_80").a.g2s.bits == 64
