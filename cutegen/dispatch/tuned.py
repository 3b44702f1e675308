"""The provider of `cutegen tune` results: consulted first, and only for the GPU that they were measured on."""

from cutegen.api import request_of
from cutegen.dispatch.model import OpenedKernels, spec_of
from cutegen.dispatch.provider import Answer
from cutegen.dispatch.request import TRIED, Request
from cutegen.errors import SpecError
from cutegen.hardware import TARGETS
from cutegen.plan.gemm_plan import remarks
from cutegen.tuned.answer import plan_of, record_for
from cutegen.tuned.record import Record
from cutegen.tuned.store import folder


class TunedProvider:
    """Plans and builds the winners; their artifacts are in the cache since the measurement, unless evicted."""

    name = "tuning records"

    def __init__(self) -> None:
        self._kernels = OpenedKernels()

    def answer(self, request: Request) -> Answer:
        """Return the record of the request's device and bucket; none if nothing like it was tuned."""
        if request.device is None:
            return Answer("not used, this call runs on no GPU")
        if request.target not in TARGETS:
            return Answer(f"found no target {request.target}")
        if (record := _record(request)) is None:
            return Answer(f"none in {folder()} matches on {request.device}")
        made = plan_of(record, TARGETS[request.target], request.problem)
        if made is None:
            return Answer(f"{record.file_name} can no longer be planned")
        if request.family == TRIED and not made.atom.multiply.has_run:
            return Answer(f"{record.file_name} is of family {made.family}, which is refused here")
        return self._kernels.answer(record.said, request_of(made), remarks(made))


tuned = TunedProvider()
"""The provider of this process."""


def _record(request: Request) -> Record | None:
    try:
        spec = spec_of(request)
    except SpecError:
        return None
    return record_for(spec, TARGETS[request.target], request.problem, request.device)
