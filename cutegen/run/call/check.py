"""Checks operands against a kernel: a misfit is an OperandError with what was found and expected, and a fix.

Forms (shape, strides, dtype, device) are checked once and remembered; later calls check only the addresses.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.contract.launch import BESIDE_RESULT, ENDS, FACTORS, RESULT_FACTORS, CallSize, LaunchContract, Strides
from cutegen.contract.problem import MAX_BATCH, MAX_EXTENT, MAX_TILES, ProblemShape
from cutegen.errors import OperandError
from cutegen.run.call import suggestions
from cutegen.run.call.bits import CARRIERS
from cutegen.run.call.memory_overlap import Placed, check_address, copy_fix
from cutegen.run.call.operands import Device, Form, name_of
from cutegen.run.call.storage import CallTensor, call_tensor, call_tensors
from cutegen.support.words import plural

MAX_SPAN_BYTES = 1 << 57
"""Largest address space of any CPU and GPU; strides are 64-bit integers, which kernels multiply."""


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """Forms that fit the contract and each other: `placed` by role, in the order of the contract's tensors."""

    size: CallSize
    device: Device
    placed: Mapping[str, Placed]


@dataclass(frozen=True, slots=True)
class _Matrices:
    """One operand's form, decomposed: the matrix (or vector), and the number in the batch."""

    one: Form
    batch: int | None
    batch_stride: int


def check_inputs(contract: LaunchContract, a: Form, b: Form, ends: Form | None = None) -> tuple[int, ...]:
    """Return the shape (M,N), or (L,M,N), of `a @ b`, for allocation. Raises OperandError.

    With groups, `ends` are their ends or sizes; the result is (M,N) or (G,M,N).
    """
    tensor_a, tensor_b = (call_tensor(x, contract.groups) for x in contract.operands)
    matrices_a, matrices_b = _check_kind(tensor_a, a), _check_kind(tensor_b, b)
    _check_device(tensor_b, b, a.device)
    if matrices_a.one.shape[1] != matrices_b.one.shape[0]:
        raise _inner_mismatch(matrices_a.one, matrices_b.one, b.framework)
    if contract.groups is not None:
        return _check_groups(contract, matrices_a, matrices_b, ends)
    batch = matrices_a.batch if matrices_a.batch is not None else matrices_b.batch
    if matrices_b.batch not in (None, batch):
        raise OperandError(
            operand="b", found=f"a batch of {matrices_b.batch}", expected=f"{batch} as in a, or a single matrix (K, N)"
        )
    m, n = matrices_a.one.shape[0], matrices_b.one.shape[1]
    _check_tiles(contract, ProblemShape(m, n, 1))
    shape = m, _columns(contract, n)
    return shape if batch is None else (batch, *shape)


def _columns(contract: LaunchContract, n: int) -> int:
    """Return C's columns for so many of B: half of them if they are pairs, which must then be whole."""
    if contract.pairs is None:
        return n
    if n % (multiple := contract.columns_multiple):
        raise OperandError(
            operand="b",
            found=f"N = {n}",
            expected=f"a multiple of {multiple}: {contract.pairs}",
            fix=f"pad each half of the weight to {-(-n // multiple) * multiple // 2} columns",
        )
    return n // 2


def _check_groups(contract: LaunchContract, a: _Matrices, b: _Matrices, ends: Form | None) -> tuple[int, ...]:
    """Return the shape of the result of groups, whose ends or sizes are a vector of int32 beside A."""
    groups, tensor = contract.groups, call_tensors(contract)[ENDS]
    assert groups is not None
    assert ends is not None
    _check_kind(tensor, ends)
    _check_device(tensor, ends, a.one.device)
    count, (m, n) = ends.shape[0], (a.one.shape[0], b.one.shape[1])
    for name, matrices in (("a", a), ("b", b)):
        if matrices.batch not in (None, count):
            raise OperandError(
                operand=tensor.name,
                found=f"{plural(count, 'group')}",
                expected=f"{matrices.batch}, one for each matrix of {name}",
                fix=_leading_zero_fix(tensor, count - (matrices.batch or 0)),
            )
    _check_tiles(contract, ProblemShape(m, n, a.one.shape[1], groups=count))
    shape = m, _columns(contract, n)
    return shape if groups.packs(("m", "n")) else (count, *shape)


def _leading_zero_fix(tensor: CallTensor, more: int) -> str:
    return f"`{tensor.name}[1:]` if it begins with a 0, as cu_seqlens do" if more == 1 else ""


def check_operand(tensor: CallTensor, form: Form, pointer: int) -> None:
    """Check one operand on its own. Raises OperandError."""
    _check_kind(tensor, form)
    placed = place(tensor, form)
    if pointer % placed.align_bytes:
        check_address(placed, pointer)


def check_call(contract: LaunchContract, *forms: Form, clears: bool = False) -> CheckedCall:
    """Check everything but the addresses, for operands in the order of `contract.passed`. Raises OperandError.

    With `clears` the kernel sets what no group has of the result to 0.
    """
    tensors = call_tensors(contract)
    of = dict(zip(tensors, forms, strict=True))
    a, b, ends = of["a"], of["b"], of.get(ENDS)
    shape, groups = check_inputs(contract, a, b, ends), None if ends is None else ends.shape[0]
    *batch, m, _ = shape
    problem = ProblemShape(m, b.shape[-1], a.shape[-1], *batch)
    if groups is not None:
        problem = ProblemShape(m, b.shape[-1], a.shape[-1], groups=groups)
    for role, tensor in tensors.items():
        if tensor.written:
            of_each = shape if role != RESULT_FACTORS else (*shape[:-2], *tensor.extents(problem))
            _check_result(tensor, of[role], of_each, a.device)
        elif role in (*FACTORS, *BESIDE_RESULT):
            of_each = tuple(batch) if groups is None or tensor.packed else (groups,)
            _check_extra(tensor, of[role], problem, of_each, a.device)
    placed = {role: place(tensor, of[role]) for role, tensor in tensors.items()}
    strides = {role: leading(each) for role, each in placed.items() if role != ENDS}
    return CheckedCall(CallSize(problem=problem, strides=strides, clears=clears), a.device, placed)


def leading(placed: Placed) -> Strides:
    """Return strides in elements."""
    element_bytes = placed.tensor.dtype.bytes
    return Strides(placed.pitch_bytes // element_bytes, placed.batch_pitch_bytes // element_bytes)


def _check_kind(tensor: CallTensor, form: Form) -> _Matrices:
    """Check rank, dtype, extents and device kind."""
    if len(form.shape) not in tensor.ranks and not (tensor.may_be_one_value and not form.shape):
        raise OperandError(
            operand=tensor.name,
            found=f"{plural(len(form.shape), 'dimension')}, shape {tuple(form.shape)}",
            expected=_ranks(tensor) + _or_one(tensor),
            fix=_rank_fix(tensor, form),
        )
    if not _has_type(tensor, form):
        raise OperandError(
            operand=tensor.name,
            found=f"dtype {form.dtype}",
            expected=tensor.dtype.in_memory,
            fix=suggestions.cast(tensor, form),
        )
    matrices = _take_apart(tensor, form)
    _check_extents(tensor, matrices)
    if form.device[0] not in ("cuda", "cpu"):
        raise OperandError(
            operand=tensor.name,
            found=f"device {form.device[0]}",
            expected="a CUDA device, or the CPU",
            fix=suggestions.move(tensor, form, ("cuda", 0)),
        )
    return matrices


def _ranks(tensor: CallTensor) -> str:
    """Format the dimensions that a tensor may have."""
    rank, modes = len(tensor.modes), ", ".join(tensor.modes).upper()
    if tensor.groups is None:
        return f"{rank}, ({modes}), or {rank + 1} with a batch first"
    one = f"{rank}, ({modes})" + (f", {tensor.groups.layout} groups of {tensor.groups.of}" if len(modes) > 1 else "")
    of_groups = f"{rank + 1}, (G, {modes}), a {'matrix' if rank == 2 else 'vector'} for each group"
    return ", or ".join({rank: one, rank + 1: of_groups}[each] for each in tensor.ranks)


def _has_type(tensor: CallTensor, form: Form) -> bool:
    """Return whether elements have the kernel's type, or are its bits in integers if the framework lacks the type."""
    wanted, carrier = tensor.dtype, CARRIERS.get(tensor.dtype.name)
    carried = carrier is not None and form.framework != "torch" and form.dtype == name_of(carrier)
    return carried or form.dtype in (wanted.in_memory, wanted.name)


def _check_extents(tensor: CallTensor, matrices: _Matrices) -> None:
    for mode, extent in zip(tensor.modes, matrices.one.shape, strict=True):
        if extent > MAX_EXTENT:
            raise OperandError(
                operand=tensor.name,
                found=f"{mode.upper()} = {extent}",
                expected=f"at most {MAX_EXTENT}: kernels use 32-bit indices, up to the end of the last tile",
                fix="split the problem",
            )
    if matrices.batch is not None and matrices.batch > MAX_BATCH and tensor.groups is None:
        raise OperandError(
            operand=tensor.name,
            found=f"a batch of {matrices.batch}",
            expected=f"at most {MAX_BATCH}, the limit of grid.z",
            fix="split the batch",
        )


def _check_tiles(contract: LaunchContract, problem: ProblemShape) -> None:
    if (tiles := contract.tiles(problem)) > MAX_TILES:
        tile_m, tile_n = contract.cta_tile
        raise OperandError(
            operand="out",
            found=f"{problem.m} x {problem.n} elements, so {tiles} tiles of {tile_m} x {tile_n}",
            expected=f"at most {MAX_TILES}: grids and kernels use 32-bit numbers of tiles",
            fix="split the problem, or compile with a larger tile.cta",
        )


def _take_apart(tensor: CallTensor, form: Form) -> _Matrices:
    if not form.shape:
        return _Matrices(form._replace(shape=(1,), strides=(0,)), None, 0)
    if len(form.shape) == len(tensor.modes):
        return _Matrices(form, None, 0)
    one = form._replace(shape=tuple(form.shape[1:]), strides=tuple(form.strides[1:]))
    return _Matrices(one, form.shape[0], form.strides[0] if form.shape[0] > 1 else 0)


def _rank_fix(tensor: CallTensor, form: Form) -> str:
    name, rank = tensor.name, len(tensor.modes)
    if len(form.shape) < rank:
        return f"`{name}[None, :]` for a row, `{name}[:, None]` for a column" if len(form.shape) == 1 else ""
    extents = ", ".join(str(extent) for extent in form.shape[-rank:])
    return f"`{name}.reshape(-1, {extents})` for one batch of all of them"


def _check_device(tensor: CallTensor, form: Form, device: Device) -> None:
    if form.device != device:
        raise OperandError(
            operand=tensor.name,
            found=f"device {_spell(form.device)}",
            expected=f"{_spell(device)}, the device of a",
            fix=suggestions.move(tensor, form, device),
        )


def _spell(device: Device) -> str:
    kind, ordinal = device
    return kind if kind == "cpu" else f"{kind}:{ordinal}"


def _inner_mismatch(a: Form, b: Form, framework: str) -> OperandError:
    (m, k), (rows, columns) = a.shape, b.shape
    transpose = "b.t()" if framework == "torch" else "b.T"
    return OperandError(
        operand="b",
        found=f"shape {(rows, columns)}, so K = {rows}",
        expected=f"K = {k}, as in a of shape {(m, k)}: (M, K) @ (K, N)",
        fix=f"`{transpose}` if it is stored as (N, K)" if columns == k else "",
    )


def _check_result(tensor: CallTensor, form: Form, shape: tuple[int, ...], device: Device) -> None:
    """Check the result that the kernel writes: every element once, so it has the complete shape."""
    fix = suggestions.new_out(tensor, shape, form)
    if tuple(form.shape) != shape:
        modes = "(M, N)" if len(shape) == 2 else "(L, M, N)"
        found, expected = f"shape {tuple(form.shape)}", f"{shape}, {modes} of a @ b"
    elif not _has_type(tensor, form):
        found, expected = f"dtype {form.dtype}", tensor.dtype.in_memory
    elif form.read_only:
        found, expected = "a read-only array", "a writable array"
    else:
        _check_device(tensor, form, device)
        return
    raise OperandError(operand=tensor.name, found=found, expected=expected, fix=fix)


def _check_extra(tensor: CallTensor, form: Form, problem: ProblemShape, batch: tuple[int, ...], device: Device) -> None:
    """Check factors, or an operand that the epilogue reads: one for each matrix of the result, or one for all.

    `batch` is the number of matrices: of the result, or of its groups.
    """
    matrices = _check_kind(tensor, form)
    extents = tensor.extents(problem)
    fits = tuple(matrices.one.shape) in (extents, *(((1,),) if tensor.may_be_one_value else ()))
    if not fits or matrices.batch not in (None, *batch):
        listed = tensor.groups is not None and tensor.contract.lists(tensor.groups)
        shape = f"the list for any sizes of {problem.products} groups" if listed else ", ".join(tensor.modes).upper()
        wanted = f"{extents}, ({shape}) of {_owner(tensor)}"
        whole = f"{wanted}, or {(*batch, *extents)}" if batch and not listed else wanted
        raise OperandError(
            operand=tensor.name,
            found=f"shape {tuple(form.shape)}",
            expected=whole + _or_one(tensor),
            fix=_flattened(tensor, form, extents),
        )
    _check_device(tensor, form, device)


def _owner(tensor: CallTensor) -> str:
    """Format what the extents of an operand are taken from."""
    block = tensor.contract.block
    if block is None:
        return "the result"
    return f"blocks of {block[0]} x {block[1]} of {tensor.contract.name[-1]}"


def place(tensor: CallTensor, form: Form) -> Placed:
    """Return the memory range of an operand that fits. Raises OperandError."""
    matrices = _take_apart(tensor, form)
    one, size = matrices.one, tensor.dtype.bytes
    if len(tensor.modes) == 1:
        rows, (columns, stride) = 1, _vector(tensor, form, one)
    else:
        rows, columns = one.shape if tensor.row_major else one.shape[::-1]
        stride = _leading_stride(tensor, form, one)
    batch = 1 if matrices.batch is None else matrices.batch
    placed = Placed(tensor, form, rows, columns * size, stride * size, batch, matrices.batch_stride * size)
    if batch > 1 and rows and columns:
        _check_batch_stride(placed, matrices.batch_stride)
    if placed.span_bytes > MAX_SPAN_BYTES:
        raise OperandError(
            operand=tensor.name,
            found=f"strides {tuple(form.strides)}: {placed.span_bytes:,} bytes from the first to the last element",
            expected=f"at most {MAX_SPAN_BYTES:,}, more than any address space holds",
            fix=copy_fix(tensor, form, fresh=True),
        )
    return placed


def _vector(tensor: CallTensor, form: Form, vector: Form) -> tuple[int, int]:
    """Return the elements of a vector and their stride: 1, or 0 for one element that is broadcast."""
    (extent,), (stride,) = vector.shape, vector.strides
    if tensor.may_be_one_value and (extent == 1 or (extent and stride == 0)):
        return 1, 0
    if extent > 1 and stride != 1 and 0 not in form.shape:
        raise OperandError(
            operand=tensor.name,
            found=f"stride {stride}{_oddity(vector)}",
            expected="contiguous elements, stride 1" + _or_one(tensor),
            fix=copy_fix(tensor, form),
        )
    return extent, 1


def _or_one(tensor: CallTensor) -> str:
    return "; or one element for all" if tensor.may_be_one_value else ""


def _flattened(tensor: CallTensor, form: Form, extents: tuple[int, ...]) -> str:
    """Return the fix for a scale that is stored as a row, a column or a matrix of one element."""
    written_as_matrix = tensor.may_be_one_value and sorted(form.shape) in ([1, *extents], [1, 1])
    return f"`{tensor.name}.reshape(-1)`" if written_as_matrix else ""


def _check_batch_stride(placed: Placed, stride: int) -> None:
    tensor, size = placed.tensor, placed.tensor.dtype.bytes
    fix = copy_fix(tensor, placed.form, fresh=True)
    if stride < 0:
        found, expected = f"batch stride {stride} (reversed)", "0 or more"
    elif stride % tensor.align_elems:
        found = f"batch stride {stride}: {stride} x {size} = {stride * size} bytes"
        expected = f"a multiple of {tensor.contract.align_bytes} bytes, that is {tensor.align_elems} elements"
        expected += f" ({tensor.key('align')})"
    elif tensor.written and not _batches_apart(placed):
        found = f"batch stride {stride}, so that matrices of the batch overlap"
        matrix_bytes = (placed.rows - 1) * placed.pitch_bytes + placed.row_bytes
        expected = f"at least {matrix_bytes // size}, the elements that a matrix spans"
    else:
        return
    raise OperandError(operand=tensor.name, found=found, expected=expected, fix=fix)


def _batches_apart(placed: Placed) -> bool:
    """Return whether the matrices of a batch follow one another, or are interleaved row by row."""
    matrix_bytes = (placed.rows - 1) * placed.pitch_bytes + placed.row_bytes
    row_of_all_bytes = (placed.batch - 1) * placed.batch_pitch_bytes + placed.row_bytes
    interleaved = placed.batch_pitch_bytes >= placed.row_bytes and placed.pitch_bytes >= row_of_all_bytes
    return placed.batch_pitch_bytes >= matrix_bytes or interleaved


def _leading_stride(tensor: CallTensor, form: Form, matrix: Form) -> int:
    """Return the stride of the non-contiguous mode, which must be valid for the kernel.

    The stride of a mode of extent 1 has no meaning, whatever a framework stores there; nor do strides of an empty
    tensor.
    """
    contiguous = 1 if tensor.row_major else 0
    extent, leading_extent = matrix.shape[contiguous], matrix.shape[1 - contiguous]
    aligned = tensor.storage(matrix.shape).stride
    if 0 in form.shape:
        return aligned
    if extent > 1 and matrix.strides[contiguous] != 1:
        raise _wrong_major(tensor, form, matrix)
    if leading_extent == 1:
        return aligned
    stride = matrix.strides[1 - contiguous]
    if stride < extent:
        raise _overlapping(tensor, form, matrix)
    if stride % tensor.align_elems:
        raise _unaligned_stride(tensor, form, stride)
    return stride


def _wrong_major(tensor: CallTensor, form: Form, matrix: Form) -> OperandError:
    contiguous = 1 if tensor.row_major else 0
    other, major = tensor.modes[1 - contiguous], tensor.contract.major
    fix = copy_fix(tensor, form)
    if matrix.strides[1 - contiguous] == 1 and matrix.strides[contiguous] > 0:
        found = f"{other.upper()}-major strides {tuple(matrix.strides)}"
        fix += f', or compile with {tensor.key("major")} = "{other}" to take it as it is'
    else:
        found = f"strides {tuple(matrix.strides)}, contiguous in neither mode" + _oddity(matrix)
    expected = f'stride 1 in {major.upper()} ({tensor.key("major")} = "{major}")'
    return OperandError(operand=tensor.name, found=found, expected=expected, fix=fix)


def _overlapping(tensor: CallTensor, form: Form, matrix: Form) -> OperandError:
    extent = matrix.shape[1 if tensor.row_major else 0]
    return OperandError(
        operand=tensor.name,
        found=f"strides {tuple(matrix.strides)}{_oddity(matrix)}",
        expected=f"a leading stride of at least {extent}, the extent of {tensor.contract.major.upper()}",
        fix=copy_fix(tensor, form, fresh=True),
    )


def _oddity(form: Form) -> str:
    strides = [stride for extent, stride in zip(form.shape, form.strides, strict=True) if extent > 1]
    if any(stride < 0 for stride in strides):
        return " (reversed)"
    return " (broadcast)" if 0 in strides else ""


def _unaligned_stride(tensor: CallTensor, form: Form, stride: int) -> OperandError:
    contract, size = tensor.contract, tensor.dtype.bytes
    return OperandError(
        operand=tensor.name,
        found=f"leading stride {stride}: {stride} x {size} = {stride * size} bytes",
        expected=f"a multiple of {contract.align_bytes} bytes, that is {tensor.align_elems} elements "
        f"({tensor.key('align')})",
        fix=copy_fix(tensor, form),
    )
