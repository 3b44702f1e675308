"""A call whose result is quantized: its factors, where they are placed, and which kernels write them.

```text
values  (..., M, N)       e4m3, contiguous along N
factors (..., M, N/128)   f32, contiguous along the rows of all of a batch; the leading stride is a multiple of 4
        (G, M, N/128)     of padded groups: contiguous along the rows of each, which is a matrix of its own
```
"""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from cutegen.contract.problem import QUANTIZED_BLOCK, FactorsOfC, leading_stride_of_factors
from cutegen.dispatch.placement import Placement, as_matrices
from cutegen.dispatch.request import Matrix
from cutegen.dispatch.shapes import Multiplied, Shape
from cutegen.errors import OperandError, RequestError
from cutegen.hardware import PACKED, Instruction, target
from cutegen.hardware import dtype as element_type
from cutegen.run.call.operands import Form, compact_strides
from cutegen.support.words import literal

QUANTIZED: Mapping[str, FactorsOfC] = {"e4m3": "f32", "e4m3_ue8m0": "ue8m0"}
"""Results that a call can ask for, and how their factors are rounded."""
ELEMENT = "e4m3"
LEAST_OF_QUANTIZED = "sm_90"
"""The first target whose kernels quantize."""
FACTORS_OF_RESULT = Matrix("f32", "m", element_type("f32").bytes, QUANTIZED_BLOCK)
"""The factors, as a kernel writes them."""
_OPERANDS = frozenset({"f16", "bf16", "e4m3", "e5m2", *PACKED})


class Strided(NamedTuple):
    """A tensor in new memory of `elems` elements, from its first on."""

    shape: Shape
    strides: Shape
    elems: int


def factors_of(quantize: str | None, function: str = "matmul") -> FactorsOfC | None:
    """Return how the factors of a result are rounded, None if it is not quantized. Raises RequestError."""
    if quantize is None or quantize in QUANTIZED:
        return None if quantize is None else QUANTIZED[quantize]
    expected = f"None or one of {', '.join(QUANTIZED)}"
    raise RequestError(f"{function}: quantize: found {literal(quantize)}; expected {expected}")


def pair_of(out: Any, out_dtype: Any, function: str = "matmul") -> tuple[Any, Any]:
    """Return the memory for values and for factors of a quantized result. Raises RequestError."""
    if out_dtype is not None:
        raise RequestError(
            f"{function}: out_dtype: found {out_dtype!r} with quantize; expected none: it gives the type"
        )
    if out is None:
        return None, None
    if not isinstance(out, tuple | list) or len(out) != 2:
        found = f"a {type(out).__qualname__}"
        raise RequestError(f"{function}: out: found {found}; expected (values, factors) with quantize")
    values, factors = out
    return values, factors


def has_kernel(target_name: str, a: str) -> bool:
    """Return whether kernels for a target quantize products of such operands, if not all of them.

    >>> [has_kernel(name, "bf16") for name in ("sm_80", "sm_90", "sm_100", "sm_120")]
    [False, True, True, False]
    """
    able = any(target(target_name).has(each) for each in (Instruction.WGMMA, Instruction.TCGEN05))
    return able and a in _OPERANDS


def factors_shape(problem: Multiplied) -> Shape:
    """Return the shape of a result's factors. Raises OperandError for a product of vectors."""
    if not (problem.of_rows and problem.of_columns):
        found, expected = "a vector", "matrices, or batches of them: rows of the result are quantized"
        raise OperandError(operand="b" if problem.of_rows else "a", found=found, expected=expected)
    *rows, columns = problem.result
    return (*rows, -(-columns // QUANTIZED_BLOCK[1]))


def new_factors(problem: Multiplied, *, of_groups: bool = False) -> Strided:
    """Return the place of new factors. `of_groups` are those of padded groups.

    >>> new_factors(Multiplied((2,), 6, 256, 64))
    Strided(shape=(2, 6, 2), strides=(6, 1, 12), elems=24)
    >>> new_factors(Multiplied((2,), 6, 256, 64), of_groups=True)
    Strided(shape=(2, 6, 2), strides=(16, 1, 8), elems=32)
    """
    *rows, blocks = factors_shape(problem)
    apart, along = (rows[:-1], rows[-1:]) if of_groups else ([], rows)
    stride = leading_stride_of_factors(prod(along))
    of_matrices = (blocks * stride * step for step in compact_strides(tuple(apart)))
    strides = (*of_matrices, *compact_strides(tuple(along)), stride)
    return Strided((*rows, blocks), strides, prod(apart) * blocks * stride)


def place_factors_of_result(
    form: Form | None, like: Form, problem: Multiplied, *, fold: bool, of_groups: bool = False
) -> Placement:
    """Return the factors as a kernel writes them: those given, or new ones. Raises OperandError."""
    new = new_factors(problem, of_groups=of_groups)
    if form is None:
        form = like._replace(shape=new.shape, strides=new.strides, dtype="f32", read_only=False)
    if tuple(form.shape) != new.shape or form.dtype != "f32":
        found, expected = f"{form.dtype} of shape {tuple(form.shape)}", f"f32 of shape {new.shape}, the factors of out"
        raise OperandError(operand="scale_c", found=found, expected=expected)
    placed = as_matrices(form, problem.batch, fold=fold)
    if placed is None or (placed.shape[-2] > 1 and placed.strides[-2] != 1):
        raise OperandError(
            operand="scale_c",
            found=f"strides {tuple(form.strides)}",
            expected="contiguous rows: strides (1, at least M)",
            fix="omit out=, or `torch.empty(N // 128, M).T`",
        )
    return Placement(placed, FACTORS_OF_RESULT)
