"""Instructions as often as the `sm80` template's kernels have them in their PTX text."""

from __future__ import annotations

from collections import Counter

from cutegen.algebra import TiledMma
from cutegen.arch import CpAsyncAtom, LdmatrixAtom, MmaAtom, Target
from cutegen.plan.gemm_plan import OperandPlan, VectorCopy
from cutegen.plan.instructions import copies_per_k_tile, load_global, stores_per_k_tile
from cutegen.plan.traffic import ldmatrix_per_k_block

EDGE_LOOPS = 1


def predict_instructions(
    a: OperandPlan,
    b: OperandPlan,
    atom: MmaAtom,
    target: Target,
    tiled_mma: TiledMma,
    cta_tile: tuple[int, int, int],
    stages: int,
    k_tiles_per_turn: int,
) -> dict[str, int]:
    """Opcodes as often as the PTX text holds them; of plain loads and stores those that bring A and B.

    The prologue fills every stage but the last and loads one k-block; with a single stage there is none. Two main loops
    follow: `k_tiles_per_turn` that lie inside the matrices, and one of the others. Each k-tile has one fetch and every
    k-block once.
    """
    counts: Counter[str] = Counter()
    k_blocks = cta_tile[2] // tiled_mma.tile_mnk[2]
    fills, blocks_ahead = stages - 1, 1 if stages > 1 else 0
    k_tiles = k_tiles_per_turn + EDGE_LOOPS
    for operand in (a, b):
        copies, copy = copies_per_k_tile(operand, tiled_mma), operand.g2s.atom
        if isinstance(copy, CpAsyncAtom):
            counts[copy.ptx] += (fills + k_tiles) * copies
        else:
            counts.update(_plain_copies(operand, tiled_mma, target, fills, k_tiles))
        if isinstance(operand.s2r.atom, LdmatrixAtom):
            loads = k_tiles * k_blocks + blocks_ahead
            counts[operand.s2r.atom.ptx] += loads * ldmatrix_per_k_block(operand, tiled_mma)
    m, n, k = cta_tile
    warps = tiled_mma.threads // 32
    counts[atom.ptx] += k_tiles * m * n * k // (warps * atom.shape_mnk[0] * atom.shape_mnk[1] * atom.shape_mnk[2])
    return dict(counts)


def _plain_copies(operand: OperandPlan, tiled_mma: TiledMma, target: Target, fills: int, k_tiles: int) -> Counter[str]:
    """Loads and stores of a k-tile's vectors for each of `fills` stages and each of the main loops' `k_tiles`.

    Where a k-tile may cross an edge of the matrix, a vector that does is loaded element by element; its last element
    lies outside.
    """
    counts: Counter[str] = Counter()
    assert isinstance(operand.g2s, VectorCopy)
    bits, element, copies = operand.g2s.bits, operand.dtype, copies_per_k_tile(operand, tiled_mma)
    counts[load_global(bits, element, target)] += (fills + k_tiles) * copies
    counts[load_global(element.bits, element, target)] += (fills + EDGE_LOOPS) * copies * (bits // element.bits - 1)
    for opcode, count in stores_per_k_tile(operand, tiled_mma, target).items():
        counts[opcode] += (fills + k_tiles) * count
    return +counts
