"""Renders a plan to source text: the template writes what the plan decided, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jinja2 import Template

from cutegen.contract.source import KernelSource
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.plan.families import FAMILIES
from cutegen.plan.swapped import as_planned
from cutegen.render import bulk, plain, probe, vectors, warpgroup
from cutegen.render.environment import environment

HOLES: Mapping[str, Callable[[GemmPlan], dict[str, Any]]] = MappingProxyType(
    {
        "vectors": vectors.context,
        "bulk": bulk.context,
        "warpgroup": warpgroup.context,
        "plain": plain.context,
    }
)
"""Function that fills a template's holes, by the feed of its family."""


def render(plan: GemmPlan | ProbePlan) -> KernelSource:
    """Return the plan as one standalone CuTe DSL file."""
    if isinstance(plan, ProbePlan):
        template, holes = "gemm/ldmatrix_probe.py.j2", probe.context(plan)
    else:
        family, plan = FAMILIES[plan.family], as_planned(plan)
        template, holes = family.template, HOLES[family.feed.holes](plan)
        holes["scheduler"] = _template(plan.scheduler.source.template).make_module(holes)
    return KernelSource(_template(template).render(holes), plan.launch.entry)


def _template(name_or_text: str) -> Template:
    """Return a file of `templates/`, or a text of more than one line."""
    return environment().from_string(name_or_text) if "\n" in name_or_text else environment().get_template(name_or_text)
