"""`show SPEC epilogue`: how C leaves the CTA."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cutegen.algebra import format_layout, offsets
from cutegen.cli.views.smem import corner_blocks
from cutegen.cli.views.view import View, named_layouts, phase_header, phase_rows, titled
from cutegen.plan import GemmPlan
from cutegen.plan.access import by_warp, vectors
from cutegen.plan.gemm_plan import SmemTile, VectorCopy
from cutegen.plan.partitions import Problem
from cutegen.plan.report import RANKING_HEADER, RANKING_RIGHT, ranking, spec_notation, ways
from cutegen.plan.text import extents

MODES = ("m", "n")


def epilogue(plan: GemmPlan, thread: int, problem: Problem) -> View:
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
    facts += [
        ("way", f"through shared memory, {c.smem.bytes:,} bytes, then stores of {c.store.bits} bits"),
        *(
            (key, f"{found.predicted:,} wavefronts of at least {found.ideal:,}, {ways(found.ways)}")
            for key, found in accesses.items()
        ),
        ("layout", format_layout(c.smem.layout)),
        ("threads", spec_notation(c.store.threads)),
    ]
    blocks = (
        titled("C to global memory", facts),
        titled("Layouts of C, best first, * in use", ranking(c.smem), header=RANKING_HEADER, right=RANKING_RIGHT),
        *corner_blocks("C", c.smem, plan.cta_tile[:2], c.major_mode, MODES, c.dtype.bytes),
        titled(
            f"First store of warp {thread // 32}: what its lanes read from shared memory",
            _phases(plan, c.smem, c.store, thread // 32),
            header=phase_header(MODES),
            right={1},
        ),
    )
    table |= {
        "smem": format_layout(c.smem.layout),
        "bytes": c.smem.bytes,
        "store": {"bits": c.store.bits, "threads": spec_notation(c.store.threads)},
        "wavefronts": {key: asdict(found) for key, found in accesses.items()},
    }
    return View(blocks, table)


def _phases(plan: GemmPlan, shared: SmemTile, store: VectorCopy, warp: int) -> list[tuple[str, ...]]:
    first = by_warp(vectors(store.threads, store.values, plan.cta_tile[:2])[..., 0])[0, warp]
    placed = offsets(shared.layout)[first] * plan.epilogue.dtype.bytes
    return phase_rows(placed, first, plan.cta_tile[0], store.bits // 8)
