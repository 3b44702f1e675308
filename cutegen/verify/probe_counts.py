"""The executor's counts for one launch of a probe, compared with its plan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cutegen.hardware.units import WARP
from cutegen.plan import ProbePlan
from cutegen.plan.values.copies import AccessKey
from cutegen.ptx import InstructionReport, LaunchReport
from cutegen.support.words import plural
from cutegen.verify.counts import Count, LaunchCounts


def count_probe(plan: ProbePlan, report: LaunchReport) -> LaunchCounts:
    """Compare the report of a launch of `plan`'s kernel with the plan, which predicts for one stage."""
    stages = plan.gemm.stages
    words = plural(stages, "stage")
    unit = {key: row.predicted for key, row in plan.predictions.wavefronts.items()}
    unit[AccessKey.S2R] = sum(unit.values())
    warps = plan.gemm.threads // WARP
    return LaunchCounts(
        wavefronts={
            key: Count(unit[key] * stages, sum(site.wavefronts for site in sites), f"{unit[key]:,} x {words}")
            for key, sites in _loads(plan, report)
        },
        line_writes={},
        sectors={},
        boxes={},
        executed={
            opcode: Count(
                count * stages * warps, report.executed(opcode), f"{count:,} x {plural(warps, 'warp')} x {words}"
            )
            for opcode, count in sorted(plan.predictions.instructions.items())
        },
    )


def _loads(plan: ProbePlan, report: LaunchReport) -> Iterator[tuple[str, list[InstructionReport]]]:
    """Return the loads of A, then those of B, in text order; a plain load is identified by its opcode."""
    ldmatrix, plain = list(report.matching("ldmatrix")), list(report.matching("ld.shared"))
    by_ldmatrix = {x.name: x.s2r.by_ldmatrix for x in plan.operands}
    if all(by_ldmatrix.values()):
        sites = iter(ldmatrix)
        for x in plan.operands:
            yield AccessKey.s2r(x.name), list(islice(sites, x.loads(plan.gemm.tiled_mma).total()))
    elif any(by_ldmatrix.values()):
        yield from ((AccessKey.s2r(name), ldmatrix if found else plain) for name, found in by_ldmatrix.items())
    else:
        yield AccessKey.S2R, plain
