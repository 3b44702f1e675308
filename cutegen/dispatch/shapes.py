"""Shapes of a product: batches broadcast and vectors become matrices, by the rules of `torch.matmul`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from cutegen.errors import OperandError
from cutegen.run.call.operands import Form

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
