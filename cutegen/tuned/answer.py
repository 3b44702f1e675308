"""Answers of records to a spec and a problem: the plan of the fastest that was measured on this device."""

from __future__ import annotations

import logging

from cutegen.contract.problem import ProblemLike, ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import Target
from cutegen.hardware.targeting import choose_target, present_gpu_name, present_target
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.plan import plan as plan_by_model
from cutegen.spec import GEMM, GemmSpec, SpecLike, as_spec
from cutegen.tuned.overlay import settled_plan
from cutegen.tuned.record import Record

_log = logging.getLogger("cutegen.tuned")
_refused: set[str] = set()


def plan(spec: SpecLike, arch: str | Target | None = None, problem: ProblemLike | None = None) -> GemmPlan | ProbePlan:
    """Decide everything that `spec` leaves open, for `arch`, else the present GPU, else the first that can serve.

    `spec` is a GemmSpec, the name of a shipped spec, or a path; `arch` what people call a target, as `sm_90` or `h100`.

    With a `problem`, (M, N, K) or (M, N, K, batch), what is open is chosen for its extents: as `cutegen tune` found on
    this machine's GPU, where it was asked about such a problem, else by predicted time. The kernel is right for every
    other problem too.

    Raises SpecError where the spec cannot be met there, RequestError for an unknown target.
    """
    spec = as_spec(spec)
    target = arch if isinstance(arch, Target) else choose_target(arch, least=spec.needs)
    shape = ProblemShape.of(problem)
    return plan_by(record_for(spec, target, shape), spec, target, shape)


def record_for(
    asked: GemmSpec, target: Target, problem: ProblemShape | None, device: str | None = None
) -> Record | None:
    """The record that answers for `device`, as the driver calls it, else for the present GPU; None without any."""
    if problem is None or asked.kind != GEMM:
        return None
    if device is None:
        device = present_gpu_name() if present_target() == target else None
    if device is None:
        return None
    from cutegen.tuned.store import find, folder  # brings the cache, which planning elsewhere does without

    return find(asked, target.name, problem, device) if folder().is_dir() else None


def plan_by(
    record: Record | None, spec: GemmSpec, target: Target, problem: ProblemShape | None
) -> GemmPlan | ProbePlan:
    """The plan of `spec` that a record answers with, else the model's."""
    tuned = None if record is None else plan_of(record, target, problem, spec)
    return tuned or plan_by_model(spec, target, problem)


def plan_of(
    record: Record, target: Target, problem: ProblemShape | None, asked: GemmSpec | None = None
) -> GemmPlan | None:
    """The plan that a record answers with, of `asked` where that has another name.

    None, with one warning, where the rules refuse it: they may be others than when it was measured.
    """
    try:
        return settled_plan(asked or record.asked, record.settled, target, problem, record.said)
    except SpecError as error:
        if record.file_name not in _refused:
            _refused.add(record.file_name)
            _log.warning("record ignored: %s: %s; tune again", record.file_name, error)
        return None
