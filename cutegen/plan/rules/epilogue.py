"""Rule for the epilogue: the path of C from accumulators to global memory."""

from __future__ import annotations

from functools import cache, partial

from cutegen.algebra import Extents, LayoutExpr, TiledMma
from cutegen.errors import SpecError
from cutegen.hardware import universal_atom
from cutegen.plan.geometry.access import Coordinates, by_warp, contiguity, vectors
from cutegen.plan.geometry.accumulators import accumulators, held_together, written_together
from cutegen.plan.rules.smem import Access, choose_smem, lay_out
from cutegen.plan.rules.vectors import thread_grid, vector_copy, widths_bits
from cutegen.plan.values.copies import TileCopy, VectorCopy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpilogueParts, EpiloguePlan, Fusion
from cutegen.plan.values.operand import LAST_MODE, OperandTile, operand_tile
from cutegen.plan.values.smem import SmemTile
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

DIRECT = "straight from registers"
FEW_SUMS = 4
"""Sums of a thread: one `mma.sync` per warp. On an H200 launches of 2 us are 0.02 to 0.1 us shorter without staging;
with 8 sums or more per thread they are longer.
"""


def choose_epilogue(
    spec: GemmSpec, fusion: Fusion, tiled_mma: TiledMma, cta_tile: Extents, smem_capacity_bytes: int
) -> Choice[EpiloguePlan]:
    """Store C through shared memory, so that each thread stores whole 16-byte vectors; or straight from registers.

    Staging reuses the memory of the pipeline.
    """
    x = operand_tile(spec, "c", cta_tile)
    if spec.epilogue.smem is False:
        return direct(x, fusion, "given", given=True)
    if spec.epilogue.smem is None and x.major == "n" and cta_tile[0] * cta_tile[1] <= FEW_SUMS * tiled_mma.threads:
        why = f"a thread has at most {FEW_SUMS} sums: two barriers would take longer than narrow stores"
        return direct(x, fusion, why)
    store = _store(x, tiled_mma.threads)
    pair = min(held_together(tiled_mma, LAST_MODE), x.last_elems)
    held = cache(partial(accumulators, tiled_mma, x.extents))

    def write(layout: LayoutExpr) -> Access:
        # If the spec requests none, all compared layouts keep equally many together.
        kept = min(pair, contiguity(layout, x.extents, LAST_MODE)) if x.requested else pair
        return _written(x, *written_together(held, kept, layout, x.dtype.bits))

    read, sliced = _read(x, store), _written(x, held(pair)[..., 0], pair)
    ranking = choose_smem(spec, x, tiled_mma, write, read, (sliced, read), store.tiled_copy)
    staged = lay_out(ranking.value, x.extents, None)
    if staged.bytes > smem_capacity_bytes:
        if spec.epilogue.smem is not None:
            raise _too_big(spec, x, staged, smem_capacity_bytes)
        why = f"C takes {staged.bytes:,} bytes of shared memory, more than {smem_capacity_bytes:,}"
        return direct(x, fusion, why)
    why = f"each thread stores {store.bits // 8} bytes at once; {ranking.decision.why}"
    held_bytes = held_together(tiled_mma, x.major_mode) * x.dtype.bytes
    not_direct = Rejected(DIRECT, f"a thread holds at most {held_bytes} adjacent bytes of a 32-byte sector")
    chosen = f"{staged.chosen.name}, {store.bits}-bit stores"
    rejected = (not_direct, *ranking.decision.rejected)
    decision = Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected)
    return Choice(epilogue_plan(x, fusion, staged, store), decision)


def direct(
    x: OperandTile,
    fusion: Fusion,
    why: str,
    *,
    given: bool = False,
    parts: EpilogueParts | None = None,
    rejected: tuple[Rejected, ...] = (),
) -> Choice[EpiloguePlan]:
    """Store C straight from registers."""
    decision = Decision("epilogue.smem", f"false, {DIRECT}", why, given=given, rejected=rejected)
    return Choice(epilogue_plan(x, fusion, parts=parts), decision)


def epilogue_plan(
    x: OperandTile,
    fusion: Fusion,
    smem: SmemTile | None = None,
    store: TileCopy | None = None,
    parts: EpilogueParts | None = None,
) -> EpiloguePlan:
    """Return the store path of C, whose tile or part is `x`."""
    return EpiloguePlan(
        dtype=x.dtype,
        major=x.major,
        align_bytes=x.align_bytes,
        fusion=fusion,
        smem=smem,
        store=store,
        parts=parts,
    )


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
    for bits in widths_bits(x.dtype.bits):
        if bits <= limit_bits:
            grid = thread_grid(x.extents, x.major_mode, bits // x.dtype.bits, threads)
            if grid is not None:
                return vector_copy(universal_atom(bits), bits, grid, x.major_mode, x.dtype.bits)
    raise AssertionError(f"{threads} threads cannot tile C {x.extents}")


def _written(x: OperandTile, first: Coordinates, elems: int) -> Access:
    """Return how accumulators write C's tile, `elems` at once from each of `first` [instruction, thread] on."""
    return Access(by_warp(first), elems * x.dtype.bytes, at_once=len(first))


def _read(x: OperandTile, store: VectorCopy) -> Access:
    """Return how C's tile is read for the stores."""
    first = by_warp(vectors(store.threads, store.values, x.extents)[..., 0])
    return Access(first, store.bits // 8, at_once=len(first))
