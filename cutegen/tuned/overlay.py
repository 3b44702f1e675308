"""The plan of a spec whose open keys were settled by measurement: the request, with the reason for each key.

Tuning measures the same plan that is later built from the record, and so the same artifact: times and problems are in
`Decision.for_problem`, which is not part of the kernel's text.
"""

from __future__ import annotations

from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec
from cutegen.spec.write import spec_table

WHY = "tuned: the fastest of the measured candidates"


def settled_plan(
    asked: GemmSpec, settled: GemmSpec, target: Target, problem: ProblemShape | None, said: str = ""
) -> GemmPlan:
    """Return the plan of `settled`, as one of `asked`; `said` is the evidence, as in `tuned on NVIDIA H200 ...`.

    Raises SpecError if the rules reject it.
    """
    made = plan(replace(settled, name=asked.name, description=asked.description), target, problem)
    assert isinstance(made, GemmPlan)
    given = _keys(asked)
    decisions = [_measured(each) if each.given and each.key not in given else each for each in made.decisions]
    if asked.family is None:
        decisions.insert(0, Decision("family", made.family, WHY))
    first = next((i for i, each in enumerate(decisions) if each.why == WHY), 0)
    decisions[first] = replace(decisions[first], for_problem=said)
    return replace(made, spec=asked, decisions=tuple(decisions))


def _measured(decision: Decision) -> Decision:
    return replace(decision, why=WHY, given=False)


def _keys(spec: GemmSpec) -> frozenset[str]:
    """Return the dotted keys that a spec sets, including tables."""
    found = set()

    def visit(table: dict[str, object], prefix: str) -> None:
        for name, value in table.items():
            found.add(prefix + name)
            if isinstance(value, dict):
                visit(value, f"{prefix}{name}.")

    visit(spec_table(spec), "")
    return frozenset(found)
