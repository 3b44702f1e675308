"""Factors of blocks of A and B in a call: told from scales of whole rows by their shape, and placed for a kernel.

```text
a (..., M, K)    scale_a (..., M, K/128)      blocks of 1 x 128        extents rounded up
                 scale_a (..., M/128, K/128)  blocks of 128 x 128
b (..., K, N)    scale_b (..., K/128, N), (..., K/128, N/128)
```

Factors of 8 bits are those of blocks of 1 x 32 or 1 x 16, in atoms of 128 rows by 4 one after another
(`cutegen.hardware.factor_atoms`). Their shape may be any with so many elements.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypedDict

from cutegen.contract.problem import Groups, Pairs
from cutegen.dispatch.placement import VECTOR_BYTES, Copy, Placement, alignment, as_matrices, major_of
from cutegen.dispatch.request import Matrix
from cutegen.dispatch.shapes import FLOAT8, Multiplied, Shape
from cutegen.errors import OperandError
from cutegen.hardware import PACKED, Instruction, target
from cutegen.hardware import dtype as element_type
from cutegen.hardware.factor_atoms import ATOM_ROWS, ATOM_WORDS, BLOCK_VALUES, PER_WORD
from cutegen.run.call.operands import Form, compact_strides
from cutegen.support.words import round_up

BLOCK = 128
"""Elements of K of a block, and its rows if they are several."""
ROWS_OF_BLOCKS = (1, BLOCK)
SCALES = {"scale_a": "a", "scale_b": "b"}
LEAST_TARGET = "sm_90"
"""The first target whose kernels scale sums of blocks."""
SECOND = {"scale_a": "scale_m", "scale_b": "scale_n"}
"""Names of the factor of all of an operand that those of its blocks may have beside them."""
LEAST_OF_ATOMS = "sm_100"
"""The first target whose kernels multiply by factors of 8 bits."""
_ATOMS = {"ue8m0": "ue8m0", "e4m3": "ue4m3"}
"""Types of factors of 8 bits in a call, and as instructions read them."""
_MULTIPLIED = {"ue8m0": FLOAT8 | {*PACKED}, "e4m3": frozenset(PACKED)}
"""Types of the operands that instructions multiply by such factors."""
_MODES = {"scale_a": (-2, -1), "scale_b": (-1, -2)}
"""Dimensions of the rows and of K."""
Block = tuple[int, int]


def levels(scale_a: Any, scale_b: Any) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Return the factors of both operands, and by name those of all of an operand that one may have beside them.

    `cutegen.quantize` returns the factors of nvf4 as a pair. Raises OperandError for other numbers of them.
    """
    scales: list[Any] = [scale_a, scale_b]
    seconds: dict[str, Any] = {}
    for at, (name, given) in enumerate((("scale_a", scale_a), ("scale_b", scale_b))):
        if not isinstance(given, tuple | list):
            continue
        if len(given) not in (1, 2):
            expected = "a tensor, or a pair: of blocks, and of all values"
            raise OperandError(operand=name, found=f"{len(given)} tensors", expected=expected)
        scales[at] = given[0]
        if len(given) > 1:
            seconds[SECOND[name]] = given[1]
    return (scales[0], scales[1]), seconds


def in_atoms(forms: Mapping[str, Form]) -> bool:
    """Return whether a call has factors of 8 bits."""
    return any(forms[name].dtype in _ATOMS for name in SCALES if name in forms)


def blocks_in_call(forms: Mapping[str, Form]) -> Mapping[str, Block]:
    """Return the blocks of A and of B as `blocks_of`; of factors of 8 bits with K in values, two of them in a pair.

    Raises OperandError for factors that do not fit.
    """
    if not in_atoms(forms):
        return blocks_of({name: form.shape for name, form in forms.items()})
    for name in SCALES:
        check_types_of_atoms(name, forms)
        check_number(name, forms[name], forms[SCALES[name]])
    return {name: block_of_atoms(forms[name]) for name in SCALES}


def block_of_atoms(form: Form) -> Block:
    """Return the block of factors of 8 bits."""
    return 1, BLOCK_VALUES[_ATOMS[form.dtype]]


def check_types_of_atoms(name: str, forms: Mapping[str, Form]) -> None:
    """Check that both operands have factors of one type of 8 bits, and are multiplied by them. Raises OperandError."""
    for each in SCALES:
        if each in forms and forms[each].dtype in _ATOMS:
            _check_not_of_128(each, forms[each], forms[SCALES[each]])
    form, operand = forms.get(name), forms[SCALES[name]]
    kind, first = next((forms[x].dtype, x) for x in SCALES if x in forms and forms[x].dtype in _ATOMS)
    if form is None or form.dtype != kind:
        raise OperandError(
            operand=name,
            found="none" if form is None else f"dtype {form.dtype}",
            expected=f"{kind}, as {first} has: an instruction multiplies by both",
            fix="cutegen.quantize makes such factors",
        )
    if operand.dtype not in _MULTIPLIED[kind]:
        expected = f"{' or '.join(sorted(_MULTIPLIED[kind]))}, which instructions multiply by factors of {kind}"
        raise OperandError(operand=SCALES[name], found=f"dtype {operand.dtype}", expected=expected)
    if len(operand.shape) < len(_MODES):
        expected = "a matrix, or a batch of them: factors are of rows and K"
        raise OperandError(operand=SCALES[name], found=f"shape {tuple(operand.shape)}", expected=expected)


def _check_not_of_128(name: str, form: Form, operand: Form) -> None:
    """Raise OperandError for factors of 8 bits with the shape of those of blocks of 128."""
    if prod(form.shape) and (block := _block(name, form.shape, operand.shape)) is not None:
        raise OperandError(
            operand=name,
            found=f"{form.dtype} for blocks of {block[0]} x {block[1]}",
            expected="f32: factors of 8 bits are of blocks of 1 x 32 or 1 x 16",
            fix=_as_f32(name, form),
        )


def _as_f32(name: str, form: Form) -> str:
    """Return what makes floats f32, "" for integers, which may hold the bits of floats."""
    if form.dtype not in (*_ATOMS, "f16", "bf16", "float64"):
        return ""
    return f"`{name}.float()`" if form.framework == "torch" else f"`{name}.astype(numpy.float32)`"


def check_target(name: str) -> None:
    """Raise OperandError for factors of 8 bits on a target without kernels that multiply by them."""
    if not target(name).has(Instruction.TCGEN05):
        raise OperandError(
            operand="scale_a",
            found=f"factors of 8 bits on {name}",
            expected=f"{LEAST_OF_ATOMS} or a later target with tcgen05.mma, which multiplies by them",
            fix="factors of f32: `cutegen.quantize(x, (1, 128))`",
        )


def check_values(forms: Mapping[str, Form]) -> None:
    """Raise OperandError for pairs of 4-bit floats without factors, and for a second factor without those of 8 bits."""
    scaled = in_atoms(forms)
    for name, operand in SCALES.items():
        if forms[operand].dtype in PACKED and not scaled:
            expected = "scale_a and scale_b of 8 bits, by which instructions multiply pairs of 4-bit floats"
            fix = "cutegen.quantize returns them with the values"
            raise OperandError(operand=operand, found=f"dtype {forms[operand].dtype}", expected=expected, fix=fix)
        if (second := forms.get(SECOND[name])) is None:
            continue
        if not scaled:
            expected = "one tensor: only factors of 8 bits have one of all values beside them"
            raise OperandError(operand=name, found="a pair", expected=expected)
        if second.dtype != "f32":
            raise OperandError(operand=name, found=f"{second.dtype} for all values", expected="f32")


def atoms_of(name: str, form: Form, operand: Form) -> tuple[int, int]:
    """Return the atoms along the rows of an operand, and the words of all atoms along K, of factors of 8 bits."""
    rows, k = (operand.shape[each] for each in _MODES[name])
    values = k * element_type(operand.dtype).values
    return -(-rows // ATOM_ROWS), -(-values // (block_of_atoms(form)[1] * PER_WORD)) * ATOM_WORDS


def _atoms_of_groups(name: str, form: Form, operand: Form, groups: Groups, count: int) -> tuple[int, int]:
    """Return the same for an operand that packs so many `groups`: what any sizes need; of groups of K a list of atoms.

    A list has an atom in a row.
    """
    (blocks, words), (rows, k) = atoms_of(name, form, operand), _MODES[name]
    if groups.of != "k":
        return groups.most_tiles(operand.shape[rows], count, ATOM_ROWS), words
    of_atom = block_of_atoms(form)[1] * PER_WORD // element_type(operand.dtype).values
    return blocks * groups.most_tiles(operand.shape[k], count, of_atom), ATOM_WORDS


def filled_atoms(name: str, form: Form, operand: Form) -> Form:
    """Return factors of 8 bits that fill the atoms of a matrix."""
    blocks, words = atoms_of(name, form, operand)
    shape = blocks * ATOM_ROWS, words // ATOM_WORDS * PER_WORD
    return form._replace(shape=shape, strides=compact_strides(shape))


def check_number(name: str, form: Form, operand: Form, packed: Groups | None = None, groups: int = 0) -> None:
    """Raise OperandError unless there are as many factors as fill the atoms of an operand.

    Of `packed` groups they are those of any number of atoms: the device has the sizes of the `groups`.
    """
    blocks, words = atoms_of(name, form, operand)
    if packed is not None:
        blocks, words = _atoms_of_groups(name, form, operand, packed, groups)
    width = words // ATOM_WORDS * PER_WORD
    expected = (*operand.shape[:-2], blocks * ATOM_ROWS, width)
    whole = packed is not None and width and prod(form.shape) % (ATOM_ROWS * width) == 0
    if not whole and prod(form.shape) != prod(expected):
        raise OperandError(
            operand=name,
            found=f"shape {tuple(form.shape)}",
            expected=f"{' x '.join(map(str, expected))} factors in atoms of {ATOM_ROWS} rows by {PER_WORD}, of blocks "
            f"of 1 x {block_of_atoms(form)[1]} values of {SCALES[name]} {tuple(operand.shape)}",
            fix="cutegen.quantize makes such factors",
        )


def place_atoms(
    name: str,
    form: Form,
    address: int,
    operand: Form,
    problem: Multiplied,
    *,
    fold: bool,
    groups: Groups | None = None,
    count: int = 0,
) -> Placement:
    """Return factors of 8 bits as a kernel reads them, in words: in place, or as an aligned copy.

    Those of an operand of packed `groups`, so many, are of the atoms that any sizes need.
    """
    blocks, along_k = atoms_of(name, form, operand)
    there = blocks
    if groups is not None:
        blocks, along_k = _atoms_of_groups(name, form, operand, groups, count)
        there = min(blocks, prod(form.shape) // (along_k * PER_WORD)) if along_k else blocks
    shape = (*operand.shape[:-2], blocks, along_k)
    words = form._replace(shape=shape, strides=compact_strides(shape), dtype="s32")
    placed, copy = as_matrices(words, problem.batch, fold=fold), None
    if placed is None:
        whole = (*problem.batch, *shape[-2:])
        words = words._replace(shape=whole, strides=compact_strides(whole))
        placed = as_matrices(words, problem.batch, fold=fold)
        copy = Copy(shape, whole, words.strides, prod(whole), "its batch is expanded, or has no single stride")
    elif not _is_compact(form) or (address % VECTOR_BYTES and prod(shape)):
        why = f"it is not contiguous, or its address is no multiple of {VECTOR_BYTES}"
        copy = Copy(shape, shape, words.strides, prod(shape), why)
    if there < blocks:
        seen = (there, along_k)
        copy = Copy(seen, seen, words.strides, prod(shape), f"it has {there} of the {blocks} atoms that any sizes need")
    assert placed is not None
    if name == "scale_b":
        placed = placed._replace(
            shape=(*placed.shape[:-2], *placed.shape[:-3:-1]), strides=(*placed.strides[:-2], *placed.strides[:-3:-1])
        )
    return Placement(placed, Matrix(_ATOMS[form.dtype], "k", VECTOR_BYTES, block_of_atoms(form)), copy)


def _is_compact(form: Form) -> bool:
    """Return whether elements follow one another in memory, in their order."""
    steps = zip(form.shape, form.strides, compact_strides(tuple(form.shape)), strict=True)
    return all(stride == compact for extent, stride, compact in steps if extent > 1)


def place_second(name: str, form: Form) -> Placement:
    """Return the factor of all of an operand beside those of its blocks. Raises OperandError for several."""
    if prod(form.shape) != 1:
        found = f"shape {tuple(form.shape)} for all values"
        raise OperandError(operand=name, found=found, expected="one element beside the factors of blocks")
    mode = "m" if name == "scale_a" else "n"
    return Placement(form._replace(shape=(1,), strides=(1,)), Matrix(form.dtype, mode, element_type(form.dtype).bytes))


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
    of_operand = [(*operand[:-2], *each) for each in wanted]
    return OperandError(
        operand=name,
        found="none" if shape is None else f"shape {tuple(shape)}",
        expected=f"{' or '.join(map(str, wanted))}: blocks of {SCALES[name]} in its order, as the other operand has",
        fix="" if shape is None else way_out(name, tuple(shape), of_operand, along_k=_MODES[name][1]),
    )


def way_out(name: str, shape: Shape, wanted: Sequence[Shape], *, along_k: int) -> str:
    """Return how factors of a shape become such of one that is wanted, "" if it is not known. K is dimension `along_k`.

    One block more is of a shard that begins within a block, and ends in another.
    """
    if len(shape) < 2:
        return ""
    if (*shape[:-2], *shape[:-3:-1]) in wanted:
        return f"`{name}.{'T' if len(shape) < 3 else 'mT'}`"
    more = [[x - y for x, y in zip(shape[-2:], each[-2:], strict=True)] for each in wanted if shape[:-2] == each[:-2]]
    if any(each[along_k] == 1 and not each[-3 - along_k] for each in more):
        return f"blocks begin at the first K: give a shard of {SCALES[name]} that begins within one zeros before it"
    if any(each[-3 - along_k] == 1 and not each[along_k] for each in more):
        rows = "rows" if name == "scale_a" else "columns"
        return f"blocks begin at the first of the {rows}: give each of a shard that begins within one its own factors"
    return ""


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


def members_have_blocks(forms: Mapping[str, Form], pairs: Pairs, target_name: str) -> bool:
    """Return whether kernels for a target take pairs of columns of a product with these forms: without blocks they do.

    With blocks, each member must have its own: in halves, K-major. Factors of 8 bits are in atoms of 128 columns.
    """
    if in_atoms(forms):
        return members_have_atoms(forms["b"], pairs)
    if (found := blocks_in_call(forms).get("scale_b")) is None:
        return True
    if not scales_sums_of_pairs(target_name):
        return False
    (rows, _), scale = found, forms["scale_b"]
    along_k = scale.shape[-2] == 1 or scale.strides[-2] == 1
    whole = rows > 1 and forms["b"].shape[-1] % (2 * rows) == 0
    return pairs.width is None and whole and along_k


def scales_sums_of_pairs(target_name: str) -> bool:
    """Return whether kernels for a target join pairs of columns whose sums factors of f32 scale.

    >>> scales_sums_of_pairs("sm_90"), scales_sums_of_pairs("sm_100")
    (True, False)
    """
    return target(target_name).has(Instruction.WGMMA)


def members_have_atoms(b: Form, pairs: Pairs) -> bool:
    """Return whether the columns of each member of pairs of B have atoms of factors of their own."""
    return pairs.width is None and b.shape[-1] % (2 * ATOM_ROWS) == 0


def check_factors(name: str, form: Form, operand: Form) -> None:
    """Check the types of factors and of their operand. Raises OperandError."""
    if operand.dtype not in FLOAT8:
        raise OperandError(
            operand=name,
            found=f"factors of blocks of {SCALES[name]}, of dtype {operand.dtype}",
            expected=f"an operand of {' or '.join(sorted(FLOAT8))}: kernels scale sums of blocks of 8-bit floats",
        )
    if form.dtype != "f32":
        raise OperandError(operand=name, found=f"dtype {form.dtype}", expected="f32", fix=_as_f32(name, form))


def folds_factors(form: Form, block: Block, problem: Multiplied) -> bool:
    """Return whether A's factors can become those of more rows, as A's batch does."""
    if form.dtype in _ATOMS:
        return problem.m % ATOM_ROWS == 0
    return block[0] == 1 and as_matrices(form, problem.batch, fold=True) is not None


def takes_any_stride(target_name: str) -> bool:
    """Return whether kernels of a target take factors of strides that no tensor map has: lanes of a warp copy them.

    >>> takes_any_stride("sm_90"), takes_any_stride("sm_100")
    (True, False)
    """
    return target(target_name).has(Instruction.WGMMA)


def read_by_lanes(factors: Matrix) -> bool:
    """Return whether lanes of a warp copy factors to shared memory, since no tensor map describes them."""
    return factors.dtype == "f32" and factors.align_bytes < VECTOR_BYTES


class HowRead(TypedDict):
    """The factors that a call's kernels read: of `any_stride`, and `copies` of those that they do not."""

    any_stride: bool
    copies: bool


def place_factors(
    name: str,
    form: Form,
    address: int,
    block: Block,
    problem: Multiplied,
    *,
    fold: bool,
    any_stride: bool,
    copies: bool = False,
) -> Placement:
    """Return factors as a kernel reads them: in place if either mode is contiguous, else as a copy.

    A kernel is for those of which a tensor map exists, by 16 bytes, or of `any_stride`, by elements, unless the call
    `copies` them for the kernels of an open pack.
    """
    rows, size = "m" if name == "scale_a" else "n", element_type(form.dtype).bytes
    placed = as_matrices(form, problem.batch, fold=fold)
    if placed is not None and 0 not in placed.shape:
        # One factor along a mode is contiguous along either: that of the rows if each has its own, else K, as in specs.
        last = major_of(placed, prefer_last=(name == "scale_a") == (block[0] > 1))
        if last is not None and (len(placed.shape) == 2 or placed.strides[0] >= 0):
            align = alignment(placed, address, last=last, element_bytes=size)
            if align >= (size if any_stride and not copies else VECTOR_BYTES):
                major = "k" if last is (name == "scale_a") else rows
                align = VECTOR_BYTES if align >= VECTOR_BYTES else size
                return Placement(placed, Matrix(form.dtype, major, align, block))
    why = "no kernel of an open pack reads its strides" if copies else "no kernel reads its strides"
    return _copied(name, form, block, problem, rows, fold=fold, why=why)


def _copied(name: str, form: Form, block: Block, problem: Multiplied, rows: str, *, fold: bool, why: str) -> Placement:
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
    copy = Copy(shape, shape, (*steps, *strides), elems, why)
    seen = (many, first, second) if whole else (first, second)
    read = form._replace(shape=seen, strides=((outer * stride, *strides) if whole else strides))
    return Placement(read, Matrix(form.dtype, major, VECTOR_BYTES, block), copy)
