"""`cutegen plan`: every decision and its predicted cost."""

from typing import Annotated, Any

import typer

from cutegen.analysis.costs import key_costs
from cutegen.analysis.launch_of_sizes import OfSizes, of_sizes
from cutegen.cli import options
from cutegen.cli.groups import GivenGroups, named_groups
from cutegen.cli.output import Answer
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.support.words import text_width, wrapped
from cutegen.tuned.answer import plan as make_plan


def plan(
    spec: options.SpecArgument,
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    sizes: options.SizesOption = None,
    arch: options.ArchOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every rejected alternative.")] = False,
    out: options.OutOption = None,
    json: options.JsonOption = False,
) -> None:
    """Shows every decision, the reason, the rejected alternatives with their reasons, and the predictions."""
    answer = Answer.asked(json=json, out=out)
    of_groups = named_groups(groups, sizes)
    shape = of_groups.problem(problem, batch)
    made = make_plan(options.named_spec(spec), arch, shape)
    costs, launch = key_costs(made), None if sizes is None else _launch(made, shape, of_groups)
    answer.give(
        lambda: {
            **made.to_json(),
            **_times_of_sizes(made),
            **({} if launch is None else {"of_sizes": launch.to_json()}),
            "key_costs": [cost.to_json() for cost in costs],
        },
        lambda: [
            *([] if launch is None else [*wrapped(str(launch), width=text_width()), ""]),
            *made.explain(everything=everything, costs=costs).splitlines(),
        ],
    )


def _launch(made: GemmPlan | ProbePlan, shape: ProblemShape | None, given: GivenGroups) -> OfSizes:
    """Return what a launch does for the sizes. Raises RequestError if it has no such groups."""
    assert shape is not None
    groups = made.launch.groups if isinstance(made, GemmPlan) else None
    sizes = given.of_problem(groups, shape)
    assert isinstance(made, GemmPlan)
    return of_sizes(made, shape, sizes, given.name)


def _times_of_sizes(made: GemmPlan | ProbePlan) -> dict[str, Any]:
    """Return the predicted times of distributions of rows over groups, if the plan has them, for programs."""
    time = made.predicted_time if isinstance(made, GemmPlan) else None
    times = None if time is None else time.of_sizes
    return {} if times is None else {"times_of_sizes_us": {str(each): us for each, us in times.named}}
