"""`show SPEC`: the complete plan on one screen."""

from typing import Any

from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import ways
from cutegen.show.parts.tile import tile_of_c
from cutegen.show.view import View, section
from cutegen.support.words import extents, plural


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show the decisions, in one line each, and the predictions."""
    decided = [(decision.key, decision.chosen) for decision in plan.decisions]
    found = plan.predictions.wavefronts
    conflicts = [f"{key} {ways(found[key].ways)}" for key in plan.shared_accesses if key in found]
    ctas = plan.predictions.occupancy.ctas_per_sm
    fares = [
        ("CTA", f"{plan.threads} threads compute {_computed(plan)}, K in steps of {plan.cta_tile[2]}"),
        ("shared memory", f"{plan.smem_bytes:,} of {plan.target.smem_per_cta_bytes:,} bytes"),
        ("occupancy", f"{plural(ctas, 'CTA')} per SM"),
        ("bank conflicts", ", ".join(conflicts)),
    ]
    title = f"{plan.spec.name or 'unnamed spec'} for {plan.target.name}"
    tmem = "tmem " if plan.tensor_memory else ""
    more = [f"Parts: mma smem g2s s2r {tmem}epilogue pipeline partitions; reasons: cutegen plan"]
    table = {
        "spec": plan.spec.name,
        "description": plan.spec.description,
        "target": plan.target.name,
        "decided": dict(decided),
        "threads": plan.threads,
        "smem_bytes": plan.smem_bytes,
        "ctas_per_sm": ctas,
        "ways": {key: found[key].ways for key in plan.shared_accesses if key in found},
    }
    return View((section(title, decided), section("Predictions", fares), more), table)


def _computed(plan: GemmPlan) -> str:
    """Return the extents of the tile; with pairs of columns those of the sums, and of C, which has half as many."""
    sums, stored = extents(plan.cta_tile[:2]), extents(tile_of_c(plan))
    return sums if sums == stored else f"{sums} sums, {stored} of C"


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: the subject, and the decisions with their reasons."""
    m, n, k = plan.cta_tile
    return {
        "title": plan.spec.name or plan.kernel_name,
        "description": plan.spec.description or "",
        "family": plan.family,
        "target": plan.target.name,
        "swapped": plan.swapped,
        "cta": [m, n, k],
        "stages": plan.stages,
        "threads": plan.threads,
        "smem_bytes": plan.smem_bytes,
        "ctas_per_sm": plan.predictions.occupancy.ctas_per_sm,
        "decisions": [[decision.key, decision.chosen, decision.why] for decision in plan.decisions],
    }
