"""The provider for everything that can be planned: the performance model selects, the compiler builds."""

import threading
from typing import NamedTuple

from cutegen import spec
from cutegen.api import request_of
from cutegen.build import BuildRequest, Cache, build
from cutegen.dispatch.placement import VECTOR_BYTES
from cutegen.dispatch.provider import Answer
from cutegen.dispatch.request import TRIED, Matrix, Request
from cutegen.errors import SpecError
from cutegen.hardware.factor_atoms import BLOCK_VALUES
from cutegen.plan import GemmPlan, plan
from cutegen.plan.gemm_plan import remarks
from cutegen.plan.values.gemm_plan import sizes_line
from cutegen.run import Kernel
from cutegen.support.words import extents


def spec_of(request: Request) -> spec.GemmSpec:
    """Return the spec for `request`, with everything else left open. Raises SpecError.

    If rows must not depend on their number, K has one slice, because the number of slices would follow from the rows.
    """
    return spec.GemmSpec(
        name=request.name,
        family=None if request.family == TRIED else request.family,
        problem=spec.Problem(
            a=_operand(request.a),
            b=_operand(request.b),
            c=_operand(request.c),
            bias=None if request.bias is None else spec.Bias(request.bias),
            scale=None if request.scale is None else spec.Scale(request.scale),
            scale_a=_factors(request.scale_a),
            scale_b=_factors(request.scale_b),
            residual=_extra(request.residual),
            aux=_extra(request.aux),
            groups=None if request.groups is None else spec.Grouped(request.groups.of, request.groups.layout),
        ),
        epilogue=spec.Epilogue(
            ops=request.ops or None,
            expression=request.expression,
            pairs=None if request.pairs is None else spec.Paired.ordered_as(request.pairs),
            quantize=None if request.quantized is None else spec.Quantized("e4m3", request.quantized),
        ),
        schedule=spec.Schedule(split_k=1) if request.batch_invariant else spec.Schedule(),
    )


class OpenedKernels:
    """A provider's kernels by key: one that serves several requests is opened once, and built if the cache lacks it."""

    def __init__(self) -> None:
        self._kernels: dict[str, Kernel] = {}
        self._lock = threading.Lock()

    def answer(self, why: str, asked: BuildRequest, remarks: tuple[str, ...]) -> Answer:
        """Return the answer with the kernel of `asked`."""
        return Answer(why, lambda: self._open(asked), ready=asked.inputs.key in self._kernels, remarks=remarks)

    def _open(self, asked: BuildRequest) -> Kernel:
        kernel = self._kernels.get(asked.inputs.key) or Kernel(build(asked, Cache.from_environment()))
        with self._lock:
            return self._kernels.setdefault(asked.inputs.key, kernel)


class _Planned(NamedTuple):
    """The reason for a kernel, what builds it, and its remarks; or the reason that there is none."""

    why: str
    asked: BuildRequest | None = None
    remarks: tuple[str, ...] = ()


class ModelProvider:
    """Plans and builds."""

    name = "the performance model"

    def __init__(self) -> None:
        self._kernels = OpenedKernels()
        self._answers: dict[Request, _Planned] = {}

    def answer(self, request: Request) -> Answer:
        """Return the plan with the least predicted time; no kernel if no family can serve the request."""
        found = self._answers.get(request) or self._answers.setdefault(request, _planned(request))
        return Answer(found.why) if found.asked is None else self._kernels.answer(found.why, found.asked, found.remarks)


model = ModelProvider()
"""The provider of this process."""


def planned(request: Request) -> GemmPlan:
    """Return the plan for a request. Raises SpecError."""
    made = plan(spec_of(request), request.target, request.problem, tried=request.family == TRIED)
    assert isinstance(made, GemmPlan)
    return made


def _planned(request: Request) -> _Planned:
    """Choose a kernel, if one can be built."""
    try:
        made = planned(request)
        asked = request_of(made)
    except SpecError as error:
        return _Planned(str(error))
    chosen = f"family {made.family}, CTA tile {extents(made.cta_tile)}"
    foretold = next((each.for_problem for each in made.decisions if each.key == "tile.cta"), "")
    sizes = () if made.predicted_time is None else sizes_line(made.predicted_time)
    why = "; ".join((f"{chosen}: {foretold or f'chosen for {request.problem}'}", *sizes))
    return _Planned(why, asked, remarks(made))


def _operand(matrix: Matrix) -> spec.Operand:
    return spec.Operand(matrix.dtype, matrix.major, matrix.align_bytes)


def _factors(matrix: Matrix | None) -> spec.Factors | None:
    if matrix is None or matrix.block is None:
        return None
    if matrix.dtype in BLOCK_VALUES:
        return spec.Factors(matrix.block, matrix.dtype)
    align = None if matrix.align_bytes >= VECTOR_BYTES else matrix.align_bytes
    return spec.Factors(matrix.block, major=matrix.major, align=align)


def _extra(matrix: Matrix | None) -> spec.Extra | None:
    return None if matrix is None else spec.Extra(matrix.dtype, matrix.major, matrix.align_bytes)
