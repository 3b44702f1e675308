"""A call whose result is quantized: its factors, where they are placed, and which kernels write them.

```text
values  (..., M, N)       e4m3, contiguous along N
factors (..., M, N/128)   f32, contiguous along the rows of all of a batch; the leading stride is a multiple of 4
```
"""

from __future__ import annotations

from collections.abc import Mapping

from cutegen.contract.quantized import QUANTIZED_BLOCK, FactorsOfC
from cutegen.dispatch.placement import Placement, as_matrices
from cutegen.dispatch.request import Matrix
from cutegen.dispatch.shapes import Multiplied, Shape
from cutegen.errors import OperandError, RequestError
from cutegen.hardware import dtype as element_type
from cutegen.run.call.operands import Form
from cutegen.support.literals import literal
from cutegen.support.words import round_up

QUANTIZED: Mapping[str, FactorsOfC] = {"e4m3": "f32", "e4m3_ue8m0": "ue8m0"}
"""Results that a call can ask for, and how their factors are rounded."""
ELEMENT = "e4m3"
LEAST_OF_QUANTIZED = "sm_90"
"""The target whose kernels quantize."""
_OPERANDS = frozenset({"f16", "bf16", "e4m3", "e5m2"})
_VECTOR = 4
"""Elements of f32 in the 16 bytes of which leading strides are multiples."""


def factors_of(quantize: str | None) -> FactorsOfC | None:
    """Return how the factors of a result are rounded, None if it is not quantized. Raises RequestError."""
    if quantize is None or quantize in QUANTIZED:
        return None if quantize is None else QUANTIZED[quantize]
    raise RequestError(f"matmul: quantize: found {literal(quantize)}; expected None or one of {', '.join(QUANTIZED)}")


def has_kernel(target: str, a: str) -> bool:
    """Return whether kernels for a target quantize products of such operands."""
    return target == LEAST_OF_QUANTIZED and a in _OPERANDS


def factors_shape(problem: Multiplied) -> Shape:
    """Return the shape of a result's factors. Raises OperandError for a product of vectors."""
    if not (problem.of_rows and problem.of_columns):
        found, expected = "a vector", "matrices, or batches of them: rows of the result are quantized"
        raise OperandError(operand="b" if problem.of_rows else "a", found=found, expected=expected)
    *rows, columns = problem.result
    return (*rows, -(-columns // QUANTIZED_BLOCK[1]))


def factors_stride(problem: Multiplied) -> int:
    """Return the leading stride of new factors: rows of all of a batch, in whole vectors."""
    return round_up(max(1, problem.m * problem.batches), _VECTOR)


def place_factors_of_result(form: Form | None, like: Form, problem: Multiplied, *, fold: bool) -> Placement:
    """Return the factors as a kernel writes them: those given, or new ones. Raises OperandError."""
    shape = factors_shape(problem)
    if form is None:
        stride = factors_stride(problem)
        rows = tuple(reversed([_step(problem, i) for i in range(len(shape) - 1)]))
        form = like._replace(shape=shape, strides=(*rows, stride), dtype="f32", read_only=False)
    if tuple(form.shape) != shape or form.dtype != "f32":
        found, expected = f"{form.dtype} of shape {tuple(form.shape)}", f"f32 of shape {shape}, the factors of out"
        raise OperandError(operand="scale_c", found=found, expected=expected)
    placed = as_matrices(form, problem.batch, fold=fold)
    if placed is None or (placed.shape[-2] > 1 and placed.strides[-2] != 1):
        raise OperandError(
            operand="scale_c",
            found=f"strides {tuple(form.strides)}",
            expected="contiguous rows: strides (1, at least M)",
            fix="omit out=, or `torch.empty(N // 128, M).T`",
        )
    matrix = Matrix("f32", "m", element_type("f32").bytes, QUANTIZED_BLOCK)
    return Placement(placed, matrix)


def _step(problem: Multiplied, after: int) -> int:
    """Return the distance of rows, or of matrices of so many inner modes, in new factors."""
    step = 1
    for extent in tuple(reversed((*problem.batch, problem.m)))[:after]:
        step *= extent
    return step
