"""Shapes and element types of a product and its result, by the rules of `torch.matmul`."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from cutegen.contract.launch import OPERANDS
from cutegen.errors import OperandError, RequestError
from cutegen.hardware import PACKED, dtype
from cutegen.run.call.operands import Form

# Shapes of a product: batches broadcast and vectors become matrices, by the rules of `torch.matmul`.


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Multiplied:
    """`batch` x (M,K) @ (K,N). `of_rows` and `of_columns` say whether M and N are dimensions of the result.

    An element of the result is made of as many columns as there are `members`: two if they are pairs.

    >>> multiplied((5, 1, 4, 8), (3, 8, 2)).result
    (5, 3, 4, 2)
    >>> multiplied((8,), (3, 8, 2)).result, multiplied((8,), (8,)).result
    ((3, 2), ())
    """

    batch: Shape
    m: int
    n: int
    k: int
    of_rows: bool = True
    of_columns: bool = True
    members: int = 1

    @property
    def result(self) -> Shape:
        """The shape of the result."""
        return (
            *self.batch,
            *((self.m,) if self.of_rows else ()),
            *((self.n // self.members,) if self.of_columns else ()),
        )

    @property
    def batches(self) -> int:
        """The number of products."""
        return prod(self.batch)

    def of_result(self, form: Form) -> Form:
        """Return a shape like the result's, with both M and N."""
        shape, strides = form.shape, form.strides
        if not self.of_columns:
            shape, strides = (*shape, 1), (*strides, 1)
        if not self.of_rows:
            shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], shape[-1], strides[-1])
        return form._replace(shape=shape, strides=strides)


def multiplied(a: Shape, b: Shape) -> Multiplied:
    """Return the product of tensors of these shapes. Raises OperandError if there is none."""
    for name, shape in (("a", a), ("b", b)):
        if not shape:
            raise OperandError(
                operand=name, found="a tensor without dimensions", expected="a vector or matrices", fix=f"`{name} * x`"
            )
    m, k = (1, a[0]) if len(a) == 1 else a[-2:]
    rows, n = (b[0], 1) if len(b) == 1 else b[-2:]
    if k != rows:
        transposed = len(b) > 1 and n == k
        raise OperandError(
            operand="b",
            found=f"shape {tuple(b)}, so K = {rows}",
            expected=f"K = {k}, as in a of shape {tuple(a)}: (..., M, K) @ (..., K, N)",
            fix=f"`b.{'mT' if len(b) > 2 else 'T'}` if it is stored as (N, K)" if transposed else "",
        )
    return Multiplied(broadcast(a[:-2], b[:-2]), m, n, k, len(a) > 1, len(b) > 1)


def broadcast(a: Shape, b: Shape) -> Shape:
    """Return the batch that both are expanded to. Raises OperandError.

    >>> broadcast((5, 1), (3,))
    (5, 3)
    """
    least = min(len(a), len(b))
    # Extents that occur once, or are equal, are not compared: while torch traces, some are not known yet.
    found = [*a[: len(a) - least], *b[: len(b) - least]]
    for one, other in zip(a[len(a) - least :], b[len(b) - least :], strict=True):
        if one != other and 1 not in (one, other):
            raise OperandError(
                operand="b",
                found=f"a batch of {tuple(b)}",
                expected=f"one that broadcasts with {tuple(a)} of a: equal extents, or 1, from the last on",
            )
        found.append(one if one == other or other == 1 else other)
    return tuple(found)


# Element types of a call: the operands', the result's without `out_dtype`, and the one that a kernel has for C.


RESULT_DTYPES: Mapping[str, str] = {"f16": "f16", "bf16": "bf16", "f32": "f32", "tf32": "f32", "s8": "s32", "u8": "s32"}
"""Result type by that of A and B. 8-bit floats give bf16: their own range rarely fits a sum."""

FLOAT8 = frozenset({"e4m3", "e5m2"})
_MIXED = (FLOAT8, frozenset({"s8", "u8"}))
SCALE_DTYPES = ("f32", "f16", "bf16")
OUT_DTYPES = ("f16", "bf16", "f32", "s8", "u8", "s32", "e4m3", "e5m2")


def check_operands(a: str, b: str, names: tuple[str, str] = OPERANDS) -> None:
    """Reject types that no kernel multiplies; `names` are those of A and B in the call. Raises OperandError."""
    known = (*RESULT_DTYPES, *sorted(FLOAT8), *PACKED)
    for name, found in zip(names, (a, b), strict=True):
        if found not in known:
            raise OperandError(
                operand=name,
                found=f"dtype {found}",
                expected=f"one of {', '.join(x for x in known if x != 'tf32')}",
                fix="cast it to float32" if found in ("float64", "f64") else "cast it",
            )
    if a != b and not any({a, b} <= together for together in _MIXED):
        raise OperandError(
            operand=names[1],
            found=f"dtype {b}",
            expected=f"{a} as in {names[0]}",
            fix="cast one of them: types are not promoted",
        )


def result_type(a: str, asked: str | None, function: str = "matmul") -> str:
    """Return the element type of the result of a `function`. Raises RequestError for one that no kernel writes."""
    if asked is None:
        return RESULT_DTYPES.get(a, "bf16")
    if asked not in OUT_DTYPES:
        raise RequestError(f"{function}: out_dtype: found {asked}; expected one of {', '.join(OUT_DTYPES)}")
    return asked


def stored_type(result: str, source: str) -> str | None:
    """Return the type that a kernel has for C, which it reads and writes; None for a source C of no such type.

    It is the result's if that has every value of the source's, else f32, so that a source is converted exactly and the
    sum with it is rounded once. Integers are not converted.

    >>> stored_type("f32", "bf16"), stored_type("bf16", "f32"), stored_type("f16", "bf16"), stored_type("f32", "s8")
    ('f32', 'f32', 'f32', None)
    """
    if source == result:
        return result
    if source not in OUT_DTYPES or dtype(source).is_integer or dtype(result).is_integer:
        return None
    # Of different float types here, f32 has the values of all, and the two of 16 bits have those of both of 8.
    return result if dtype(result).bits > dtype(source).bits else "f32"
