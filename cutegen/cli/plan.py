"""`cutegen plan`: every decision and its predicted cost."""

from __future__ import annotations

from typing import Annotated

import typer

from cutegen.cli.options import (
    ArchOption,
    BatchOption,
    GroupsOption,
    JsonOption,
    OutOption,
    ProblemOption,
    SpecArgument,
    named_problem,
    named_spec,
)
from cutegen.cli.output import Answer
from cutegen.plan.costs import key_costs
from cutegen.tuned.answer import plan as make_plan


def plan(
    spec: SpecArgument,
    problem: ProblemOption = None,
    batch: BatchOption = None,
    groups: GroupsOption = None,
    arch: ArchOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every rejected alternative.")] = False,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Shows every decision, the reason, the rejected alternatives with their reasons, and the predictions."""
    answer = Answer.asked(json=json, out=out)
    made = make_plan(named_spec(spec), arch, named_problem(problem, batch, groups))
    costs = key_costs(made)
    answer.give(
        lambda: {**made.to_json(), "key_costs": [cost.to_json() for cost in costs]},
        lambda: made.explain(everything=everything, costs=costs).splitlines(),
    )
