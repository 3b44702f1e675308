"""A call with NumPy arrays: the kernel's PTX is executed on the CPU."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cutegen.contract.launch import RESULT_FACTORS
from cutegen.dispatch.block_scales import LEAST_TARGET, blocks_of
from cutegen.dispatch.cpu_time_guard import guard_cpu_time
from cutegen.dispatch.formula import LEAST_OF_PAIRS, Formula
from cutegen.dispatch.placement import VECTOR_BYTES, Copy
from cutegen.dispatch.prepared_call import prepare_call
from cutegen.dispatch.quantized import ELEMENT, LEAST_OF_QUANTIZED, has_kernel
from cutegen.dispatch.resolve import CallTarget, Given, Resolved, resolve, with_rows
from cutegen.dispatch.settings import settings
from cutegen.dispatch.shapes import OUT_DTYPES
from cutegen.errors import OperandError, RequestError
from cutegen.hardware import dtype as element_type
from cutegen.hardware.targeting import DEFAULT_TARGET, choose_target
from cutegen.run.call.operands import Form, name_of, view_of
from cutegen.run.call.storage import numpy_dtype

Array = np.ndarray[Any, Any]


def matmul(
    arrays: Mapping[str, Array], formula: Formula, scalars: Mapping[str, float], out_dtype: str | None
) -> Array | tuple[Array, Array]:
    """Compute a call with these arrays, by their names; `out` is written and returned if it is given."""
    return computed(resolve_arrays(arrays, formula, out_dtype), arrays, scalars)


def computed(
    resolved: Resolved, arrays: Mapping[str, Array], scalars: Mapping[str, float]
) -> Array | tuple[Array, Array]:
    """Compute a resolved call with these arrays; `out` is written and returned if it is given.

    A quantized result is returned with its factors, which are written to `scale_c` if that is given.
    """
    if (place := resolved.factors) is None:
        return _computed(resolved, arrays, scalars)
    if (factors := arrays.get(RESULT_FACTORS)) is None:
        memory = _aligned((place.elems,), np.dtype(np.float32))
        strides = [step * memory.itemsize for step in place.strides]
        factors = np.lib.stride_tricks.as_strided(memory, place.shape, strides)
    values = _computed(resolved, {**arrays, RESULT_FACTORS: factors}, scalars)
    if resolved.empty and resolved.clears:
        factors[...] = 0
    return values, factors


def _computed(resolved: Resolved, arrays: Mapping[str, Array], scalars: Mapping[str, float]) -> Array:
    """Compute a resolved call with the arrays of all of its factors."""
    out = arrays.get("out")
    if out is None:
        out = _aligned(resolved.problem.result, numpy_dtype(element_type(resolved.dtype).torch_name))
    if resolved.empty:
        if resolved.clears:
            out[...] = 0
        return out
    guard_cpu_time(resolved)
    used = {name: arrays[name] for name in arrays if name != "out"} | {
        "out": _like(out) if resolved.out_copied else out
    }
    for name, placed in resolved.placements.items():
        if placed.copy is not None:
            used[name] = _copied(used[name], placed.copy)
    addresses = {name: array.ctypes.data for name, array in used.items()}
    prepare_call(resolved)(addresses, scalars, 0)
    if resolved.out_copied:
        out[...] = used["out"]
    return out


def resolve_arrays(
    arrays: Mapping[str, Array],
    formula: Formula,
    out_dtype: str | None,
    arch: str | None = None,
    rows: int | None = None,
) -> Resolved:
    """Return the request of a call, for an `a` with so many `rows` if given. Raises OperandError, RequestError."""
    given = given_arrays(arrays, quantized=formula.quantized is not None)
    blocks = blocks_of({name: form.shape for name, (form, _) in given.items()})
    special = formula.gated is not None or formula.quantized is not None
    target = choose_target(arch, least=LEAST_TARGET if blocks else LEAST_OF_PAIRS if special else DEFAULT_TARGET).name
    if formula.quantized is not None:
        out_dtype = quantized_type(target, given["a"][0])
    where = CallTarget(target, batch_invariant=settings.batch_invariant, family=settings.asked_family)
    return resolve(with_rows(given, rows), formula, where, out_dtype)


def given_arrays(arrays: Mapping[str, Array], *, quantized: bool) -> Given:
    """Return forms and addresses. Bytes are the values of a `quantized` result, since NumPy lacks their type."""
    views = {name: view_of(array, name) for name, array in arrays.items()}
    given = {name: (view.form, view.pointer) for name, view in views.items()}
    if quantized and "out" in given and given["out"][0].dtype == "u8":
        given["out"] = given["out"][0]._replace(dtype=ELEMENT), given["out"][1]
    return given


def quantized_type(target: str, a: Form) -> str:
    """Return the type of a quantized result's values. Raises OperandError for an A whose kernels do not quantize."""
    if not has_kernel(target, a.dtype):
        raise OperandError(
            operand="a",
            found=f"{a.dtype} on {target}, with quantize",
            expected=f"16-bit or 8-bit floats on {LEAST_OF_QUANTIZED}, whose kernels quantize",
            fix="cast it, or quantize the result: `cutegen.quantize`",
        )
    return ELEMENT


def dtype_name(asked: Any) -> str:
    """Return the element type of NumPy's `asked`, or of that name. Raises RequestError for anything else."""
    if isinstance(asked, str) and asked not in np.sctypeDict:
        return asked
    try:
        return name_of(np.dtype(asked).name)
    except (TypeError, ValueError):
        expected = f"a type of NumPy, or one of {', '.join(OUT_DTYPES)}"
        raise RequestError(f"matmul: out_dtype: found {asked!r}; expected {expected}") from None


def _like(out: Array) -> Array:
    """Return aligned memory with the elements of a result, which a kernel of groups may leave."""
    made = _aligned(out.shape, out.dtype)
    made[...] = out
    return made


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return new memory that begins at a multiple of VECTOR_BYTES, as results are assumed to."""
    count = int(np.prod(shape, dtype=np.int64))
    flat = np.empty(count + VECTOR_BYTES, dtype)
    first = -(flat.ctypes.data // dtype.itemsize) % (VECTOR_BYTES // dtype.itemsize)
    return flat[first : first + count].reshape(shape)


def _copied(array: Array, copy: Copy) -> Array:
    """Return a copy in new memory."""
    made = np.lib.stride_tricks.as_strided(
        _aligned((copy.elems,), array.dtype), copy.shape, [step * array.itemsize for step in copy.strides]
    )
    made[...] = array.reshape(copy.seen)
    return made
