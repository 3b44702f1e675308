"""C's way out: through shared memory, and the copy from there; or the fragments, stored as they are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cutegen.algebra import format_layout, offsets, spec_notation
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ranking, ranking_lines, ways
from cutegen.plan.geometry.access import by_warp, vectors
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.copies import TileCopy, VectorCopy
from cutegen.plan.values.gemm_plan import SmemTile
from cutegen.show.canvas.banks import bank_legend, phase_legend
from cutegen.show.canvas.picture import Picture, beside, captioned, titled
from cutegen.show.parts.bulk import bulk_facts
from cutegen.show.parts.mma import mma_legend, operand
from cutegen.show.parts.smem import cell_meaning, corner_blocks, part_of, shared_tile
from cutegen.show.parts.vector_copies import copy_grid, copy_legend, copy_phases
from cutegen.show.view import View, named_layouts, phase_header, phase_rows, section
from cutegen.support.words import extents

MODES = ("m", "n")


def view(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
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
    accesses = {key: plan.predictions.wavefronts[f"epilogue.{key}"] for key in ("write", "read")}
    then = c.store.by_kind(vectors=lambda store: f"stores of {store.bits} bits", boxes=lambda _: "bulk tensor stores")
    facts += [
        ("way", f"through shared memory, {c.smem.bytes:,} bytes, then {then}"),
        *(
            (key, f"{found.predicted:,} wavefronts of at least {found.ideal:,}, {ways(found.ways)}")
            for key, found in accesses.items()
        ),
        ("layout", format_layout(c.smem.layout)),
        *_how(c.smem, c.store, (c.major, MODES[1 - c.major_mode])),
    ]
    blocks = [
        section("C to global memory", facts),
        ranking_lines("Layouts of C, best first, * in use", ranking(c.smem)),
        *corner_blocks("C", c.smem, plan.cta_tile[:2], c.major_mode, MODES, c.dtype.bytes),
        *_first_store(plan, c.smem, c.store, thread // WARP),
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


def _first_store(plan: GemmPlan, shared: SmemTile, store: TileCopy, warp: int) -> list[list[str]]:
    """What a warp reads for its first store; no warp reads for boxes."""
    title = f"First store of warp {warp}: what its lanes read from shared memory"
    return store.by_kind(
        vectors=lambda store: [
            section(title, _phases(plan, shared, store, warp), header=phase_header(MODES), right={1})
        ],
        boxes=lambda _: [],
    )


def _phases(plan: GemmPlan, shared: SmemTile, store: VectorCopy, warp: int) -> list[tuple[str, ...]]:
    first = by_warp(vectors(store.threads, store.values, plan.cta_tile[:2])[..., 0])[0, warp]
    placed = offsets(shared.layout)[first] * plan.epilogue.dtype.bytes
    return phase_rows(placed, first, plan.cta_tile[0], store.bits // 8)


def picture(plan: GemmPlan, thread: int) -> Picture:
    """Through shared memory: banks, and the first store; else who holds which element of C."""
    smem, store = plan.epilogue.smem, plan.epilogue.store
    if smem is None or store is None:
        facts = ["C goes straight from registers to global memory; one tile of the tiled MMA"]
        return titled("C to global memory", facts, operand(plan, "C", thread), mma_legend(plan, thread))
    facts, pictures = store.by_kind(
        vectors=lambda store: ([], _stores(plan, smem, store, thread)),
        boxes=lambda store: ([f"{store.atom.name} moves it from there, box after box"], []),
    )
    tile = _tile(plan, smem), bank_legend()
    return titled("C to global memory, through shared memory", [cell_meaning(), *facts], *tile, *pictures)


def _stores(plan: GemmPlan, smem: SmemTile, store: VectorCopy, thread: int) -> list[Picture]:
    """The first store, who makes it and what it reads."""
    first = beside(_who(plan, store, thread), _banks(plan, smem, store, thread // WARP))
    return [first, copy_legend(plan, thread), phase_legend()]


def _tile(plan: GemmPlan, shared: SmemTile) -> Picture:
    c, found = plan.epilogue, plan.predictions.wavefronts
    shape, element_bytes = plan.cta_tile[:2], c.dtype.bytes
    caption = [
        f"C, {c.dtype.name}, {part_of(shape, element_bytes, c.major_mode)}: {shared.chosen.name}, "
        f"writes {ways(found[AccessKey.EPILOGUE_WRITE].ways)}, reads {ways(found[AccessKey.EPILOGUE_READ].ways)}",
        format_layout(shared.layout),
    ]
    return captioned(caption, shared_tile(shared, shape, c.major_mode, element_bytes, MODES))


def _who(plan: GemmPlan, store: VectorCopy, thread: int) -> Picture:
    who = copy_grid(store, plan.cta_tile[:2], plan.epilogue.major_mode, MODES, thread)
    return captioned([f"Stores of {store.bits} bits: threads {spec_notation(store.threads)}"], who)


def _banks(plan: GemmPlan, shared: SmemTile, store: VectorCopy, warp: int) -> Picture:
    shape = plan.cta_tile[:2]
    charts = copy_phases(shared.layout, store, shape, plan.epilogue.dtype.bytes, MODES, warp)
    return captioned([f"What warp {warp} reads for its first store"], charts)
