"""Factors of blocks of A and B in a call: told from scales of whole rows by their shape, and placed for a kernel.

```text
a (..., M, K)    scale_a (..., M, K/128)      blocks of 1 x 128        extents rounded up
                 scale_a (..., M/128, K/128)  blocks of 128 x 128
b (..., K, N)    scale_b (..., K/128, N), (..., K/128, N/128)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from cutegen.contract.pairs import Pairs
from cutegen.dispatch.placement import VECTOR_BYTES, Copy, Placement, alignment, as_matrices, major_of
from cutegen.dispatch.request import Matrix
from cutegen.dispatch.shapes import Multiplied, Shape
from cutegen.dispatch.types import FLOAT8
from cutegen.errors import OperandError
from cutegen.hardware import Instruction, target
from cutegen.hardware import dtype as element_type
from cutegen.run.call.operands import Form, compact_strides
from cutegen.support.words import round_up

BLOCK = 128
"""Elements of K of a block, and its rows if they are several."""
ROWS_OF_BLOCKS = (1, BLOCK)
SCALES = {"scale_a": "a", "scale_b": "b"}
LEAST_TARGET = "sm_90"
"""The first target whose kernels scale sums of blocks."""
_MODES = {"scale_a": (-2, -1), "scale_b": (-1, -2)}
"""Dimensions of the rows and of K."""
Block = tuple[int, int]


def blocks_of(shapes: Mapping[str, Shape]) -> Mapping[str, Block]:
    """Return the rows and the K of the blocks of A and of B, by the names of their factors; nothing without blocks.

    Raises OperandError for factors of blocks in the order of the transposed operand, and if only one operand has some.
    """
    given = {name: shapes[name] for name in SCALES if name in shapes}
    along_k = {name: _has_blocks(name, shape, shapes[SCALES[name]]) for name, shape in given.items()}
    if not any(along_k.values()):
        return {}
    found = {name: _block(name, shape, shapes[SCALES[name]]) for name, shape in given.items()}
    for name, operand in SCALES.items():
        if found.get(name) is None:
            raise _no_factors(name, given.get(name), shapes[operand])
    return {name: block for name, block in found.items() if block is not None}


def block_of(name: str, shapes: Mapping[str, Shape]) -> Block:
    """Return the rows and the K of the blocks of one operand. Raises OperandError for factors of another shape."""
    shape, operand = shapes.get(name), shapes[SCALES[name]]
    if shape is None or (found := _block(name, shape, operand)) is None:
        raise _no_factors(name, shape, operand)
    return found


def _no_factors(name: str, shape: Shape | None, operand: Shape) -> OperandError:
    if len(operand) < 2:
        expected = f"factors of blocks of {SCALES[name]} only if that is a matrix, or a batch of them"
        return OperandError(
            operand=name, found=f"a vector {SCALES[name]}", expected=expected, fix="`[None]` adds a row"
        )
    rows, k = (operand[each] for each in _MODES[name])
    own = [(-(-rows // of), -(-k // BLOCK)) for of in ROWS_OF_BLOCKS]
    wanted = own if name == "scale_a" else [each[::-1] for each in own]
    turned = shape is not None and len(shape) == len(operand) and tuple(shape[:-3:-1]) in wanted
    return OperandError(
        operand=name,
        found="none" if shape is None else f"shape {tuple(shape)}",
        expected=f"{' or '.join(map(str, wanted))}: blocks of {SCALES[name]} in its order, as the other operand has",
        fix=f"`{name}.{'T' if len(operand) < 3 else 'mT'}`" if turned else "",
    )


def _has_blocks(name: str, shape: Shape, operand: Shape) -> bool:
    """Return whether a scale has a factor for each block, in either order, and not one for each row or column."""
    if len(shape) != len(operand) or len(shape) < 2 or prod(shape) == 1:
        return False
    rows, k = _MODES[name]
    if shape[k] == 1 and shape[rows] == operand[rows]:
        return False
    turned = (*shape[:-2], shape[-1], shape[-2])
    return _block(name, shape, operand) is not None or (
        operand[k] > BLOCK and _block(name, turned, operand) is not None
    )


def _block(name: str, shape: Shape, operand: Shape) -> Block | None:
    """Return the rows and the K of the blocks that factors of this shape stand for; None if they do not fit."""
    if len(shape) != len(operand) or tuple(shape[:-2]) != tuple(operand[:-2]):
        return None
    rows, k = _MODES[name]
    if shape[k] != -(-operand[k] // BLOCK):
        return None
    return next(((of, BLOCK) for of in ROWS_OF_BLOCKS if shape[rows] == -(-operand[rows] // of)), None)


def members_have_blocks(forms: Mapping[str, Form], pairs: Pairs) -> bool:
    """Return whether kernels take pairs of columns of a product with these forms: without blocks they do.

    With blocks, each member must have its own: in halves, K-major.
    """
    if (found := blocks_of({name: form.shape for name, form in forms.items()}).get("scale_b")) is None:
        return True
    (rows, _), scale = found, forms["scale_b"]
    along_k = scale.shape[-2] == 1 or scale.strides[-2] == 1
    whole = rows > 1 and forms["b"].shape[-1] % (2 * rows) == 0
    return pairs.width is None and whole and along_k


def check_factors(name: str, form: Form, operand: Form) -> None:
    """Check the types of factors and of their operand. Raises OperandError."""
    if operand.dtype not in FLOAT8:
        raise OperandError(
            operand=name,
            found=f"factors of blocks of {SCALES[name]}, of dtype {operand.dtype}",
            expected=f"an operand of {' or '.join(sorted(FLOAT8))}: kernels scale sums of blocks of 8-bit floats",
        )
    if form.dtype != "f32":
        raise OperandError(operand=name, found=f"dtype {form.dtype}", expected="f32", fix=f"cast {name}")


def folds_factors(form: Form, block: Block, problem: Multiplied) -> bool:
    """Return whether A's factors can become those of more rows, as A's batch does."""
    return block[0] == 1 and as_matrices(form, problem.batch, fold=True) is not None


def takes_any_stride(target_name: str) -> bool:
    """Return whether kernels of a target take factors of strides that no tensor map has: lanes of a warp copy them.

    >>> takes_any_stride("sm_90"), takes_any_stride("sm_100")
    (True, False)
    """
    return target(target_name).has(Instruction.WGMMA)


def place_factors(
    name: str, form: Form, address: int, block: Block, problem: Multiplied, *, fold: bool, any_stride: bool
) -> Placement:
    """Return factors as a kernel reads them: in place if either mode is contiguous, else as a copy.

    A kernel is for those of which a tensor map exists, by 16 bytes, or of `any_stride`, by elements.
    """
    rows, size = "m" if name == "scale_a" else "n", element_type(form.dtype).bytes
    placed = as_matrices(form, problem.batch, fold=fold)
    if placed is not None and 0 not in placed.shape:
        # One factor along a mode is contiguous along either: that of the rows if each has its own, else K, as in specs.
        last = major_of(placed, prefer_last=(name == "scale_a") == (block[0] > 1))
        if last is not None and (len(placed.shape) == 2 or placed.strides[0] >= 0):
            align = alignment(placed, address, last=last, element_bytes=size)
            if align >= (size if any_stride else VECTOR_BYTES):
                major = "k" if last is (name == "scale_a") else rows
                align = VECTOR_BYTES if align >= VECTOR_BYTES else size
                return Placement(placed, Matrix(form.dtype, major, align, block))
    return _copied(name, form, block, problem, rows, fold=fold)


def _copied(name: str, form: Form, block: Block, problem: Multiplied, rows: str, *, fold: bool) -> Placement:
    """Return a copy whose leading stride is a multiple of the vector size.

    As in specs, `rows` are contiguous if each has its own factor, else K.
    """
    *batch, first, second = form.shape
    whole = tuple(batch) if not fold or prod(batch) == 1 else ()
    if fold:
        first *= prod(batch)
    major = rows if block[0] == 1 else "k"
    last = (name == "scale_a") is (major == "k")
    inner, outer = (second, first) if last else (first, second)
    stride = round_up(max(inner, 1), VECTOR_BYTES // element_type(form.dtype).bytes)
    strides = (stride, 1) if last else (1, stride)
    many = prod(whole)
    if many == 1:
        whole = ()
    steps = tuple(outer * stride * x for x in compact_strides(whole))
    shape = (*whole, first, second)
    elems = many * outer * stride
    copy = Copy(shape, shape, (*steps, *strides), elems, "no kernel reads its strides")
    seen = (many, first, second) if whole else (first, second)
    read = form._replace(shape=seen, strides=((outer * stride, *strides) if whole else strides))
    return Placement(read, Matrix(form.dtype, major, VECTOR_BYTES, block), copy)
