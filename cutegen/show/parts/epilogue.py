"""C's way out: through shared memory, and the copy from there; or the fragments, stored as they are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cutegen.algebra import format_layout, spec_notation
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ways
from cutegen.plan.values.copies import TileCopy, VectorCopy
from cutegen.plan.values.smem import SmemTile
from cutegen.show.canvas.banks import bank_legend, phase_legend
from cutegen.show.canvas.picture import Picture, beside, captioned, titled
from cutegen.show.parts.bulk import bulk_facts
from cutegen.show.parts.mma import mma_legend, operand
from cutegen.show.parts.tile import CELL_MEANING, Tile, corner_blocks, costed_tile, ranked
from cutegen.show.parts.vector_copies import copy_grid, copy_legend, first_access
from cutegen.show.view import View, named_layouts, section
from cutegen.support.words import extents


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Through shared memory: layout, ranking, thread grid and wavefronts; else that it goes straight from registers."""
    c, sectors = plan.epilogue, plan.predictions.sectors["epilogue"]
    facts = [
        ("tile", f"{extents(plan.cta_tile[:2])} {c.dtype.name}, contiguous along {c.major}"),
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
    if c.smem is None or c.store is None:
        facts.append(("way", "straight from registers; thread and value to element as mmaC.get_layoutC_TV()"))
        layouts = {"get_layoutC_TV()": format_layout(plan.tiled_mma.tv_layout("C"))}
        who = named_layouts("Who holds which element", layouts)
        return View((section("C to global memory", facts), who), {**table, "smem": None, "layouts": layouts})
    tile = Tile.of_result(plan, c.smem)
    accesses = {key: plan.predictions.wavefronts[f"epilogue.{key}"] for key in ("write", "read")}
    then = c.store.by_kind(vectors=lambda store: f"stores of {store.bits} bits", boxes=lambda _: "bulk tensor stores")
    facts += [
        ("way", f"through shared memory, {c.smem.bytes:,} bytes, then {then}"),
        *(
            (key, f"{found.predicted:,} wavefronts of at least {found.ideal:,}, {ways(found.ways)}")
            for key, found in accesses.items()
        ),
        ("layout", format_layout(c.smem.layout)),
        *_how(c.smem, c.store, (tile.modes[c.major_mode], tile.modes[1 - c.major_mode])),
    ]
    blocks = [
        section("C to global memory", facts),
        ranked("Layouts of C, best first, * in use", c.smem, everything=everything),
        *corner_blocks(tile, everything=everything),
        *_first_store(c.store, tile, thread // WARP),
    ]
    table |= {
        "smem": format_layout(c.smem.layout),
        "bytes": c.smem.bytes,
        "store": c.store.to_json(),
        "wavefronts": {key: asdict(found) for key, found in accesses.items()},
    }
    return View(tuple(blocks), table)


def _how(shared: SmemTile, store: TileCopy, modes: tuple[str, str]) -> list[tuple[str, str]]:
    return store.by_kind(
        vectors=lambda store: [("threads", spec_notation(store.threads))],
        boxes=lambda store: bulk_facts(store, shared, modes),
    )


def _first_store(store: TileCopy, tile: Tile, warp: int) -> list[list[str]]:
    """What a warp reads for its first store; no warp reads for boxes."""
    title = f"First store of warp {warp}: what its lanes read from shared memory"
    return store.by_kind(
        vectors=lambda store: [first_access(store, tile, warp).lines(title)],
        boxes=lambda _: [],
    )


def picture(plan: GemmPlan, thread: int) -> Picture:
    """Through shared memory: banks, and the first store; else who holds which element of C."""
    smem, store = plan.epilogue.smem, plan.epilogue.store
    if smem is None or store is None:
        facts = ["C goes straight from registers to global memory; one tile of the tiled MMA"]
        return titled("C to global memory", facts, operand(plan, "C", thread), mma_legend(plan, thread))
    tile = Tile.of_result(plan, smem)
    facts, pictures = store.by_kind(
        vectors=lambda store: ([], _drawn_stores(plan, tile, store, thread)),
        boxes=lambda store: ([f"{store.atom.name} moves it from there, box after box"], []),
    )
    title = "C to global memory, through shared memory"
    return titled(title, [CELL_MEANING, *facts], costed_tile(tile, plan), bank_legend(), *pictures)


def _drawn_stores(plan: GemmPlan, tile: Tile, store: VectorCopy, thread: int) -> list[Picture]:
    """The first store, who makes it and what it reads."""
    warp = thread // WARP
    who = captioned(
        [f"Stores of {store.bits} bits: threads {spec_notation(store.threads)}"], copy_grid(store, tile, thread)
    )
    banks = captioned([f"What warp {warp} reads for its first store"], first_access(store, tile, warp).picture())
    return [beside(who, banks), copy_legend(plan, thread), phase_legend()]
