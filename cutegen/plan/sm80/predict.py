"""Instructions as often as the `sm80` template's kernels have them in their PTX text."""

from __future__ import annotations

from collections import Counter

from cutegen.algebra import TiledMma
from cutegen.arch import CpAsyncAtom, LdmatrixAtom, MmaAtom
from cutegen.plan.gemm_plan import OperandPlan, VectorCopy
from cutegen.plan.traffic import ldmatrix_per_k_block

MAIN_LOOPS = 2


def predict_instructions(
    a: OperandPlan, b: OperandPlan, atom: MmaAtom, tiled_mma: TiledMma, cta_tile: tuple[int, int, int], stages: int
) -> dict[str, int]:
    """Opcodes as often as the PTX text holds them.

    The prologue fills every stage and loads one k-block. Two main loops follow, for k-tiles that lie inside the
    matrices and for the others; neither is unrolled over k-tiles, and each has one fetch of a tile and every k-block
    once.
    """
    counts: Counter[str] = Counter()
    k_blocks = cta_tile[2] // tiled_mma.tile_mnk[2]
    for operand in (a, b):
        cp_async = operand.g2s.atom
        assert isinstance(cp_async, CpAsyncAtom)
        counts[cp_async.ptx] += (stages + MAIN_LOOPS) * cp_async_per_k_tile(operand, tiled_mma)
        if isinstance(operand.s2r.atom, LdmatrixAtom):
            counts[operand.s2r.atom.ptx] += (MAIN_LOOPS * k_blocks + 1) * ldmatrix_per_k_block(operand, tiled_mma)
    m, n, k = cta_tile
    warps = tiled_mma.threads // 32
    counts[atom.ptx] += MAIN_LOOPS * m * n * k // (warps * atom.shape_mnk[0] * atom.shape_mnk[1] * atom.shape_mnk[2])
    return dict(counts)


def cp_async_per_k_tile(operand: OperandPlan, tiled_mma: TiledMma) -> int:
    """`cp.async` that one thread executes for one k-tile of an operand."""
    assert isinstance(operand.g2s, VectorCopy)
    vector = operand.g2s.bits // operand.dtype.bits
    return operand.tile[0] * operand.tile[1] // (vector * tiled_mma.threads)
