"""`cutegen.grouped_mm`: many products in one launch, whose sizes only the device has.

y = cutegen.grouped_mm(x, w.mT, offs=ends)           # as torch.nn.functional.grouped_mm
y = cutegen.grouped_mm(x3, w.mT, sizes=counts)       # (G, R, K): the first counts[g] rows of each group
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

from cutegen.contract.problem import whole
from cutegen.dispatch import arrays
from cutegen.dispatch.formula import check_activation
from cutegen.dispatch.grouped import GroupedTerms, resolve_groups
from cutegen.dispatch.resolve import Resolved, Where
from cutegen.dispatch.settings import settings
from cutegen.errors import OperandError, RequestError
from cutegen.hardware.targeting import choose_target
from cutegen.run.call.operands import view_of

TAILS = ("zero", "keep")


def grouped_mm(
    mat_a: Any,
    mat_b: Any,
    *,
    offs: Any = None,
    cu_seqlens: Any = None,
    sizes: Any = None,
    bias: Any = None,
    activation: str | None = None,
    pairs: Any = None,
    first: str | None = None,
    tail: Literal["zero", "keep"] = "zero",
    expected: int | None = None,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """One product per group, in one launch: torch's four forms, and padded groups.

    | mat_a     | mat_b     | result    | groups                                       |
    |-----------|-----------|-----------|----------------------------------------------|
    | (R, K)    | (G, K, N) | (R, N)    | rows, up to `offs`: experts                  |
    | (G, M, K) | (K, C)    | (M, C)    | columns, up to `offs`                        |
    | (M, K)    | (K, N)    | (G, M, N) | parts of K, up to `offs`: gradients          |
    | (G, R, K) | (G, K, N) | (G, R, N) | all rows, or the first `sizes[g]` of a group |

    `offs` are the ends of the groups, (G,) of int32 on the tensors' device, or `cu_seqlens` has a 0 before them; no
    call waits for the host to read them. Any numbers are safe: each is limited to the room there is, and to the end
    before it. `expected` is the mean size of a group, if a call knows it: it chooses the kernel.

    `bias` is (G, N) or (N,), with groups of columns (N,); `activation` is that of `cutegen.matmul`. Elements that no
    group has are 0; with `tail="keep"`, and in `out`, they are left as they are. Gradients of them are 0, and what
    they hold reaches nothing. Alignments, element types and `out_dtype` are those of `cutegen.matmul`.

    Raises OperandError for tensors that do not fit together, RequestError for other arguments, CompileError if a kernel
    cannot be built.
    """
    _check(activation, pairs, first, tail, expected)
    if cu_seqlens is not None:
        if offs is not None:
            raise RequestError("grouped_mm: cu_seqlens: found together with offs; expected one of them")
        offs = cu_seqlens[1:]
    if offs is not None and sizes is not None:
        raise RequestError("grouped_mm: sizes: found together with offs; expected one of them: offs are ends")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(mat_a, torch.Tensor):
        return _of_tensors(mat_a, mat_b, offs, sizes, bias, activation, tail, expected, out, out_dtype)
    given = {"a": mat_a, "b": mat_b, "offs": offs, "sizes": sizes, "bias": bias, "out": out}
    tensors = {name: x for name, x in given.items() if x is not None or name in "ab"}
    for name, value in tensors.items():
        if not isinstance(value, np.ndarray):
            found = f"a {type(value).__qualname__}"
            raise OperandError(operand=_called(name), found=found, expected="a NumPy array, or all torch tensors")
    if sizes is None and offs is None and mat_a.ndim == mat_b.ndim == 3:
        tensors["sizes"] = np.full(mat_a.shape[0], mat_a.shape[1], np.int32)
    dtype = None if out_dtype is None else arrays.dtype_name(out_dtype)
    resolved = _resolved_arrays(tensors, GroupedTerms(activation, tail == "keep", expected), dtype)
    tensors["ends"] = tensors.pop("offs") if "offs" in tensors else tensors.pop("sizes")
    return arrays.computed(resolved, tensors, {})


def _called(name: str) -> str:
    return f"mat_{name}" if name in "ab" else name


def _check(activation: Any, pairs: Any, first: Any, tail: Any, expected: Any) -> None:
    check_activation(activation)
    for name, value in (("pairs", pairs), ("first", first)):
        if value is not None:
            raise RequestError(f"grouped_mm: {name}: found {value!r}; expected nothing: it has no pairs of columns yet")
    if tail not in TAILS:
        raise RequestError(f"grouped_mm: tail: found {tail!r}; expected {' or '.join(map(repr, TAILS))}")
    if expected is not None and ((number := whole(expected)) is None or number < 1):
        raise RequestError(f"grouped_mm: expected: found {expected!r}; expected rows of a group, at least 1")


def _of_tensors(
    a: Any, b: Any, offs: Any, sizes: Any, bias: Any, activation: Any, tail: str, expected: Any, out: Any, dtype: Any
) -> Any:
    from cutegen.torch_ops.grouped import GroupedCall
    from cutegen.torch_ops.grouped import grouped_mm as of_groups

    torch = sys.modules["torch"]
    given = {"mat_a": a, "mat_b": b, "offs": offs, "sizes": sizes, "bias": bias, "out": out}
    for name, value in given.items():
        if not isinstance(value, torch.Tensor) and (value is not None or name.startswith("mat_")):
            raise OperandError(operand=name, found=f"a {type(value).__qualname__}", expected="a torch tensor")
    if offs is None and sizes is None and a.dim() == b.dim() == 3:
        sizes = torch.full((a.shape[0],), a.shape[1], dtype=torch.int32, device=a.device)
    return of_groups(GroupedCall(a, b, offs, sizes, bias, activation, tail == "keep", expected, dtype, out))


def _resolved_arrays(tensors: dict[str, Any], terms: GroupedTerms, out_dtype: str | None) -> Resolved:
    views = {name: view_of(array, name) for name, array in tensors.items()}
    where = Where(choose_target(None).name, batch_invariant=settings.batch_invariant)
    return resolve_groups({name: (view.form, view.pointer) for name, view in views.items()}, terms, where, out_dtype)
