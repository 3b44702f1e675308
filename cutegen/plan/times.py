"""The predicted time of a finished plan for any problem, also for one that it was not made for."""

from __future__ import annotations

from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.plan import swapped
from cutegen.plan.families import FAMILIES
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.search.least_time import least_time
from cutegen.plan.search.problem import timed
from cutegen.plan.values.predicted_time import PredictedTime
from cutegen.spec import GemmSpec, Tile


def predicted_time(plan: GemmPlan, problem: ProblemShape) -> PredictedTime:
    """Return the time of a launch on the reference GPU of the plan's target, by its family's performance model.

    Without a model, or where the model does not know such a kernel, it is the least that rates allow.
    """
    if plan.predicted_time is not None and plan.problem == problem:
        return plan.predicted_time
    try:
        proposed = FAMILIES[plan.family].proposed(_settled(plan), plan.target, problem)
        first = next((one for one in proposed if one.fits), None)
    except SpecError:  # the spec has no product like this one, such as groups without their number
        first = None
    return least_time(plan, problem) if first is None else timed(plan, first)


def _settled(plan: GemmPlan) -> GemmSpec:
    """Return the plan's spec with the keys given that performance models look at."""
    spec = swapped.as_read(plan.spec)
    decided = {decision.key for decision in plan.decisions}
    schedule = replace(spec.schedule, split_k=plan.slices if "schedule.split_k" in decided else spec.schedule.split_k)
    if "schedule.consumers" in decided:
        schedule = replace(schedule, consumers="pingpong" if plan.mma.role.alternates else "cooperative")
    if "schedule.cluster" in decided:
        m, n, k = plan.mma.cluster
        schedule = replace(schedule, cluster=(m, n) if k == 1 else (m, n, k))
    if plan.swapped:
        schedule = replace(schedule, swap=True)
    mma = replace(spec.mma, atom_layout=plan.atoms_mnk) if "mma.atom_layout" in decided else spec.mma
    return replace(spec, family=plan.family, tile=Tile(plan.cta_tile, plan.stages), mma=mma, schedule=schedule)
