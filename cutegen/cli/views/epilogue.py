"""`show SPEC epilogue`: how C leaves the CTA."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cutegen.algebra import format_layout, offsets, spec_notation
from cutegen.cli.views.bulk import bulk_facts
from cutegen.cli.views.smem import corner_blocks
from cutegen.cli.views.view import View, named_layouts, phase_header, phase_rows, titled
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ranking, ranking_lines, ways
from cutegen.plan.geometry.access import by_warp, vectors
from cutegen.plan.values.copies import TileCopy, VectorCopy
from cutegen.plan.values.gemm_plan import SmemTile
from cutegen.support.words import extents

MODES = ("m", "n")


def epilogue(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
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
        return View((titled("C to global memory", facts), who), {**table, "smem": None, "layouts": layouts})
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
        titled("C to global memory", facts),
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
            titled(title, _phases(plan, shared, store, warp), header=phase_header(MODES), right={1})
        ],
        boxes=lambda _: [],
    )


def _phases(plan: GemmPlan, shared: SmemTile, store: VectorCopy, warp: int) -> list[tuple[str, ...]]:
    first = by_warp(vectors(store.threads, store.values, plan.cta_tile[:2])[..., 0])[0, warp]
    placed = offsets(shared.layout)[first] * plan.epilogue.dtype.bytes
    return phase_rows(placed, first, plan.cta_tile[0], store.bits // 8)
