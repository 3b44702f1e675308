"""Finds the record for a spec and a problem: the plan of the fastest kernel measured on this device."""

import logging
import os
from dataclasses import replace

from cutegen.contract.problem import ProblemLike, ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import Target
from cutegen.hardware.targeting import choose_target, present_gpu_name, present_target
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.plan import plan as plan_by_model
from cutegen.plan.values.decision import Decision
from cutegen.spec import GEMM, GemmSpec, SpecLike, as_spec
from cutegen.spec.file import spec_table
from cutegen.tuned.record import Record

# The plan of a spec whose open keys were settled by measurement: the request, with the reason for each key.
#
# Tuning measures the same plan that is later built from the record, and so the same artifact: times and problems are in
# `Decision.for_problem`, which is not part of the kernel's text.


WHY = "tuned: the fastest of the measured candidates"


def settled_plan(
    asked: GemmSpec, settled: GemmSpec, target: Target, problem: ProblemShape | None, said: str = ""
) -> GemmPlan:
    """Return the plan of `settled`, as one of `asked`; `said` is the evidence, as in `tuned on NVIDIA H200 ...`.

    Raises SpecError if the rules reject it.
    """
    made = plan_by_model(replace(settled, name=asked.name, description=asked.description), target, problem)
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


_log = logging.getLogger("cutegen.tuned")
_refused: set[str] = set()


def plan(spec: SpecLike, arch: str | Target | None = None, problem: ProblemLike | None = None) -> GemmPlan | ProbePlan:
    """Decide everything that `spec` leaves open, for `arch`, else the present GPU, else the first that can serve.

    `spec` is a GemmSpec, the name of a shipped spec, or a path; `arch` is a target's name, such as `sm_90` or `h100`.

    With a `problem`, (M, N, K) or (M, N, K, batch), open parts are chosen for its extents: from a `cutegen tune` record
    of this machine's GPU for such a problem, else by predicted time. The kernel is correct for every other problem as
    well.

    Raises SpecError if the spec cannot be met there, RequestError for an unknown target.
    """
    spec = as_spec(spec)
    target = arch if isinstance(arch, Target) else choose_target(arch, least=spec.needs)
    shape = ProblemShape.of(problem)
    return plan_by(record_for(spec, target, shape), spec, target, shape)


def record_for(
    asked: GemmSpec, target: Target, problem: ProblemShape | None, device: str | None = None
) -> Record | None:
    """Return the record for `device`, in the driver's spelling, else for the present GPU; None without any."""
    if problem is None or asked.kind != GEMM:
        return None
    if device is None:
        device = present_gpu_name() if present_target() == target else None
    if device is None:
        return None
    from cutegen.tuned.store import find, folder  # imports the cache, which planning elsewhere does not need

    return find(asked, target.name, problem, device) if os.path.isdir(folder()) else None


def plan_by(
    record: Record | None, spec: GemmSpec, target: Target, problem: ProblemShape | None
) -> GemmPlan | ProbePlan:
    """Return the plan of `spec` from a record, else from the model."""
    tuned = None if record is None else plan_of(record, target, problem, spec)
    return tuned or plan_by_model(spec, target, problem)


def plan_of(
    record: Record, target: Target, problem: ProblemShape | None, asked: GemmSpec | None = None
) -> GemmPlan | None:
    """Return the plan from a record, as that of `asked` if the name differs.

    None, with one warning, if the rules reject it: they may have changed since the measurement.
    """
    try:
        return settled_plan(asked or record.asked, record.settled, target, problem, record.said)
    except SpecError as error:
        if record.file_name not in _refused:
            _refused.add(record.file_name)
            _log.warning("record ignored: %s: %s; tune again", record.file_name, error)
        return None
