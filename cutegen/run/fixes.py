"""Ways out of a refused operand: expressions in the caller's own framework that can be pasted."""

from __future__ import annotations

from cutegen.run.operands import Form
from cutegen.run.storage import CallTensor, MatrixStorage

_NUMPY_LIKE = {"numpy": "np", "cupy": "cupy"}


def cast(tensor: CallTensor, form: Form) -> str:
    """To the dtype that the kernel takes."""
    wanted = tensor.dtype.torch_name
    if form.framework == "torch":
        return f"`{tensor.name}.to(torch.{wanted})`"
    if form.framework in _NUMPY_LIKE and wanted != "bfloat16":
        return f"`{tensor.name}.astype({_NUMPY_LIKE[form.framework]}.{wanted})`"
    if form.framework == "numpy":
        return f"`cutegen.run.bf16_bits({tensor.name})`, whose uint16 holds the bits of bf16"
    return f"cast it to {wanted}"


def move(tensor: CallTensor, form: Form, device: tuple[str, int]) -> str:
    """To another device."""
    kind, ordinal = device
    if form.framework == "torch":
        return f'`{tensor.name}.to("{kind if kind == "cpu" else f"{kind}:{ordinal}"}")`'
    return f"copy it to {kind}:{ordinal}"


def copy(tensor: CallTensor, form: Form) -> str:
    """To memory of the major and the leading stride that the kernel takes."""
    rows, columns = form.shape
    storage = tensor.storage((rows, columns))
    if storage.columns != storage.stride:
        return fresh_copy(tensor, form)
    name = tensor.name
    if form.framework == "torch":
        return f"`{name}.contiguous()`" if tensor.row_major else f"`{name}.t().contiguous().t()`"
    if form.framework in _NUMPY_LIKE:
        order = "ascontiguousarray" if tensor.row_major else "asfortranarray"
        return f"`{_NUMPY_LIKE[form.framework]}.{order}({name})`"
    return f"copy it to {_in_words(storage)}"


def fresh_copy(tensor: CallTensor, form: Form) -> str:
    """Like `copy`, but always into new, aligned memory."""
    rows, columns = form.shape
    storage = tensor.storage((rows, columns))
    if form.framework == "torch":
        name = tensor.name
        return f"`{_torch_empty(storage, f'{name}.dtype', name)}.copy_({name})`"
    if form.framework in _NUMPY_LIKE:
        module, name = _NUMPY_LIKE[form.framework], f"{tensor.name}{'.T' if storage.transposed else ''}"
        padding = f"((0, 0), (0, {storage.stride - storage.columns}))"
        copied = f"{module}.pad({module}.ascontiguousarray({name}), {padding})"
        return f"`{copied}[:, : {storage.columns}]{'.T' if storage.transposed else ''}`"
    return f"copy it to {_in_words(storage)}"


def new_out(tensor: CallTensor, shape: tuple[int, int], form: Form) -> str:
    """Leave `out=` away, where the kernel can allocate, or allocate it like this."""
    storage = tensor.storage(shape)
    if form.framework == "torch":
        return f"leave out= away, or use `{_torch_empty(storage, f'torch.{tensor.dtype.torch_name}', tensor.name)}`"
    if form.framework in _NUMPY_LIKE:
        return "leave out= away"
    return f"allocate {_in_words(storage)}"


def _torch_empty(storage: MatrixStorage, dtype: str, device_of: str) -> str:
    empty = f"torch.empty(({storage.rows}, {storage.stride}), dtype={dtype}, device={device_of}.device)"
    inner = f"[:, :{storage.columns}]" if storage.columns != storage.stride else ""
    return f"{empty}{inner}{'.t()' if storage.transposed else ''}"


def _in_words(storage: MatrixStorage) -> str:
    major = "column" if storage.transposed else "row"
    return f"{major}-major memory with a leading stride of {storage.stride} elements"
