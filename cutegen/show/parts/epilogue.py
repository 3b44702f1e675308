"""C's store path: through shared memory and the copy from there, or straight from registers."""

from dataclasses import asdict
from functools import partial
from typing import Any

from cutegen.algebra import format_layout, spec_notation
from cutegen.contract.launch import RESULT
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.epilogue.store import ROW_BYTES, matrix_rows, part_mma
from cutegen.plan.gemm_plan import ways
from cutegen.plan.geometry import Coordinates, accumulators, by_warp, held_together, written_together
from cutegen.plan.swapped import spec_of_kernel
from cutegen.plan.values.copies import TileCopy, VectorCopy
from cutegen.plan.values.operand import LAST_MODE, operand_tile
from cutegen.show.canvas.banks import bank_legend, phase_legend
from cutegen.show.canvas.drawing import Picture, above, beside, captioned, titled
from cutegen.show.follow import ResultFollower
from cutegen.show.parts.copies import Requests, WarpAccess, bulk_facts, copy_grid, copy_legend, copy_page, first_access
from cutegen.show.parts.mma import mma_legend, operand
from cutegen.show.parts.tile import CELL_MEANING, Tile, corner_blocks, costed_tile, ranked, tile_of_c, tile_page
from cutegen.show.view import View, packed, section
from cutegen.support.words import extents


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show the path through shared memory: layout, ranking, thread grid and wavefronts; or from registers."""
    c, sectors = plan.epilogue, plan.predictions.sectors["epilogue"]
    facts = [
        ("tile", f"{extents(tile_of_c(plan))} {c.dtype.name}, contiguous along {c.major}"),
        ("sectors", f"{sectors.predicted:,} of at least {sectors.ideal:,}"),
        *(("step", step.text) for step in c.fusion.steps),
    ]
    table: dict[str, Any] = {
        "spec": plan.spec.name,
        "dtype": c.dtype.name,
        "major": c.major,
        "sectors": asdict(sectors),
        "steps": [step.text for step in c.fusion.steps],
    }
    smem, store = c.smem, c.store
    if smem is None or store is None:
        facts.append(("path", "directly from registers; thread and value to element as mmaC.get_layoutC_TV()"))
        layouts = {"get_layoutC_TV()": format_layout(plan.tiled_mma.tv_layout("C"))}
        who = section("Elements of each thread", [*layouts.items()])
        return View((section("C to global memory", facts), who), {**table, "smem": None, "layouts": layouts})
    tile = Tile.of_result(plan, smem)
    along = tile.modes[c.major_mode], tile.modes[1 - c.major_mode]
    accesses = {key: plan.predictions.wavefronts[f"epilogue.{key}"] for key in ("write", "read")}
    then, how = store.by_kind(
        vectors=lambda store: (f"stores of {store.bits} bits", [("threads", spec_notation(store.threads))]),
        boxes=lambda store: ("bulk tensor stores", bulk_facts(store, smem, along)),
    )
    facts += [
        ("path", f"through shared memory, {smem.bytes:,} bytes, then {then}"),
        *(
            (key, f"{found.predicted:,} wavefronts of at least {found.ideal:,}, {ways(found.ways)}")
            for key, found in accesses.items()
        ),
        ("layout", format_layout(smem.layout)),
        *how,
    ]
    blocks = [
        section("C to global memory", facts),
        ranked("Layouts of C, best first, * in use", smem, everything=everything),
        *corner_blocks(tile, everything=everything),
        _first_write(plan, tile, thread // WARP).lines(
            f"First write of warp {thread // WARP}, by {_writer(plan, tile)}"
        ),
        *_first_store(store, tile, thread // WARP),
    ]
    table |= {
        "smem": format_layout(smem.layout),
        "bytes": smem.bytes,
        "store": store.to_json(),
        "wavefronts": {key: asdict(found) for key, found in accesses.items()},
    }
    return View(tuple(blocks), table)


def _first_store(store: TileCopy, tile: Tile, warp: int) -> list[list[str]]:
    """Write what a warp reads for its first store; no warp reads for boxes."""
    title = f"First store of warp {warp}: reads of its lanes from shared memory"
    return store.by_kind(
        vectors=lambda store: [first_access(store, tile, warp).lines(title), _first_request(store, tile, warp)],
        boxes=lambda _: [],
    )


def _first_request(store: VectorCopy, tile: Tile, warp: int) -> list[str]:
    requests = Requests.of(store, tile)
    first, *table = requests.lines(f"{requests.caption(warp, warp)};", warp)
    return [first, requests.summary, *table]


def picture(plan: GemmPlan, thread: int) -> Picture:
    """Draw the banks and the first store; without shared memory, the thread of each element of C."""
    smem, store = plan.epilogue.smem, plan.epilogue.store
    if smem is None or store is None:
        facts = ["C is stored directly from registers to global memory; one tile of the tiled MMA"]
        return titled("C to global memory", facts, operand(plan, "C", thread), mma_legend(plan, thread))
    tile = Tile.of_result(plan, smem)
    facts, pictures = store.by_kind(
        vectors=lambda store: ([], _drawn_stores(plan, tile, store, thread)),
        boxes=lambda store: ([f"{store.atom.name} stores it, box by box"], []),
    )
    title = "C to global memory, through shared memory"
    warp = thread // WARP
    written = plan.predictions.wavefronts[tile.write]
    caption = [f"First write of warp {warp}, by {_writer(plan, tile)}: {ways(written.ways)}"]
    write = captioned(caption, _first_write(plan, tile, warp).picture())
    return titled(title, [CELL_MEANING, *facts], costed_tile(tile, plan), bank_legend(), write, *pictures)


def _first_write(plan: GemmPlan, tile: Tile, warp: int) -> WarpAccess:
    """Return the shared memory access of a warp's lanes in their first write of sums; all warpgroups are alike."""
    written, access_bytes = _written(plan, tile)
    return WarpAccess(tile, written[0, warp % written.shape[1]], access_bytes)


def _writer(plan: GemmPlan, tile: Tile) -> str:
    """Return the instruction that writes sums to shared memory."""
    stmatrix = plan.epilogue.stmatrix
    return stmatrix.ptx if stmatrix else f"st.shared of {_written(plan, tile)[1]} bytes"


def _drawn_stores(plan: GemmPlan, tile: Tile, store: VectorCopy, thread: int) -> list[Picture]:
    """Draw the threads of the first store and its reads."""
    warp = thread // WARP
    who = captioned(
        [f"Stores of {store.bits} bits: threads {spec_notation(store.threads)}"], copy_grid(store, tile, thread)
    )
    banks = captioned([f"Reads of warp {warp} for its first store"], first_access(store, tile, warp).picture())
    requests = Requests.of(store, tile)
    stored = captioned([requests.caption(warp, warp), requests.summary], requests.picture(warp))
    return [beside(above(who, stored), banks), copy_legend(plan, thread), phase_legend()]


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: C's tile, or the part of it that is stored at once, its writes and its stores."""
    c, sectors = plan.epilogue, plan.predictions.sectors["epilogue"]
    found: dict[str, Any] = {
        "dtype": c.dtype.name,
        "bits": c.dtype.bits,
        "major": c.major_mode,
        "tile": list(tile_of_c(plan)),
        "sectors": [sectors.predicted, sectors.ideal],
        "steps": [step.text for step in c.fusion.steps],
        "shared": None,
    }
    if c.smem is None or c.store is None:
        return found
    tile = Tile.of_result(plan, c.smem)
    written, access_bytes = _written(plan, tile)
    shared = {
        **tile_page(tile),
        "begins": plan.memory.offset_bytes(RESULT),
        "parts": _parts(plan, tile.extents) if c.parts else None,
        "by": _writer(plan, tile),
        "written": packed(written),
        "access": access_bytes,
        "store": copy_page(c.store, tile),
    }
    return {**found, "shared": shared}


def _parts(plan: GemmPlan, part: tuple[int, int]) -> list[list[tuple[int, int]]]:
    """Return for each part of C's tile, down and to the right, its number in its warpgroup and its place in smem."""
    m, n = tile_of_c(plan)
    result = ResultFollower(plan)
    rows = [[result.staged((i, j)) for j in range(0, n, part[1])] for i in range(0, m, part[0])]
    return [[(found.part, found.place.stage) for found in row if found is not None] for row in rows]


def _written(plan: GemmPlan, tile: Tile) -> tuple[Coordinates, int]:
    """Return the start of each lane's write to shared memory, [write, warp, lane] as coordinates, and its bytes.

    `stmatrix` writes rows of 16 bytes. Otherwise a thread writes the neighbors that it holds; in the complete tile
    these include the values that are adjacent there.
    """
    c, mma = plan.epilogue, plan.tiled_mma
    spec = spec_of_kernel(plan)  # the tile and the major of C are the kernel's
    x = operand_tile(spec, "c", (*tile.extents, plan.cta_tile[2]))
    if c.parts is not None:
        if c.stmatrix is not None:
            return matrix_rows(x, c.stmatrix), ROW_BYTES
        mma = part_mma(plan.mma, c.parts.tile)
    held = partial(accumulators, mma, x.extents)
    if c.parts is not None:
        pair = min(held_together(mma, x.major_mode), x.vector_elems)
        return by_warp(held(pair)[..., 0]), pair * x.dtype.bytes
    pair = min(held_together(mma, LAST_MODE), x.last_elems)
    first, elems = written_together(held, pair, tile.smem.layout, x.dtype.bits)
    return by_warp(first), elems * x.dtype.bytes
