"""Turns a spec into a plan by small rules in a fixed order, each with its reason.

>>> from cutegen.spec import load_spec
>>> plan(load_spec("sm80_hgemm_tn"), "sm_80").smem_bytes
98304
"""

from dataclasses import replace

from cutegen.contract.problem import ProblemLike, ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import Target
from cutegen.hardware.targeting import choose_target
from cutegen.plan import swapped
from cutegen.plan.families import FAMILIES, plan_with_any_family
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.probe import ProbePlan, plan_probe, probed_family
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.operand import Sectors, Wavefronts
from cutegen.spec import PROBE, GemmSpec, SpecLike, as_spec

__all__ = [
    "FAMILIES",
    "Choice",
    "Decision",
    "GemmPlan",
    "ProbePlan",
    "Rejected",
    "Sectors",
    "Wavefronts",
    "plan",
]


def plan(
    spec: SpecLike,
    arch: str | Target | None = None,
    problem: ProblemLike | None = None,
    *,
    tried: bool = False,
) -> GemmPlan | ProbePlan:
    """Decide everything that `spec` leaves open, for `arch`, else the present GPU, else the first suitable target.

    `spec` is a GemmSpec, the name of a shipped spec, or a path; `arch` is a target's name, such as `sm_90` or `h100`.

    With a `problem`, (M, N, K) or (M, N, K, batch), open keys are chosen for its extents. The kernel is correct for any
    other problem too. `tried` leaves out families of which no kernel has run on hardware, unless the spec names one.

    Raises SpecError if the target cannot meet the spec, RequestError for an unknown target.
    """
    spec = as_spec(spec)
    target = arch if isinstance(arch, Target) else choose_target(arch, least=spec.needs)
    try:
        gemm = _plan_gemm(swapped.as_read(spec), target, ProblemShape.of(problem), tried=tried)
    except SpecError as refusal:
        raise swapped.as_asked(refusal, spec) from None
    if spec.problem.b.transposed is not None:
        gemm = swapped.as_given(gemm, spec)
    return plan_probe(gemm) if spec.kind == PROBE else gemm


def _plan_gemm(spec: GemmSpec, target: Target, problem: ProblemShape | None, *, tried: bool = False) -> GemmPlan:
    """Plan by the family that the spec names, or a chosen one; only one family has a probe."""
    if spec.family is not None:
        return FAMILIES[spec.family].plan(spec, target, problem)
    if spec.kind == PROBE:
        return replace(_plan_gemm(replace(spec, family=probed_family()), target, problem), spec=spec)
    return plan_with_any_family(spec, target, problem, tried=tried)
