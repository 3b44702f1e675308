"""Fixes for a rejected operand: expressions in the caller's own framework to paste."""

from cutegen.run.call.bits import CARRIERS
from cutegen.run.call.operands import Form
from cutegen.run.call.storage import CallTensor, MatrixStorage

_NUMPY_LIKE = {"numpy": "np", "cupy": "cupy"}


def cast(tensor: CallTensor, form: Form) -> str:
    """Convert to the dtype that the kernel takes."""
    wanted = tensor.dtype.torch_name
    if form.framework == "torch":
        return f"`{tensor.name}.to(torch.{wanted})`"
    name = tensor.dtype.name
    if form.framework in _NUMPY_LIKE and name not in CARRIERS:
        return f"`{tensor.name}.astype({_NUMPY_LIKE[form.framework]}.{wanted})`"
    if form.framework == "numpy":
        call = f"bf16_bits({tensor.name})" if name == "bf16" else f'float8_bits({tensor.name}, "{name}")'
        return f"`cutegen.run.{call}`, whose {CARRIERS[name]} holds the bits of {name}"
    return f"cast it to {wanted}"


def move(tensor: CallTensor, form: Form, device: tuple[str, int]) -> str:
    """Move to another device."""
    kind, ordinal = device
    if form.framework == "torch":
        return f'`{tensor.name}.to("{kind if kind == "cpu" else f"{kind}:{ordinal}"}")`'
    return f"copy it to {kind}:{ordinal}"


def copy(tensor: CallTensor, form: Form) -> str:
    """Copy to memory with the major and the leading stride that the kernel takes."""
    name, matrix = tensor.name, len(tensor.modes) == 2
    if matrix and (storage := tensor.storage(form.shape)).columns != storage.stride:
        return fresh_copy(tensor, form)
    if form.framework == "torch":
        transposed = "" if tensor.row_major else _transposed(form)
        return f"`{name}{transposed}.contiguous(){transposed}`"
    if form.framework in _NUMPY_LIKE:
        module, batched = _NUMPY_LIKE[form.framework], len(form.shape) > len(tensor.modes)
        if not tensor.row_major and batched:
            return f"`{module}.ascontiguousarray({name}.swapaxes(1, 2)).swapaxes(1, 2)`"
        order = "ascontiguousarray" if tensor.row_major else "asfortranarray"
        return f"`{module}.{order}({name})`"
    return f"copy it to {_in_words(tensor.storage(form.shape))}" if matrix else "copy it to new memory"


def fresh_copy(tensor: CallTensor, form: Form) -> str:
    """Return an expression like `copy`'s, but always for new, aligned memory."""
    if len(tensor.modes) == 1:
        return f"`{tensor.name}.{'clone' if form.framework == 'torch' else 'copy'}()`"
    storage = tensor.storage(form.shape)
    if form.framework == "torch":
        name = tensor.name
        return f"`{_torch_empty(storage, f'{name}.dtype', name)}.copy_({name})`"
    if form.framework in _NUMPY_LIKE:
        transposed = _transposed(form) if storage.transposed else ""
        module, name = _NUMPY_LIKE[form.framework], f"{tensor.name}{transposed}"
        if storage.stride == storage.columns:
            return f"`{name}.copy(){transposed}`"
        padding = f"({'(0, 0), ' * (len(form.shape) - 1)}(0, {storage.stride - storage.columns}))"
        copied = f"{module}.pad({module}.ascontiguousarray({name}), {padding})"
        return f"`{copied}[..., : {storage.columns}]{transposed}`"
    return f"copy it to {_in_words(storage)}"


def new_out(tensor: CallTensor, shape: tuple[int, ...], form: Form) -> str:
    """Omit `out=` if the kernel can allocate it, or allocate it like this."""
    storage = tensor.storage(shape)
    leave = "omit out=" if tensor.name == "out" else ""
    if form.framework == "torch":
        fresh = f"use `{_torch_empty(storage, f'torch.{tensor.dtype.torch_name}', tensor.name)}`"
        return f"{leave}, or {fresh}" if leave else fresh
    if form.framework in _NUMPY_LIKE and leave:
        return leave
    return f"allocate {_in_words(storage)}"


def _transposed(form: Form) -> str:
    """Write the code that swaps the two modes of a matrix, or of each in a batch."""
    if form.framework == "torch":
        return ".t()" if len(form.shape) == 2 else ".mT"
    return ".T" if len(form.shape) == 2 else ".swapaxes(1, 2)"


def _torch_empty(storage: MatrixStorage, dtype: str, device_of: str) -> str:
    empty = f"torch.empty({storage.extents}, dtype={dtype}, device={device_of}.device)"
    inner = ("[:, :" if storage.batch is None else "[..., :") + f"{storage.columns}]"
    transposed = (".t()" if storage.batch is None else ".mT") if storage.transposed else ""
    return f"{empty}{inner if storage.columns != storage.stride else ''}{transposed}"


def _in_words(storage: MatrixStorage) -> str:
    major = "column" if storage.transposed else "row"
    return f"{major}-major memory with a leading stride of {storage.stride} elements"
