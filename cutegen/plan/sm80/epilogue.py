"""Rule for the epilogue: how C gets from accumulators to global memory."""

from __future__ import annotations

from cutegen.algebra import TiledMma, offsets_2d, tile_to_shape
from cutegen.arch import dtype, universal_atom
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import EpiloguePlan, VectorCopy
from cutegen.plan.sm80.access import Coordinates, by_warp, contiguity, over_tile, vectors
from cutegen.plan.sm80.smem import Access, SmemRequest, choose_smem, lay_out, requested_shape
from cutegen.plan.sm80.vectors import thread_grid, vector_copy
from cutegen.plan.text import extents
from cutegen.spec import GemmSpec

DEFAULT_ALIGN_BYTES = 16
PAIR_ELEMS = 2
STORE_BITS = (128, 64, 32, 16)


def choose_epilogue(
    spec: GemmSpec, tiled_mma: TiledMma, cta_tile: tuple[int, int, int], smem_capacity_bytes: int
) -> Choice[EpiloguePlan]:
    """C through shared memory, so that each thread stores whole 16-byte vectors; or straight from registers.

    Staging reuses the memory of the pipeline.
    """
    c = spec.problem.c
    align_bytes = c.align or DEFAULT_ALIGN_BYTES
    major_mode = ("m", "n").index(c.major)
    tile = cta_tile[0], cta_tile[1]
    element = dtype(c.dtype)
    asked = spec.epilogue.smem
    together = STORE_BITS[0] // element.bits
    requested = requested_shape(spec, "epilogue.smem", asked, tile, major_mode)
    if requested is not None:
        together = contiguity(tile_to_shape(requested.atom, tile), tile, major_mode)
    store = _store(tile, major_mode, element.bits, min(align_bytes, together * element.bytes), tiled_mma.threads)
    request = smem_request(tiled_mma, tile, major_mode, element.bytes, store, min(PAIR_ELEMS, together))
    ranking = choose_smem(spec, request, asked)
    staged = lay_out(ranking.value, tile, None)
    too_big = staged.bytes > smem_capacity_bytes
    if too_big and asked not in (None, False):
        raise spec.error(
            "epilogue.smem",
            found=f"{extents(tile)} {c.dtype} with {staged.chosen.name}: {staged.bytes:,} bytes",
            expected=f"at most {smem_capacity_bytes:,} bytes of shared memory",
            fix="smem = false stores straight from registers",
        )
    if asked is False or too_big:
        plan = EpiloguePlan(dtype=element, major=c.major, align_bytes=align_bytes, smem=None, store=None)
        why = "given" if asked is False else f"{staged.bytes:,} bytes of C do not fit shared memory"
        return Choice(plan, Decision("epilogue.smem", "false, straight from registers", why, given=asked is False))
    plan = EpiloguePlan(dtype=element, major=c.major, align_bytes=align_bytes, smem=staged, store=store)
    why = f"each thread stores {store.bits // 8} bytes at once; {ranking.decision.why}"
    direct = Rejected(
        "straight from registers", "a thread holds two neighbours at most, 4 bytes of a 32-byte sector at a time"
    )
    rejected = ((direct,) if asked is None else ()) + ranking.decision.rejected
    chosen = f"{staged.chosen.name}, {store.bits}-bit stores"
    return Choice(plan, Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected))


def _store(tile: tuple[int, int], major_mode: int, element_bits: int, limit_bytes: int, threads: int) -> VectorCopy:
    """The widest store that alignment allows and whose threads tile C; the MMA's own tiling shows that single elements do."""
    for bits in STORE_BITS:
        if element_bits <= bits <= 8 * limit_bytes:
            grid = thread_grid(tile, major_mode, bits // element_bits, threads)
            if grid is not None:
                return vector_copy(universal_atom(bits), bits, grid, major_mode, element_bits)
    raise AssertionError(f"{threads} threads cannot tile C {tile}")


def accumulators(tiled_mma: TiledMma, tile: tuple[int, int]) -> Coordinates:
    """C's elements, int64[instruction, thread, value]: which accumulator holds which element of the tile."""
    m, n, _ = tiled_mma.tile_mnk
    return over_tile(offsets_2d(tiled_mma.tv_layout("C")), (m, n), tile)


def smem_request(
    tiled_mma: TiledMma, tile: tuple[int, int], major_mode: int, element_bytes: int, store: VectorCopy, pair_elems: int
) -> SmemRequest:
    """How C's tile is written by accumulators, two neighbours along N at once where N is contiguous, and read by stores."""
    pair = pair_elems if major_mode == 1 else 1
    held = accumulators(tiled_mma, tile)
    grouped = held.reshape(held.shape[0], held.shape[1], -1, pair)[..., 0].transpose(0, 2, 1)
    written = by_warp(grouped.reshape(-1, tiled_mma.threads))
    read = by_warp(vectors(store.threads, store.values, tile)[..., 0])
    return SmemRequest(
        key="epilogue.smem",
        tile=tile,
        major_mode=major_mode,
        element_bytes=element_bytes,
        write=Access(written, pair * element_bytes),
        read=Access(read, store.bits // 8),
    )
