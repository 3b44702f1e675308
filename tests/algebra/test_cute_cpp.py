"""CuTe C++ is the reference: its printouts, character for character.

`golden/cute_cpp_tutorial_tn.txt` is what CUTLASS's sgemm_sm80 tutorial prints for thread 0;
`golden/cute_cpp_layouts.txt` is written by `golden/cute_cpp_layouts.cu`, for thread 37.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from cutegen.algebra import Dyn, Layout, Partition, TiledCopy, TiledMma, format_layout, parse_layout, tile_to_shape
from cutegen.hardware import LDMATRIX_ATOMS, MMA_ATOMS, cp_async_atom

GOLDEN = Path(__file__).parent / "golden"
M, N, K = 5120, 5120, 4096

TUTORIAL = "Sw<3,3,3> o (8,(8,8)):(8,(1,64))"
K64, K32, K32X16 = "Sw<3,3,3> o (8,64):(64,1)", "Sw<2,3,3> o (8,32):(32,1)", "Sw<2,3,3> o (16,32):(32,1)"
M64, M32 = "Sw<3,3,3> o (64,8):(1,64)", "Sw<2,3,3> o (32,8):(1,32)"
PAD40, PAD72, PAD136 = "(8,32):(40,1)", "(1,64):(72,1)", "(128,8):(1,136)"
M8, M16 = "SM80_16x8x8_F16F16F16F16_TN", "SM80_16x8x16_F32F16F16F32_TN"
N1, N2, N4 = "SM75_U32x1_LDSM_N", "SM75_U32x2_LDSM_N", "SM75_U32x4_LDSM_N"
T2, T4 = "SM75_U16x4_LDSM_T", "SM75_U16x8_LDSM_T"
WIDE, NARROW, TALL = (128, 128, 64, 3), (128, 128, 32, 2), (192, 64, 64, 2)
ROW_MAJOR_WARPS = Layout((2, 2, 1), (2, 1, 0))

# name: MMA atom, copy atoms of A and B, atom layout, permutation, shared-memory atoms of A and B, (bM, bN, bK, stages)
MMA_CASES = {
    "tutorial": (M8, N4, N4, (2, 2, 1), (32, 32, 16), TUTORIAL, TUTORIAL, WIDE),
    "k64": (M16, N4, N4, (2, 2, 1), (32, 32, 16), K64, K64, WIDE),
    "k64_smallest": (M16, N4, N2, (2, 2, 1), None, K64, K64, WIDE),
    "m64": (M16, T4, T4, (2, 2, 1), (32, 32, 16), M64, M64, WIDE),
    "m64_k64": (M16, T4, N4, (4, 1, 1), (64, 16, 16), M64, K64, WIDE),
    "k32": (M16, N4, N4, (1, 4, 1), (16, 64, 16), K32, K32X16, NARROW),
    "m32": (M16, T4, T4, (2, 2, 1), (32, 32, 32), M32, M32, NARROW),
    "pad40": (M16, N4, N4, (2, 2, 1), (32, 32, 16), PAD40, PAD40, NARROW),
    "pad72": (M16, N4, N4, (2, 2, 1), (32, 32, 16), PAD72, PAD72, WIDE),
    "pad136": (M16, T4, T4, (2, 2, 1), (32, 32, 16), PAD136, PAD136, WIDE),
    "k8": (M8, N2, N1, (2, 2, 1), (32, 16, 8), K64, K64, WIDE),
    "m_k8": (M8, T2, T2, (2, 2, 1), (32, 32, 8), M64, M64, WIDE),
    "split_k": (M16, N4, N4, (2, 1, 2), (64, 32, 32), K64, K64, WIDE),
    "tall": (M16, N4, N4, (2, 2, 1), (64, 32, 16), K64, K64, TALL),
    "row_major_warps": (M16, N4, N4, ROW_MAJOR_WARPS, (32, 32, 16), K64, K64, WIDE),
}

# name: thread layout, value layout, shared-memory atom, (bM, bK)
COPY_CASES = {
    "copy_tutorial": ("(16,8):(8,1)", "(1,8)", TUTORIAL, (128, 64)),
    "copy_k64": ("(16,8):(8,1)", "(1,8)", K64, (128, 64)),
    "copy_k32": ("(32,4):(4,1)", "(1,8)", K32, (128, 32)),
    "copy_pad40": ("(32,4):(4,1)", "(1,8)", PAD40, (128, 32)),
    "copy_m64": ("(8,16):(1,8)", "(8,1)", M64, (128, 64)),
}

Facts = dict[str, str]


def golden(name: str) -> list[list[str]]:
    """The words of each line: those before the layout, then the layout."""
    words = 1 if name == "cute_cpp_tutorial_tn.txt" else 2
    return [line.split(" ", words) for line in (GOLDEN / name).read_text().splitlines()]


def located(partition: Partition) -> str:
    return f"{partition} @ {partition.offset}"


def tiled_copies(mma: TiledMma, a: str, b: str) -> tuple[TiledCopy, TiledCopy]:
    return TiledCopy.for_mma(LDMATRIX_ATOMS[a], mma, "A", 16), TiledCopy.for_mma(LDMATRIX_ATOMS[b], mma, "B", 16)


@cache
def tutorial_facts() -> Facts:
    thread = 0
    mma = TiledMma(MMA_ATOMS[M8], (2, 2, 1), (32, 32, 16))
    copy = TiledCopy.from_thr_val(cp_async_atom("cp.async.ca", 128), parse_layout("(16,8):(8,1)"), Layout((1, 8)), 16)
    copy_a, copy_b = tiled_copies(mma, N4, N4)
    sA = tile_to_shape(parse_layout(TUTORIAL), (128, 64, 3))
    stage = tile_to_shape(parse_layout(TUTORIAL), (128, 64))
    gA = Layout((128, 64, Dyn(K // 64)), (Dyn(K), 1, 64))
    gC = Layout((128, 128), (1, Dyn(M)))
    tCrA, tCrB = mma.fragment("A", stage, thread), mma.fragment("B", stage, thread)
    return {
        "sA": format_layout(sA),
        "tAgA": str(copy.partition_s(gA, thread)),
        "tAsA": str(copy.partition_d(sA, thread)),
        "tCgC": str(mma.partition("C", gC, thread)),
        "tCsA": str(mma.partition("A", sA, thread)),
        "tCrA": format_layout(tCrA),
        "tCrB": format_layout(tCrB),
        "tCrC": format_layout(mma.fragment("C", gC, thread)),
        "tXsA": str(copy_a.partition_s(sA, thread)),
        "tXrA": format_layout(copy_a.retile(tCrA)),
        "tXsB": str(copy_b.partition_s(sA, thread)),
        "tXrB": format_layout(copy_b.retile(tCrB)),
        "mmaC.get_layoutA_TV()": format_layout(mma.tv_layout("A")),
        "mmaC.get_layoutB_TV()": format_layout(mma.tv_layout("B")),
        "mmaC.get_layoutC_TV()": format_layout(mma.tv_layout("C")),
        "ca.get_layoutS_TV()": format_layout(copy_a.layout_src_tv),
        "ca.get_layoutD_TV()": format_layout(copy_a.layout_dst_tv),
        "cb.get_layoutS_TV()": format_layout(copy_b.layout_src_tv),
        "cb.get_layoutD_TV()": format_layout(copy_b.layout_dst_tv),
        "copyA.get_layoutS_TV()": format_layout(copy.layout_src_tv),
        "copyA.get_layoutD_TV()": format_layout(copy.layout_dst_tv),
    }


@cache
def mma_facts(name: str, thread: int) -> Facts:
    atom, copy_atom_a, copy_atom_b, atom_layout, permutation, smem_a, smem_b, (bm, bn, bk, stages) = MMA_CASES[name]
    mma = TiledMma(MMA_ATOMS[atom], atom_layout, permutation)
    copy_a, copy_b = tiled_copies(mma, copy_atom_a, copy_atom_b)
    sA = tile_to_shape(parse_layout(smem_a), (bm, bk, stages))
    sB = tile_to_shape(parse_layout(smem_b), (bn, bk, stages))
    gC = Layout((bm, bn), (Dyn(N), 1))
    tCrA = mma.fragment("A", tile_to_shape(parse_layout(smem_a), (bm, bk)), thread)
    tCrB = mma.fragment("B", tile_to_shape(parse_layout(smem_b), (bn, bk)), thread)
    return {
        "vmnk": format_layout(mma.thr_layout_vmnk),
        "tvA": format_layout(mma.tv_layout("A")),
        "tvB": format_layout(mma.tv_layout("B")),
        "tvC": format_layout(mma.tv_layout("C")),
        "sA": format_layout(sA),
        "sB": format_layout(sB),
        "tCsA": located(mma.partition("A", sA, thread)),
        "tCsB": located(mma.partition("B", sB, thread)),
        "tCgC": located(mma.partition("C", gC, thread)),
        "tCrA": format_layout(tCrA),
        "tCrB": format_layout(tCrB),
        "tCrC": format_layout(mma.fragment("C", gC, thread)),
        "tXsA": located(copy_a.partition_s(sA, thread)),
        "tXsB": located(copy_b.partition_s(sB, thread)),
        "tXrA": format_layout(copy_a.retile(tCrA)),
        "tXrB": format_layout(copy_b.retile(tCrB)),
        "srcA": format_layout(copy_a.layout_src_tv),
        "dstA": format_layout(copy_a.layout_dst_tv),
        "srcB": format_layout(copy_b.layout_src_tv),
        "dstB": format_layout(copy_b.layout_dst_tv),
    }


@cache
def copy_facts(name: str, thread: int) -> Facts:
    threads, values, smem, (bm, bk) = COPY_CASES[name]
    copy = TiledCopy.from_thr_val(
        cp_async_atom("cp.async.ca", 128), parse_layout(threads), parse_layout(values), bits=16
    )
    sA = tile_to_shape(parse_layout(smem), (bm, bk, 3))
    gA = Layout((bm, bk, Dyn(K // bk)), (Dyn(K), 1, bk))
    return {
        "sA": format_layout(sA),
        "tAgA": located(copy.partition_s(gA, thread)),
        "tAsA": located(copy.partition_d(sA, thread)),
        "src": format_layout(copy.layout_src_tv),
    }


@pytest.mark.parametrize(("fact", "printed"), golden("cute_cpp_tutorial_tn.txt"))
def test_tutorial_printout(fact: str, printed: str) -> None:
    assert tutorial_facts()[fact] == printed


@pytest.mark.parametrize(("case", "fact", "printed"), golden("cute_cpp_layouts.txt"))
def test_printout(case: str, fact: str, printed: str) -> None:
    facts = mma_facts(case, 37) if case in MMA_CASES else copy_facts(case, 37)
    assert facts[fact] == printed


def test_golden_files_hold_every_fact() -> None:
    assert {fact for fact, _ in golden("cute_cpp_tutorial_tn.txt")} == set(tutorial_facts())
    expected = {(case, fact) for case in MMA_CASES for fact in mma_facts(case, 37)}
    expected |= {(case, fact) for case in COPY_CASES for fact in copy_facts(case, 37)}
    assert {(case, fact) for case, fact, _ in golden("cute_cpp_layouts.txt")} == expected
