"""`cutegen.grouped_mm`: many products in one launch, whose sizes only the device has.

y = cutegen.grouped_mm(x, w.mT, offs=ends)           # as torch.nn.functional.grouped_mm
y = cutegen.grouped_mm(x3, w.mT, sizes=counts)       # (G, R, K): the first counts[g] rows of each group
"""

import inspect
import sys
from typing import Any, Literal

import numpy as np

from cutegen.contract.launch import ENDS, OPERANDS, RESULT_FACTORS
from cutegen.contract.problem import whole
from cutegen.dispatch import arrays
from cutegen.dispatch.block_scales import LEAST_TARGET, SCALES, levels
from cutegen.dispatch.formula import LEAST_OF_PAIRS, check_activation, is_gated, paired
from cutegen.dispatch.grouped import GroupedTerms, blocks_of_groups, name_in_call, resolve_groups
from cutegen.dispatch.quantized import factors_of, pair_of
from cutegen.dispatch.resolve import CallTarget, Resolved, with_rows
from cutegen.dispatch.settings import settings
from cutegen.errors import OperandError, RequestError
from cutegen.hardware.targeting import DEFAULT_TARGET, choose_target

_torch_entry: Any = None
"""The module of calls of groups with torch's tensors, once torch is imported."""
TAILS = ("zero", "keep")
_TENSORS = ("a", "b", "bias", "scale_a", "scale_b", "offs", "sizes", "out", "scale_c")


def grouped_mm(
    mat_a: Any,
    mat_b: Any,
    *,
    offs: Any = None,
    cu_seqlens: Any = None,
    sizes: Any = None,
    bias: Any = None,
    activation: Any = None,
    pairs: str | int | None = None,
    first: str | None = None,
    tail: Literal["zero", "keep"] = "zero",
    expected: int | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    quantize: str | None = None,
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

    `bias` is (G, N) or (N,), with groups of columns (N,); `activation`, `pairs` and `first` are those of
    `cutegen.matmul`: with pairs of columns the result has N/2, and `bias` N, in the order of `mat_b`. Elements that no
    group has are 0; with `tail="keep"`, and in `out`, they are left as they are. Gradients of them are 0, and what
    they hold reaches nothing. Alignments, element types and `out_dtype` are those of `cutegen.matmul`.

    `scale_a` and `scale_b` are f32 factors of rows of `mat_a` and of columns of `mat_b`, (G, M) or (G, N) where each
    group has its own, or (1,) for all; or of blocks of 8-bit floats, with as many dimensions as their operand and in
    its order, as those of `cutegen.matmul`. Such calls have no gradients.

    `quantize` is that of `cutegen.matmul`, for groups of rows: values (R, N) or (G, R, N) of e4m3, and their factors,
    (R, N/128) or (G, R, N/128), with rows contiguous, as `scale_a` of the next product. What no group has is 0 in both,
    or left.

    Raises OperandError for tensors that do not fit together, RequestError for other arguments, CompileError if a kernel
    cannot be built.
    """
    entry, asked = _torch_entry if _torch_entry is not None else _open_torch_entry(), None
    if activation is not None and type(activation) is not str and entry is not None:
        activation = entry.activation_name(activation)
    if entry is not None and offs is None and cu_seqlens is None and sizes is None:
        sizes = entry.every_row(mat_a) if entry.are_padded(mat_a, mat_b) else None
    ends = offs if sizes is None else sizes
    known = cu_seqlens is None and ends is not None and quantize is None
    known = known and not (isinstance(scale_a, tuple | list) or isinstance(scale_b, tuple | list))
    if entry is not None and known and not isinstance(mat_a, np.ndarray):
        given = offs is None, sizes is None, bias is None, scale_a is None, scale_b is None, out is None
        operands = (mat_a, mat_b, ends, *[x for x in (bias, scale_a, scale_b, out) if x is not None])
        asked = operands, (given, activation, pairs, first, tail, expected, out_dtype)
        beside = {ENDS: ends, "bias": bias, "scale_a": scale_a, "scale_b": scale_b}
        if (found := entry.quick(asked, beside, out)) is not None:
            return found
    terms = (offs, cu_seqlens, sizes, bias, activation, pairs, first, tail, expected, scale_a, scale_b, out, out_dtype)
    call = _call(mat_a, mat_b, *terms, quantize)
    if entry is not None and not isinstance(mat_a, np.ndarray):
        return entry.grouped_mm(call, asked)
    resolved = _resolved_arrays(call)
    tensors: dict[str, Any] = {name: x for name, x in call.items() if name in _TENSORS and x is not None}
    tensors["ends"] = tensors.pop("offs") if "offs" in tensors else tensors.pop("sizes")
    return arrays.computed(resolved, tensors, {})


def _open_torch_entry() -> Any:
    """Return the module of torch's calls; None if torch is not imported, so that no operand can be a tensor."""
    global _torch_entry
    if "torch" in sys.modules:
        from cutegen.torch_ops import grouped

        _torch_entry = grouped
    return _torch_entry


_open_torch_entry()  # if torch is there: a call that Dynamo traces would find it changed, and be compiled twice


def resolved_groups(mat_a: Any, mat_b: Any, *, arch: str | None = None, rows: int | None = None, **terms: Any) -> Any:
    """Return the request of `grouped_mm(mat_a, mat_b, **terms)`, for a `mat_a` with so many `rows` if given.

    `arch` is the target instead of that of the tensors. Raises as `grouped_mm` does, TypeError for other keywords.
    """
    for name in terms:
        if name not in _KEYWORDS:
            raise TypeError(f"grouped_mm() got an unexpected keyword argument {name!r}")
    entry = _open_torch_entry()
    if terms.get("activation") is not None and entry is not None:
        terms["activation"] = entry.activation_name(terms["activation"])
    call = _call(mat_a, mat_b, **{"tail": "zero", **terms})
    if isinstance(mat_a, np.ndarray):
        return _resolved_arrays(call, arch, rows)
    assert entry is not None
    return entry.resolved_groups(call, arch, rows)


def _call(
    mat_a: Any,
    mat_b: Any,
    offs: Any = None,
    cu_seqlens: Any = None,
    sizes: Any = None,
    bias: Any = None,
    activation: Any = None,
    pairs: Any = None,
    first: Any = None,
    tail: Any = "zero",
    expected: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    quantize: Any = None,
) -> Any:
    """Return the call, of torch's tensors as a `GroupedCall`, of arrays by name. Raises OperandError, RequestError."""
    activation = paired(activation, pairs, first, "grouped_mm")
    scale_c, scale = None, factors_of(quantize, "grouped_mm")
    if quantize is not None:
        out, scale_c = pair_of(out, out_dtype, "grouped_mm")
    _check(activation, tail, expected)
    if cu_seqlens is not None and offs is not None:
        raise RequestError("grouped_mm: cu_seqlens: found together with offs; expected one of them")
    if sizes is not None and (offs is not None or cu_seqlens is not None):
        ends = "offs" if cu_seqlens is None else "cu_seqlens"
        raise RequestError(f"grouped_mm: sizes: found together with {ends}; expected one of them: {ends} are ends")
    torch = sys.modules.get("torch")
    of_torch = torch is not None and isinstance(mat_a, torch.Tensor)
    given = {"a": mat_a, "b": mat_b, "offs": offs, "cu_seqlens": cu_seqlens, "sizes": sizes, "bias": bias, "out": out}
    scales, seconds = levels(scale_a, scale_b)
    given |= {**dict(zip(SCALES, scales, strict=True)), **seconds, RESULT_FACTORS: scale_c}
    for name, value in given.items():
        right = isinstance(value, torch.Tensor if torch is not None and of_torch else np.ndarray)
        if not right and (value is not None or name in OPERANDS):
            like_a = "a torch tensor, like mat_a" if of_torch else "a NumPy array, like mat_a"
            expects = "a torch tensor or a NumPy array" if name == "a" else like_a
            raise OperandError(operand=name_in_call(name), found=f"a {type(value).__qualname__}", expected=expects)
        if of_torch and value is not None and value.is_nested:
            called = name_in_call(name)
            fix = f"`torch.nested.to_padded_tensor({called}, 0.0)`"
            raise OperandError(operand=called, found="a nested tensor", expected="a dense one", fix=fix)
    if given.pop("cu_seqlens") is not None:
        offs = given["offs"] = _ends_of(cu_seqlens, mat_a, mat_b)
    every_row = offs is None and sizes is None and mat_a.ndim == mat_b.ndim == 3
    if torch is not None and of_torch:
        if every_row:
            sizes = _torch_entry.every_row(mat_a)
        if seconds:
            seconds = _torch_entry.vectors(seconds, mat_a, mat_b)
        others = (bias, activation, tail == "keep", expected, out_dtype, *scales)
        written = {"out": out, "quantize": quantize, "scale_c": scale_c}
        return _torch_entry.GroupedCall(mat_a, mat_b, offs, sizes, *others, **seconds, **written)
    if every_row:
        given["sizes"] = np.full(mat_a.shape[0], mat_a.shape[1], np.int32)
    terms = GroupedTerms(activation, tail == "keep", expected, quantized=scale)
    return {**given, "terms": terms, "dtype": None if out_dtype is None else arrays.dtype_name(out_dtype)}


def _ends_of(cu_seqlens: Any, mat_a: Any, mat_b: Any) -> Any:
    """Return what follows the 0. Raises OperandError, before others speak of `offs` and of one element less."""
    if cu_seqlens.ndim != 1:
        found = f"shape {tuple(cu_seqlens.shape)}"
        raise OperandError(operand="cu_seqlens", found=found, expected="(G + 1,), a 0 and the end of each group")
    if str(cu_seqlens.dtype).removeprefix("torch.") != "int32":
        to_int32 = "astype(np.int32)" if isinstance(cu_seqlens, np.ndarray) else "to(torch.int32)"
        found, fix = f"dtype {cu_seqlens.dtype}", f"`cu_seqlens.{to_int32}`"
        raise OperandError(operand="cu_seqlens", found=found, expected="int32", fix=fix)
    (elems,) = cu_seqlens.shape
    for operand, x in (("mat_a", mat_a), ("mat_b", mat_b)):
        if x.ndim == 3 and elems != x.shape[0] + 1:
            fix = "`offs=`, if it has no 0 before the ends" if elems == x.shape[0] else ""
            expected = f"{x.shape[0] + 1}, a 0 and an end for each matrix of {operand}"
            raise OperandError(operand="cu_seqlens", found=f"{elems} elements", expected=expected, fix=fix)
    return cu_seqlens[1:]


def _check(activation: Any, tail: Any, expected: Any) -> None:
    if not is_gated(activation):
        check_activation(activation, "grouped_mm")
    if tail not in TAILS:
        raise RequestError(f"grouped_mm: tail: found {tail!r}; expected {' or '.join(map(repr, TAILS))}")
    if expected is not None and ((number := whole(expected)) is None or number < 1):
        raise RequestError(f"grouped_mm: expected: found {expected!r}; expected rows of a group, at least 1")


def _resolved_arrays(call: dict[str, Any], arch: str | None = None, rows: int | None = None) -> Resolved:
    terms: GroupedTerms = call["terms"]
    quantized, dtype = terms.quantized is not None, call["dtype"]
    given = arrays.given_arrays(
        {name: x for name, x in call.items() if name in _TENSORS and x is not None}, quantized=quantized
    )
    blocks = blocks_of_groups({name: form for name, (form, _) in given.items()})
    special = is_gated(terms.activation) or quantized
    target = choose_target(arch, least=LEAST_TARGET if blocks else LEAST_OF_PAIRS if special else DEFAULT_TARGET).name
    if quantized:
        dtype = arrays.quantized_type(target, given["a"][0])
    where = CallTarget(target, batch_invariant=settings.batch_invariant, family=settings.asked_family)
    return resolve_groups(with_rows(given, rows), terms, where, dtype)


_KEYWORDS = frozenset(inspect.signature(grouped_mm).parameters) - {"mat_a", "mat_b"}
OF_GROUPS = frozenset({"offs", "cu_seqlens", "sizes"})
"""Keywords by which a call has groups."""
