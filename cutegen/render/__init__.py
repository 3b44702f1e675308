"""From a plan to source text: the template writes down what the plan decided, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cutegen.plan import GemmPlan, ProbePlan
from cutegen.render import probe, simt, sm80, sm120
from cutegen.render.environment import environment
from cutegen.render.source import KernelSource

__all__ = ["TEMPLATES", "KernelSource", "render"]

TEMPLATES: Mapping[str, tuple[str, Callable[[GemmPlan], dict[str, Any]]]] = MappingProxyType(
    {
        "sm80": ("sm80_gemm.py.j2", sm80.context),
        "sm120": ("sm120_gemm.py.j2", sm120.context),
        "simt": ("simt_gemm.py.j2", simt.context),
    }
)
"""The template of each instruction family, and what fills its holes."""


def render(plan: GemmPlan | ProbePlan) -> KernelSource:
    """The plan as one standalone CuTe DSL file."""
    if isinstance(plan, ProbePlan):
        template, holes = "ldmatrix_probe.py.j2", probe.context(plan)
    else:
        template, context = TEMPLATES[plan.spec.family]
        holes = context(plan)
    return KernelSource(environment().get_template(template).render(holes), plan.launch.entry)
