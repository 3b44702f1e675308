"""`cutegen plan`: every decision and its predicted cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cutegen.cli import options
from cutegen.cli.output import Answer
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.plan.costs import key_costs
from cutegen.tuned.answer import plan as make_plan


def plan(
    spec: options.SpecArgument,
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    arch: options.ArchOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every rejected alternative.")] = False,
    out: options.OutOption = None,
    json: options.JsonOption = False,
) -> None:
    """Shows every decision, the reason, the rejected alternatives with their reasons, and the predictions."""
    answer = Answer.asked(json=json, out=out)
    made = make_plan(options.named_spec(spec), arch, options.named_problem(problem, batch, groups))
    costs = key_costs(made)
    answer.give(
        lambda: {**made.to_json(), **_of_sizes(made), "key_costs": [cost.to_json() for cost in costs]},
        lambda: made.explain(everything=everything, costs=costs).splitlines(),
    )


def _of_sizes(made: GemmPlan | ProbePlan) -> dict[str, Any]:
    """Return the predicted times of distributions of rows over groups, if the plan has them, for programs."""
    time = made.predicted_time if isinstance(made, GemmPlan) else None
    times = () if time is None else time.of_sizes
    return {"times_of_sizes_us": {str(each): us for each, us in times}} if times else {}
