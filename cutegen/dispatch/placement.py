"""Places each tensor of a call for the kernel: in place if some kernel reads it so, else as a copy for the call.

A kernel takes matrices that are contiguous along one mode, one or a batch of them at equal distances. Tensors with more
dimensions are merged into that form, without a copy if their strides allow it.
"""

from dataclasses import dataclass
from math import prod

from cutegen.contract.problem import Pairs
from cutegen.dispatch.request import Matrix
from cutegen.dispatch.shapes import Multiplied, Shape
from cutegen.errors import OperandError
from cutegen.hardware import dtype as element_type
from cutegen.hardware.units import SECTOR_BYTES
from cutegen.run.call.operands import Form, compact_strides
from cutegen.support.words import round_up

VECTOR_BYTES = 16
"""The widest copy: every kind of kernel reads an operand with this alignment."""
ALONG_K = "its elements of 8 bits are multiplied along K"
"""The reason for a copy of an operand of wgmma that is contiguous along its other mode."""
WORTH_A_COPY = 1024
"""Multiply-adds per element of an operand from which a copy costs less than reading it with narrow copies."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Memory of `elems` elements for a tensor viewed as `seen`, expanded to `shape` and copied; `why` says why."""

    seen: Shape
    shape: Shape
    strides: Shape
    elems: int
    why: str


@dataclass(frozen=True, slots=True)
class Placement:
    """One tensor of a call: the `form` for the kernel, its part of the request, and the copy, if any."""

    form: Form
    matrix: Matrix
    copy: Copy | None = None


def merged(shape: Shape, strides: Shape) -> tuple[int, int] | None:
    """Return one extent and one stride that visit the same elements in the same order; None if there are none.

    >>> merged((4, 1, 3), (6, 99, 2)), merged((4, 3), (3, 2)), merged((), ())
    ((12, 2), None, (1, 0))
    """
    extent, stride = 1, 0
    for mine, step in zip(reversed(shape), reversed(strides), strict=True):
        if mine == 1:
            continue
        if extent == 1:
            stride = step
        elif step != extent * stride:
            return None
        extent *= mine
    return extent, stride


def as_matrices(form: Form, batch: Shape, *, fold: bool) -> Form | None:
    """View a tensor (..., R, C) as (R, C), or (L, R, C) over `batch`; with `fold` as (L R, C). None needs a copy."""
    *outer, rows, columns = form.shape
    *outer_strides, row_stride, column_stride = form.strides
    if prod(outer) == 1:
        return form._replace(shape=(rows, columns), strides=(row_stride, column_stride))
    if fold:
        one = merged((*outer, rows), (*outer_strides, row_stride))
        return None if one is None else form._replace(shape=(one[0], columns), strides=(one[1], column_stride))
    missing = len(batch) - len(outer)
    expanded = [
        0 if mine == 1 else step
        for mine, step in zip((*(1,) * missing, *outer), (*(0,) * missing, *outer_strides), strict=True)
    ]
    one = merged(batch, tuple(expanded))
    if one is None:
        return None
    return form._replace(shape=(one[0], rows, columns), strides=(one[1], row_stride, column_stride))


def major_of(form: Form, *, prefer_last: bool) -> bool | None:
    """Return whether the last mode of matrices is contiguous; None if no mode is, or rows overlap."""
    rows, columns = form.shape[-2:]
    row_stride, column_stride = form.strides[-2:]
    last = (columns <= 1 or column_stride == 1) and (rows <= 1 or row_stride >= columns)
    first = (rows <= 1 or row_stride == 1) and (columns <= 1 or column_stride >= rows)
    if not (last or first):
        return None
    return last if prefer_last else not first


def alignment(form: Form, address: int, *, last: bool, element_bytes: int, any_rows: bool = False) -> int:
    """Return the largest power of two, up to VECTOR_BYTES, that divides the address and the relevant strides.

    With `any_rows` one row has the alignment that it would have among others.
    """
    bits = VECTOR_BYTES | address
    leading, extent = (form.strides[-2], form.shape[-2]) if last else (form.strides[-1], form.shape[-1])
    if extent > 1:
        bits |= leading * element_bytes
    elif last and any_rows:
        bits |= max(leading, form.shape[-1]) * element_bytes  # the stride of a single row may be anything
    if len(form.shape) > 2 and form.shape[0] > 1:
        bits |= form.strides[0] * element_bytes
    return bits & -bits


def is_narrowed(name: str, placed: Placement, *, any_rows: bool) -> bool:
    """Return whether a matrix has narrower accesses because of its address than its strides allow."""
    form, matrix = placed.form, placed.matrix
    last = matrix.major == ("k" if name == "a" else "n")
    size, any_rows = element_type(matrix.dtype).bytes, any_rows and name != "b"
    return matrix.align_bytes < alignment(form, 0, last=last, element_bytes=size, any_rows=any_rows)


def place_operand(
    name: str, form: Form, address: int, dtype: str, problem: Multiplied, *, fold: bool, reuse: int, any_rows: bool
) -> Placement:
    """Return A or B as the kernel reads it; `reuse` is the number of multiply-adds per element.

    With `any_rows` the number of rows of A has no influence on its alignment.
    """
    modes, prefer_last = (("m", "k"), True) if name == "a" else (("k", "n"), False)
    element_bytes = element_type(dtype).bytes
    placed = as_matrices(form, problem.batch, fold=fold)
    why = "its batch is expanded, or has no single stride"
    if placed is not None:
        if 0 in placed.shape:
            return Placement(placed, Matrix(dtype, modes[1] if prefer_last else modes[0], VECTOR_BYTES))
        last = major_of(placed, prefer_last=prefer_last)
        whole = last is None or modes[1 if last else 0] == "k" or element_type(dtype).values == 1
        if not whole:
            why = "its elements have several values along K"
        elif last is not None and (len(placed.shape) == 2 or placed.strides[0] >= 0):
            align = alignment(placed, address, last=last, element_bytes=element_bytes, any_rows=any_rows)
            if align >= element_bytes and (align == VECTOR_BYTES or reuse < WORTH_A_COPY):
                return Placement(placed, Matrix(dtype, modes[1 if last else 0], align))
            why = f"it is aligned to only {align} bytes: a padded copy allows {VECTOR_BYTES}-byte loads"
        else:
            why = "it is contiguous in neither mode"
    return place_copy(name, form, dtype, problem, fold=fold, why=why)


def along_k(placed: Placement, name: str, form: Form, problem: Multiplied, *, fold: bool) -> Placement:
    """Return an operand of wgmma as it is, or as a copy along K if its elements of 8 bits are along another mode."""
    matrix = placed.matrix
    if element_type(matrix.dtype).bytes > 1 or matrix.major == "k":
        return placed
    return place_copy(name, form, matrix.dtype, problem, fold=fold, why=ALONG_K)


def takes_apart(b: Matrix, pairs: Pairs, columns: int) -> bool:
    """Return whether a tensor map takes the pairs apart that so many columns of B are.

    >>> [takes_apart(Matrix("f16", "n", 16), Pairs("gate", width), 64) for width in (1, 16, None)]
    [False, True, True]
    """
    unit_bytes = VECTOR_BYTES if pairs.width is None else SECTOR_BYTES
    return b.major == "k" or (pairs.width or columns // 2) * element_type(b.dtype).bytes % unit_bytes == 0


def place_copy(name: str, form: Form, dtype: str, problem: Multiplied, *, fold: bool, why: str) -> Placement:
    """Return a copy with K contiguous and rows padded to a multiple of the vector size."""
    element_bytes = element_type(dtype).bytes
    single = prod(form.shape[:-2]) == 1
    batch = () if single else problem.batch
    rows, columns = form.shape[-2:]
    outer, inner = (rows, columns) if name == "a" else (columns, rows)
    pad = max(1, VECTOR_BYTES // element_bytes)
    stride = round_up(inner, pad)
    shape: Shape = (outer, inner)
    strides: Shape = (stride, 1)
    if batch and fold:
        shape = (prod(batch) * outer, inner)
    elif batch:
        shape, strides = (prod(batch), outer, inner), (outer * stride, stride, 1)
    if name == "b":
        shape, strides = (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    steps = tuple(outer * stride * x for x in compact_strides(batch))
    seen = (rows, columns) if single else tuple(form.shape)
    copy = Copy(seen, (*batch, rows, columns), (*steps, *strides[-2:]), prod(batch) * outer * stride, why)
    return Placement(form._replace(shape=shape, strides=strides), Matrix(dtype, "k", VECTOR_BYTES), copy)


def place_result(
    form: Form, address: int, dtype: str, problem: Multiplied, *, fold: bool, any_rows: bool
) -> Placement | None:
    """Return the result's tensor, as the kernel reads or writes it in place; None if it cannot."""
    placed = as_matrices(problem.of_result(form), problem.batch, fold=fold)
    if placed is None:
        return None
    last = major_of(placed, prefer_last=True)
    if last is None or (len(placed.shape) > 2 and placed.strides[0] < 0):
        return None
    element_bytes = element_type(dtype).bytes
    align = VECTOR_BYTES
    if 0 not in placed.shape:
        align = alignment(placed, address, last=last, element_bytes=element_bytes, any_rows=any_rows)
    return None if align < element_bytes else Placement(placed, Matrix(dtype, "n" if last else "m", align))


def ones_of_scale(name: str, shape: Shape, problem: Multiplied) -> frozenset[int]:
    """Return the dimensions of extent 1 to ignore in a scale with several elements: that of K, and a batch of ones.

    Raises OperandError unless the shape is one element per row of A or column of B, or that for each matrix of the
    batch.
    """
    of_a = name == "scale_a"
    extent, has_mode = (problem.m, problem.of_rows) if of_a else (problem.n, problem.of_columns)
    at = len(shape) - (1 if of_a else 2)
    whole_batch = tuple(shape) == (*problem.batch, extent)  # then a 1 is the extent itself
    mode = {at} if len(shape) > 1 and shape[at] == 1 and not whole_batch else set[int]()
    *outer, last = (each for each in range(len(shape)) if each not in mode)
    batch = tuple(shape[each] for each in outer)
    of_ones = len(batch) <= len(problem.batch) and all(each == 1 for each in batch)
    if not (has_mode and shape[last] == extent and (of_ones or batch == problem.batch)):
        raise _no_scale(name, shape, extent)
    return frozenset(mode | set(outer if of_ones else ()))


def _no_scale(name: str, shape: Shape, extent: int) -> OperandError:
    what = "row of a" if name == "scale_a" else "column of b"
    expected = f"one element, or one for each {what}: ({extent},)"
    return OperandError(operand=name, found=f"shape {tuple(shape)}", expected=expected)


def is_of_matrices(name: str, shape: Shape, problem: Multiplied) -> bool:
    """Return whether a scale has a vector for each matrix of the batch. Raises OperandError for an impossible shape."""
    return prod(shape) != 1 and len(shape) - len(ones_of_scale(name, shape, problem)) > 1


def place_scale(name: str, form: Form, address: int, problem: Multiplied, *, fold: bool) -> Placement:
    """Place a scale: one element for all, or one per row of A or column of B, with or without dimensions of 1.

    Raises OperandError for another shape.
    """
    of_a = name == "scale_a"
    extent = problem.m if of_a else problem.n
    matrix = Matrix(form.dtype, "m" if of_a else "n", element_type(form.dtype).bytes)
    if prod(form.shape) == 1:
        return Placement(form._replace(shape=(1,), strides=(1,)), matrix)
    ones = ones_of_scale(name, form.shape, problem)
    shape, strides = (tuple(x for at, x in enumerate(each) if at not in ones) for each in (form.shape, form.strides))
    batch = shape[:-1]
    rows_of_all = fold and of_a  # the batch becomes more rows of A, and B has none
    assert of_a or not (batch and fold)
    seen = form._replace(shape=shape, strides=strides)
    whole = (*problem.batch, extent) if batch or rows_of_all else (extent,)
    placed = _as_vectors(seen, fold=rows_of_all, many=len(whole) > 1)
    if placed is not None and address % matrix.align_bytes == 0:
        return Placement(placed, matrix)
    contiguous = compact_strides(whole)
    copied = _as_vectors(seen._replace(shape=whole, strides=contiguous), fold=rows_of_all, many=len(whole) > 1)
    assert copied is not None
    return Placement(copied, matrix, Copy(shape, whole, contiguous, prod(whole), "its elements are not contiguous"))


def _as_vectors(form: Form, *, fold: bool, many: bool) -> Form | None:
    """View a vector, or one for each matrix of a batch, with contiguous elements; None needs a copy."""
    if fold and many:
        one = merged(form.shape, form.strides) if len(form.shape) > 1 else None
        return form._replace(shape=(one[0],), strides=(1,)) if one is not None and one[1] == 1 else None
    if form.shape[-1] > 1 and form.strides[-1] != 1:
        return None
    one = merged(form.shape[:-1], form.strides[:-1])
    if one is None or one[1] < 0:  # a reversed batch
        return None
    if one[0] == 1:
        return form._replace(shape=form.shape[-1:], strides=(1,))
    return form._replace(shape=(one[0], form.shape[-1]), strides=(one[1], 1))
