"""Instructions as often as the `sm120` template's kernels have them in their PTX text."""

from __future__ import annotations

from collections import Counter

from cutegen.algebra import TiledMma
from cutegen.arch import LdmatrixAtom, MmaAtom
from cutegen.plan.gemm_plan import BulkTensorCopy, EpiloguePlan, OperandPlan
from cutegen.plan.traffic import ldmatrix_per_k_block

MAIN_LOOPS = 2


def predict_instructions(
    a: OperandPlan,
    b: OperandPlan,
    epilogue: EpiloguePlan,
    atom: MmaAtom,
    tiled_mma: TiledMma,
    cta_tile: tuple[int, int, int],
) -> dict[str, int]:
    """Opcodes as often as the PTX text holds them.

    One fetch of a k-tile; fragments of the first k-block; the loop over k-tiles, which loads every k-block, and the
    last k-tile, which loads all but that of a next one; one store of C.
    """
    counts: Counter[str] = Counter()
    k_blocks = cta_tile[2] // tiled_mma.tile_mnk[2]
    for operand in (a, b):
        assert isinstance(operand.g2s, BulkTensorCopy)
        assert isinstance(operand.s2r.atom, LdmatrixAtom)
        counts[operand.g2s.atom.ptx] += operand.g2s.boxes
        counts[operand.s2r.atom.ptx] += MAIN_LOOPS * k_blocks * ldmatrix_per_k_block(operand, tiled_mma)
    m, n, k = cta_tile
    warps = tiled_mma.threads // 32
    counts[atom.ptx] += MAIN_LOOPS * m * n * k // (warps * atom.shape_mnk[0] * atom.shape_mnk[1] * atom.shape_mnk[2])
    if isinstance(epilogue.store, BulkTensorCopy):
        counts[epilogue.store.atom.ptx] += epilogue.store.boxes
    return dict(counts)
