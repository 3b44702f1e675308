"""Answers of records to a spec and a problem: the plan of the fastest that was measured on this device."""

from __future__ import annotations

import logging

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import Target
from cutegen.hardware.targeting import present_gpu_name, present_target
from cutegen.plan import GemmPlan
from cutegen.spec import GEMM, GemmSpec
from cutegen.tuned.overlay import settled_plan
from cutegen.tuned.record import Record
from cutegen.tuned.store import find, folder

_log = logging.getLogger("cutegen.tuned")
_refused: set[str] = set()


def record_for(
    asked: GemmSpec, target: Target, problem: ProblemShape | None, device: str | None = None
) -> Record | None:
    """The record that answers for `device`, as the driver calls it, else for the present GPU; None without any."""
    if problem is None or asked.kind != GEMM or not folder().is_dir():
        return None
    if device is None:
        device = present_gpu_name() if present_target() == target else None
    return None if device is None else find(asked, target.name, problem, device)


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
