"""A call with NumPy arrays: the kernel's PTX is executed on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cutegen.dispatch.block_scales import LEAST_TARGET, blocks_of
from cutegen.dispatch.cpu_time_guard import guard_cpu_time
from cutegen.dispatch.formula import Formula
from cutegen.dispatch.gated import LEAST_OF_PAIRS
from cutegen.dispatch.placement import VECTOR_BYTES, Copy
from cutegen.dispatch.prepared_call import prepare_call
from cutegen.dispatch.resolve import CallTarget, Resolved, resolve, with_rows
from cutegen.dispatch.settings import settings
from cutegen.dispatch.types import OUT_DTYPES
from cutegen.errors import RequestError
from cutegen.hardware import dtype as element_type
from cutegen.hardware.targeting import choose_target
from cutegen.run.call.operands import name_of, view_of
from cutegen.run.call.storage import numpy_dtype

Array = np.ndarray[Any, Any]


def matmul(arrays: Mapping[str, Array], formula: Formula, scalars: Mapping[str, float], out_dtype: str | None) -> Array:
    """Compute a call with these arrays, by their names; `out` is written and returned if it is given."""
    return computed(resolve_arrays(arrays, formula, out_dtype), arrays, scalars)


def computed(resolved: Resolved, arrays: Mapping[str, Array], scalars: Mapping[str, float]) -> Array:
    """Compute a resolved call with these arrays; `out` is written and returned if it is given."""
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
    views = {name: view_of(array, name) for name, array in arrays.items()}
    blocks = blocks_of({name: view.form.shape for name, view in views.items()})
    least = {"least": LEAST_TARGET} if blocks else {} if formula.gated is None else {"least": LEAST_OF_PAIRS}
    where = CallTarget(
        choose_target(arch, **least).name, batch_invariant=settings.batch_invariant, family=settings.asked_family
    )
    given = {name: (view.form, view.pointer) for name, view in views.items()}
    return resolve(with_rows(given, rows), formula, where, out_dtype)


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
