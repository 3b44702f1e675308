"""A finished plan, proved again from the algebra: nothing here trusts the rules that made it."""

from __future__ import annotations

import numpy as np

from cutegen.algebra import TiledMma, ldmatrix_trace, offsets, offsets_2d
from cutegen.arch import LdmatrixAtom
from cutegen.errors import ProofError
from cutegen.plan.gemm_plan import EpiloguePlan, GemmPlan, OperandPlan, VectorCopy
from cutegen.plan.sm80.access import Coordinates, over_tile, vectors

MATRIX_ROWS = 8
WARP = 32


def prove(plan: GemmPlan) -> None:
    """Raise ProofError unless the plan moves every element exactly once, aligned, to where the tensor core wants it."""
    for operand in (plan.a, plan.b):
        _prove_vectors(f"g2s.{operand.name}", operand.g2s, operand.tile, operand.major_mode, plan.threads)
        _prove_aligned(f"g2s.{operand.name}", operand)
        _prove_smem(operand, plan.stages)
        _prove_fragments(operand, plan.tiled_mma)
    _prove_accumulators(plan.tiled_mma, plan.cta_tile[:2])
    _prove_epilogue(plan.epilogue, plan.cta_tile[:2], plan.threads)
    _prove_capacity(plan)


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ProofError(f"{what}: this is a defect of cutegen, please report the spec")


def _covers_once(table: Coordinates, elems: int) -> bool:
    return table.size == elems and np.array_equal(np.sort(table, axis=None), np.arange(elems))


def _prove_vectors(key: str, copy: VectorCopy, tile: tuple[int, int], major_mode: int, threads: int) -> None:
    """Each element in one vector of one thread; each vector along the contiguous mode, starting at a multiple of its length."""
    table = vectors(copy.threads, copy.values, tile)
    _demand(table.shape[1] == threads, f"{key} uses {table.shape[1]} of {threads} threads")
    _demand(_covers_once(table, tile[0] * tile[1]), f"{key} does not copy every element of the tile exactly once")
    along, across = (table // tile[0], table % tile[0]) if major_mode == 1 else (table % tile[0], table // tile[0])
    length = table.shape[2]
    _demand(
        bool((across == across[..., :1]).all() and (along == along[..., :1] + np.arange(length)).all()),
        f"{key} has vectors that do not run along the contiguous mode",
    )
    _demand(
        bool((along[..., 0] % length == 0).all()), f"{key} has vectors that do not start at a multiple of their length"
    )


def _prove_aligned(key: str, operand: OperandPlan) -> None:
    """Global addresses are multiples of the vector because base and leading stride are; shared ones are looked at."""
    _demand(operand.g2s.bits <= 8 * operand.align_bytes, f"{key} copies more than the operand's alignment")
    table = vectors(operand.g2s.threads, operand.g2s.values, operand.tile)
    length = table.shape[2]
    placed = _one_stage(operand)[table]
    _demand(
        bool((placed == placed[..., :1] + np.arange(length)).all() and (placed[..., 0] % length == 0).all()),
        f"{key} has vectors that are not contiguous and aligned in shared memory",
    )


def _one_stage(operand: OperandPlan) -> Coordinates:
    return offsets(operand.smem.layout)[: operand.tile[0] * operand.tile[1]]


def _prove_smem(operand: OperandPlan, stages: int) -> None:
    """Every element of every stage has its own place within the bytes that are set aside."""
    table = offsets(operand.smem.layout)
    key = f"smem.{operand.name}"
    _demand(
        table.size == operand.tile[0] * operand.tile[1] * stages, f"{key} does not hold {stages} stages of the tile"
    )
    _demand(np.unique(table).size == table.size, f"{key} puts two elements at one offset")
    _demand(
        int(table.max() + 1) * operand.dtype.bytes <= operand.smem.bytes,
        f"{key} reaches past its {operand.smem.bytes} bytes",
    )


def _prove_fragments(operand: OperandPlan, tiled_mma: TiledMma) -> None:
    """What arrives in registers is what the MMA atom wants there.

    `ldmatrix` is carried out as PTX ISA defines it: lane 8 i + r addresses row r of matrix i, and thread t receives of each
    matrix elements 2 (t mod 4) and 2 (t mod 4) + 1 of row t / 4, or with .trans the same of column t / 4.
    """
    op, key = operand.operand, f"s2r.{operand.name}"
    wanted = over_tile(offsets_2d(tiled_mma.tv_layout(op)), tiled_mma.tile_of(op), operand.tile)
    covered = np.unique(wanted)
    _demand(_covers_once(covered, operand.tile[0] * operand.tile[1]), f"{key} leaves out elements of the tile")
    if not isinstance(operand.s2r.atom, LdmatrixAtom):
        return
    trace = ldmatrix_trace(tiled_mma, op, operand.smem.layout_of_one_stage, operand.s2r.atom, operand.dtype.bits)
    _demand(trace.legal, f"{key}: {trace.illegal_rows()}")
    memory = np.empty(int(_one_stage(operand).max()) + 1, np.int64)
    memory[_one_stage(operand)] = np.arange(operand.tile[0] * operand.tile[1])
    rows = trace.source_offsets[:, :, : MATRIX_ROWS * operand.s2r.atom.matrices, 0]
    received = _execute_ldmatrix(memory, rows, operand.s2r.atom.transpose)
    _demand(np.array_equal(received, trace.destination_coords), f"{key} brings elements to the wrong registers")
    _demand(
        np.array_equal(_by_thread(received), _by_thread(wanted)),
        f"{key} brings threads other elements than the MMA multiplies",
    )


def _by_thread(table: Coordinates) -> Coordinates:
    """The elements each thread has, in order: int64[instruction, thread, value] as int64[thread, element]."""
    by_thread: Coordinates = np.sort(table.transpose(1, 0, 2).reshape(table.shape[1], -1), axis=1)
    return by_thread


def _execute_ldmatrix(memory: Coordinates, rows: Coordinates, transpose: bool) -> Coordinates:
    """int64[instruction, thread, value] out of row addresses int64[instruction, warp, 8 * matrices]."""
    instructions, warps, lanes = rows.shape
    matrices = memory[rows[..., None] + np.arange(8)].reshape(instructions, warps, lanes // 8, 8, 8)
    if transpose:
        matrices = matrices.swapaxes(-1, -2)
    thread = np.arange(WARP)
    pairs: Coordinates = matrices[:, :, :, thread[:, None] // 4, 2 * (thread[:, None] % 4) + np.arange(2)]
    return pairs.transpose(0, 1, 3, 2, 4).reshape(instructions, warps * WARP, -1)


def _prove_accumulators(tiled_mma: TiledMma, tile: tuple[int, int]) -> None:
    table = over_tile(offsets_2d(tiled_mma.tv_layout("C")), tiled_mma.tile_mnk[:2], tile)
    _demand(_covers_once(table, tile[0] * tile[1]), "the accumulators do not hold every element of C exactly once")


def _prove_epilogue(epilogue: EpiloguePlan, tile: tuple[int, int], threads: int) -> None:
    if epilogue.smem is None or epilogue.store is None:
        return
    _prove_vectors("epilogue", epilogue.store, tile, epilogue.major_mode, threads)
    table = offsets(epilogue.smem.layout)
    _demand(np.unique(table).size == tile[0] * tile[1], "epilogue.smem puts two elements at one offset")
    _demand(int(table.max() + 1) * epilogue.dtype.bytes <= epilogue.smem.bytes, "epilogue.smem reaches past its bytes")
    length = epilogue.store.bits // epilogue.dtype.bits
    placed = table[vectors(epilogue.store.threads, epilogue.store.values, tile)]
    _demand(
        bool((placed == placed[..., :1] + np.arange(length)).all() and (placed[..., 0] % length == 0).all()),
        "epilogue.smem has vectors that are not contiguous and aligned",
    )


def _prove_capacity(plan: GemmPlan) -> None:
    end_of_a, end_of_b = plan.a.smem.bytes, plan.smem_b_offset_bytes + plan.b.smem.bytes
    _demand(end_of_a <= plan.smem_b_offset_bytes, "A's shared memory runs into B's")
    _demand(end_of_b <= plan.smem_bytes <= plan.target.smem_per_cta_bytes, "the shared memory does not fit the target")
    _demand(plan.threads <= plan.target.threads_per_cta, f"{plan.threads} threads do not fit a CTA")
