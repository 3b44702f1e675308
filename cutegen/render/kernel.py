"""Renders a plan to source text: the templates write what the plan decided, and decide nothing.

A kernel's text is one skeleton with points, and parts that have text for them (`cutegen/render/environment.py`). Each
way to multiply, with its way to shared memory, has a writer: it lists the parts and fills their holes.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cutegen.contract.source import KernelSource
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.plan.families import FAMILIES
from cutegen.plan.kernel.accumulator import Home
from cutegen.plan.swapped import as_planned
from cutegen.render import bulk, probe, tcgen05, threads, warpgroup
from cutegen.render.environment import rendered

DRAINED = "drained"
"""Kernels with a role that drains the sums of another."""
Writer = Callable[[GemmPlan], dict[str, Any]]

BY_VECTORS: Mapping[str, Writer] = MappingProxyType(
    {"threads": threads.plain_context, "warps": threads.vectors_context}
)
"""Writers of kernels whose threads copy vectors to shared memory, by what executes an atom."""
BY_BOXES: Mapping[str, Writer] = MappingProxyType(
    {"warps": bulk.context, "warpgroups": warpgroup.context, DRAINED: tcgen05.context}
)
"""Writers of kernels whose shared memory bulk tensor copies fill, by what executes an atom, unless sums are drained."""


def render(plan: GemmPlan | ProbePlan) -> KernelSource:
    """Return the plan as one standalone CuTe DSL file."""
    if isinstance(plan, ProbePlan):
        return KernelSource(rendered("skeleton/probe.py.j2", probe.context(plan)), plan.launch.entry)
    family, plan = FAMILIES[plan.family], as_planned(plan)
    holes = _writer(plan)(plan)
    return KernelSource(
        rendered("skeleton/kernel.py.j2", {**holes, "parts": (*holes["parts"], *family.parts)}), plan.launch.entry
    )


def _writer(plan: GemmPlan) -> Writer:
    writers = plan.a.g2s.by_kind(vectors=lambda _: BY_VECTORS, boxes=lambda _: BY_BOXES)
    return writers[plan.atoms_are if plan.mma.accumulator.home is Home.REGISTERS else DRAINED]
