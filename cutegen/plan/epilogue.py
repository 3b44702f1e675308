"""Rule for the epilogue: how C gets from accumulators to global memory."""

from __future__ import annotations

from cutegen.algebra import TiledMma, offsets_2d
from cutegen.arch import universal_atom
from cutegen.errors import SpecError
from cutegen.plan.access import Coordinates, by_warp, over_tile, vectors
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import EpiloguePlan, Fusion, SmemTile
from cutegen.plan.operand import OperandTile, operand_tile
from cutegen.plan.smem import Access, choose_smem, lay_out
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.vectors import thread_grid, vector_copy
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

PAIR_ELEMS = 2
STORE_BITS = (128, 64, 32, 16, 8)
DIRECT = "straight from registers"


def choose_epilogue(
    spec: GemmSpec, fusion: Fusion, tiled_mma: TiledMma, cta_tile: tuple[int, int, int], smem_capacity_bytes: int
) -> Choice[EpiloguePlan]:
    """C through shared memory, so that each thread stores whole 16-byte vectors; or straight from registers.

    Staging reuses the memory of the pipeline.
    """
    x = operand_tile(spec, "c", cta_tile)
    if spec.epilogue.smem is False:
        return Choice(direct(x, fusion), Decision("epilogue.smem", f"false, {DIRECT}", "given", given=True))
    store = _store(x, tiled_mma.threads)
    write, read = _accesses(x, tiled_mma, store)
    ranking = choose_smem(spec, x, tiled_mma, write, read, (write, read), store.tiled_copy)
    staged = lay_out(ranking.value, x.extents, None)
    if staged.bytes > smem_capacity_bytes:
        if spec.epilogue.smem is not None:
            raise _too_big(spec, x, staged, smem_capacity_bytes)
        why = f"C takes {staged.bytes:,} bytes of shared memory, more than {smem_capacity_bytes:,}"
        return Choice(direct(x, fusion), Decision("epilogue.smem", f"false, {DIRECT}", why))
    why = f"each thread stores {store.bits // 8} bytes at once; {ranking.decision.why}"
    held = held_together(tiled_mma, x.major_mode)
    not_direct = Rejected(DIRECT, f"a thread holds {held * x.dtype.bytes} neighbouring bytes at most, of a sector's 32")
    chosen = f"{staged.chosen.name}, {store.bits}-bit stores"
    rejected = (not_direct, *ranking.decision.rejected)
    decision = Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected)
    return Choice(_plan(x, fusion, staged, store), decision)


def direct(x: OperandTile, fusion: Fusion) -> EpiloguePlan:
    """C straight from registers."""
    return _plan(x, fusion, None, None)


def _plan(x: OperandTile, fusion: Fusion, smem: SmemTile | None, store: VectorCopy | None) -> EpiloguePlan:
    return EpiloguePlan(dtype=x.dtype, major=x.major, align_bytes=x.align_bytes, fusion=fusion, smem=smem, store=store)


def _too_big(spec: GemmSpec, x: OperandTile, staged: SmemTile, smem_capacity_bytes: int) -> SpecError:
    return spec.error(
        "epilogue.smem",
        found=f"{extents(x.extents)} {x.dtype.name} with {staged.chosen.name}: {staged.bytes:,} bytes",
        expected=f"at most {smem_capacity_bytes:,} bytes of shared memory",
        fix=f"smem = false stores {DIRECT}",
    )


def _store(x: OperandTile, threads: int) -> VectorCopy:
    """The widest store that alignment and shared layout allow and whose threads tile C.

    There always is one: the tiled MMA has the same threads and tiles C, so a grid of single elements does too.
    """
    limit_bits = 8 * min(x.align_bytes, x.vector_elems * x.dtype.bytes)
    for bits in STORE_BITS:
        if x.dtype.bits <= bits <= limit_bits:
            grid = thread_grid(x.extents, x.major_mode, bits // x.dtype.bits, threads)
            if grid is not None:
                return vector_copy(universal_atom(bits), bits, grid, x.major_mode, x.dtype.bits)
    raise AssertionError(f"{threads} threads cannot tile C {x.extents}")


def held_together(tiled_mma: TiledMma, major_mode: int) -> int:
    """How many neighbours along C's contiguous mode a thread holds in a row: of mma.sync two, along N."""
    held = offsets_2d(tiled_mma.tv_layout("C"))[0]
    pairs = len(held) > 1 and held[1] - held[0] == tiled_mma.tile_mnk[0]
    return PAIR_ELEMS if major_mode == 1 and pairs else 1


def accumulators(tiled_mma: TiledMma, tile: tuple[int, int], vector_elems: int) -> Coordinates:
    """C's elements as threads hold them, int64[instruction, thread, vector], in vectors of neighbours along N."""
    m, n, _ = tiled_mma.tile_mnk
    held = over_tile(offsets_2d(tiled_mma.tv_layout("C")), (m, n), tile)
    split = held.reshape(*held.shape[:2], -1, vector_elems)
    return split.transpose(0, 2, 1, 3).reshape(-1, held.shape[1], vector_elems)


def _accesses(x: OperandTile, tiled_mma: TiledMma, store: VectorCopy) -> tuple[Access, Access]:
    """How C's tile is written by accumulators, pairs at once where N is contiguous, and read for the stores."""
    pair = min(held_together(tiled_mma, x.major_mode), x.vector_elems)
    written = by_warp(accumulators(tiled_mma, x.extents, pair)[..., 0])
    read = by_warp(vectors(store.threads, store.values, x.extents)[..., 0])
    return Access(written, pair * x.dtype.bytes, at_once=True), Access(read, store.bits // 8, at_once=True)
