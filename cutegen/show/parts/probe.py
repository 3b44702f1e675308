"""`show SPEC` for a probe: what it loads, and how."""

from cutegen.plan import ProbePlan
from cutegen.plan.gemm_plan import ways
from cutegen.show.view import View, section
from cutegen.support.words import extents


def view(plan: ProbePlan) -> View:
    """Show the decisions, in one line each, and the output."""
    m, n, k = plan.extents
    found = plan.predictions.wavefronts
    decided = [(decision.key, decision.chosen) for decision in plan.decisions]
    tables = [plan.fragments(operand) for operand in plan.operands]
    does = [
        ("CTA", f"{plan.gemm.threads} threads load A {extents((m, k))} and B {extents((n, k))}, all stages"),
        ("registers", ", ".join(f"tCr{x.operand} {x.registers} per thread and stage" for x in tables)),
        ("shared memory", f"{plan.gemm.smem_bytes:,} of {plan.target.smem_per_cta_bytes:,} bytes"),
        ("bank conflicts", ", ".join(f"{key} {ways(value.ways)}" for key, value in found.items())),
    ]
    table = {
        "spec": plan.spec.name,
        "kind": plan.spec.kind,
        "description": plan.spec.description,
        "target": plan.target.name,
        "decided": dict(decided),
        "threads": plan.gemm.threads,
        "smem_bytes": plan.gemm.smem_bytes,
        "extents": list(plan.extents),
        "values": {operand.name: x.values for operand, x in zip(plan.operands, tables, strict=True)},
        "ways": {key: value.ways for key, value in found.items()},
    }
    title = f"{plan.spec.name or 'unnamed spec'} for {plan.target.name}, a probe"
    more = ["Parts: mma smem s2r partitions; check it: cutegen run"]
    return View((section(title, decided), section("What it does", does), more), table)
