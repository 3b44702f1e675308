"""`show SPEC partitions`: every layout of the main loop under the name of CuTe's tutorial."""

from __future__ import annotations

from cutegen.algebra import format_layout
from cutegen.cli.views.view import View
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.partitions import partitions as named_partitions


def partitions(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
    """Name and layout, one line each, as the tutorial's print statements give them."""
    layouts = {name: format_layout(layout) for name, layout in named_partitions(plan, problem, thread).items()}
    lines = [f"{name} {layout}" for name, layout in layouts.items()]
    return View(
        (lines,),
        {"spec": plan.spec.name, "problem": list(problem.extents.values()), "thread": thread, "layouts": layouts},
    )
