"""`cutegen.matmul` in one call, an explanation of the call, and its preparation, or that of a model.

c = cutegen.matmul(x, w.T, bias=b, activation="gelu")
print(cutegen.explain(x, w.T, bias=b, activation="gelu"))
cutegen.prepare(x, w.T, bias=b, activation="gelu", rows=range(1, 257))
cutegen.prepare(model, tokens)
"""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from cutegen.contract.launch import OPERANDS
from cutegen.contract.problem import whole
from cutegen.dispatch import arrays
from cutegen.dispatch.block_scales import SCALES, levels
from cutegen.dispatch.explain import explained
from cutegen.dispatch.formula import GATED, TENSORS, Formula, check_scalars, paired, scalars_of
from cutegen.dispatch.prepared import Prepared, Progress, build_prepared
from cutegen.dispatch.prepared_call import count_calls
from cutegen.dispatch.quantized import pair_of
from cutegen.dispatch.resolve import Resolved
from cutegen.dispatch.settings import settings
from cutegen.errors import OperandError, RequestError
from cutegen.grouped_mm import OF_GROUPS, resolved_groups

_SEVERAL = (tuple, list)
_torch_entry: Any = None
"""The torch package of cutegen, once torch is imported."""


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: Any = None,
    pairs: str | int | None = None,
    first: str | None = None,
    residual: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    c: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    quantize: str | None = None,
) -> Any:
    """`act(alpha * scale_a * scale_b * (a @ b) + beta * c + bias) + residual`, in f32 and rounded once.

    Shapes are those of `torch.matmul`: vectors, matrices, and batches that broadcast. `bias` is (N,); `c` and
    `residual` have the result's shape or expand to it; `beta` is 1 if only `c` is given. A torch `c` of another float
    type than the result is converted. `scale_a` is a tensor of one element, or one per row of `a`, `scale_b` one per
    column of `b`; they stay on their device. For 8-bit floats both may instead have a factor for each block of
    1 x 128 or 128 x 128 elements, f32 and in the order of their operand: `scale_a` (M, K/128) or (M/128, K/128),
    `scale_b` (K/128, N) or (K/128, N/128), extents rounded up. On a Blackwell, and on the CPU, factors of 8 bits are
    those of blocks of 1 x 32 or 1 x 16 as `cutegen.quantize` returns them: of any shape, and for nvf4 a pair.
    `activation` is "relu", "gelu" (with erf), "gelu_tanh" or "silu", or torch's module or function for one of them. The
    result has the type of `a`, for 8-bit integers s32 and for floats of 4 and 8 bits bf16, or `out_dtype`; it is
    written to `out` if that is given.

    With an activation of pairs of columns, `act(gate) * up`, the result has half of `b`'s columns: "swiglu", "geglu"
    (with erf), "geglu_tanh", "reglu", or gpt-oss's "swiglu_oai", whose parameters may follow: "swiglu_oai(1.702, 7)".
    `pairs` and `first` say where gates and ups are among the columns: "halves", "interleaved", or a multiple of 8
    columns of each in turn, and "gate" or "up", which begins. `bias` and `scale_b` are in the same order.

    With `quantize="e4m3"` the result is a pair: values of e4m3, and a factor of f32 for each 1 x 128 of them, with rows
    contiguous, as `scale_a` of the next product. Both are written to `out=(values, factors)` if that is given. They are
    those of `cutegen.quantize`, which has the formula, of the result in f32; "e4m3_ue8m0" rounds factors up to powers
    of two. No gradients pass.

    The kernel is the best known for shape and device: built once, cached, and then found by one lookup. Torch tensors
    on a GPU are multiplied there, on the current stream; those in host memory by torch, unless
    `cutegen.matmul_settings(cpu_tensors="executor")`. For NumPy arrays, the kernel's PTX is executed on the CPU.

    Raises OperandError for tensors that do not fit together, RequestError for other arguments, CompileError if a kernel
    cannot be built.
    """
    if pairs is not None or first is not None or (type(activation) is str and activation in GATED):
        activation = paired(activation, pairs, first)
    entry = _torch_entry if _torch_entry is not None else _open_torch_entry()
    if activation is not None and type(activation) is not str and entry is not None:
        activation = entry.activation_name(activation)
    of_torch = entry is not None and isinstance(a, entry.Tensor)
    seconds: dict[str, Any] = {}
    if isinstance(scale_a, _SEVERAL) or isinstance(scale_b, _SEVERAL):
        (scale_a, scale_b), seconds = levels(scale_a, scale_b)
    if quantize is not None:
        values, factors = pair_of(out, out_dtype)
        terms = (a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, values)
        if not of_torch:
            return _of_arrays(Arguments(*terms, quantize=quantize, scale_c=factors, **seconds))
        return entry.quantized(entry.Call(*terms, quantize=quantize, scale_c=factors, **seconds))
    if of_torch and residual is alpha is beta is c is scale_a is scale_b is out_dtype is None:
        found = entry.quick(a, b, bias, activation, out)
        if found is not None:
            return found
    arguments = (a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, out, out_dtype)
    if not of_torch:
        return _of_arrays(Arguments(*arguments, **seconds))
    return entry.matmul(entry.Call(*arguments, **seconds))


class Terms(TypedDict, total=False):
    """The keywords of `matmul`, which `explain` and `prepare` accept as well."""

    bias: Any
    activation: Any
    pairs: str | int | None
    first: str | None
    residual: Any
    alpha: float | None
    beta: float | None
    c: Any
    scale_a: Any
    scale_b: Any
    out: Any
    out_dtype: Any
    quantize: str | None


def explain(a: Any, b: Any, *, arch: str | None = None, **terms: Unpack[Terms]) -> str:
    """Explain which kernel would serve `matmul(a, b, **terms)`; nothing is compiled, computed or copied.

    With `offs`, `cu_seqlens` or `sizes` the call is `grouped_mm(a, b, **terms)`.

    Tensors may be torch's on the device "meta", which have no memory. `arch` is the target, such as "h100", instead of
    that of the tensors. Raises as `matmul` does.
    """
    if OF_GROUPS & terms.keys():
        said = explained(resolved_groups(a, b, arch=arch, **terms))
    else:
        call = _arguments("explain", a, b, **terms)
        said = explained(call.resolved(call.tensors(), arch))
    if arch is None and settings.cpu_tensors == "torch" and getattr(getattr(a, "device", None), "type", None) == "cpu":
        result, *rest = said.splitlines()
        if rest:
            said = "\n".join([f"{result}; computed by torch in host memory; on a GPU it would be", *rest])
    return said


def prepare(
    a: Any,
    *inputs: Any,
    rows: Iterable[int] | None = None,
    arch: str | None = None,
    backward: bool = False,
    progress: Progress | None = None,
    **terms: Any,
) -> Prepared:
    """Compile the kernels of a call, `prepare(a, b, **terms)`, or those of a model, `prepare(model, *inputs, **named)`.

    With `offs`, `cu_seqlens` or `sizes` the call is one of `grouped_mm`. Returns the different kernels, with their
    times. `progress` is called with a line for each, such as `print`.

    With `rows`, the kernels are those for an `a` with each of these numbers of rows. `a` then has two dimensions, and
    `residual`, `c` and `out` have one row or are omitted. Tensors may be torch's on the device "meta"; `arch` is as in
    `explain`. Raises as `matmul` does.

    A model runs on tensors without values, as torch's grad mode and autocast say, and is not changed; with `backward`,
    its backward pass as well. If CUTEGEN_RECORD names a list, its calls are counted there. Raises RequestError if its
    run depends on values.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.nn.Module):
        if rows is not None:
            raise RequestError("prepare: rows: found with a model; expected inputs of these sizes, in a call for each")
        from cutegen.torch_ops.model_calls import calls_of

        resolved = calls_of(a, inputs, terms, arch=arch, backward=backward)
        for each in resolved:
            if not each.empty:
                count_calls(each)
    else:
        if backward:
            raise RequestError("prepare: backward: found with a call; expected a model; prepare each product of it")
        every = [None] if rows is None else _whole_rows(rows)
        if OF_GROUPS & terms.keys():
            resolved = [resolved_groups(a, *inputs, arch=arch, rows=m, **terms) for m in every]
            return build_prepared(Counter(each.request for each in resolved if not each.empty), progress)
        call = _arguments("prepare", a, *inputs, **terms)
        tensors = call.tensors()
        resolved = [call.resolved(tensors, arch, m) for m in every]
    return build_prepared(Counter(each.request for each in resolved if not each.empty), progress)


def _whole_rows(rows: Iterable[int]) -> list[int]:
    """Return the numbers of rows. Raises RequestError for anything else."""
    numbers = [whole(each) for each in rows] if isinstance(rows, Iterable) else [None]
    found = [each for each in numbers if each is not None]
    if len(found) < len(numbers):
        raise RequestError(f"prepare: rows: found {rows!r}; expected numbers of rows, such as rows=[1, 8, 64]")
    return found


def _show_terms(function: Callable[..., Any]) -> None:
    """Let `help` and completion show each keyword instead of `**terms`, from matmul's own signature."""
    mine, theirs = inspect.signature(function), inspect.signature(matmul)
    terms = [each for each in theirs.parameters.values() if each.name in Terms.__annotations__]
    own = [each for each in mine.parameters.values() if each.kind is not each.VAR_KEYWORD]
    positional = [each for each in own if each.kind is not each.KEYWORD_ONLY]
    function.__signature__ = mine.replace(  # type: ignore[attr-defined]
        parameters=[*positional, *terms, *[each for each in own if each.kind is each.KEYWORD_ONLY]]
    )


_show_terms(explain)
_show_terms(prepare)


def _open_torch_entry() -> Any:
    """Return cutegen's torch package; None if torch is not imported, so that no operand can be a tensor."""
    global _torch_entry
    if "torch" in sys.modules:
        from cutegen.torch_ops import torch_entry

        _torch_entry = torch_entry
    return _torch_entry


_open_torch_entry()  # if torch is there: a call that Dynamo traces would find it changed, and be compiled twice


class Arguments(NamedTuple):
    """The arguments of a call."""

    a: Any
    b: Any
    bias: Any = None
    activation: str | None = None
    residual: Any = None
    alpha: float | None = None
    beta: float | None = None
    c: Any = None
    scale_a: Any = None
    scale_b: Any = None
    out: Any = None
    out_dtype: Any = None
    quantize: str | None = None
    scale_c: Any = None
    scale_m: Any = None
    scale_n: Any = None

    def tensors(self) -> dict[str, Any]:
        """Return the given ones, by name. Raises OperandError for one of another framework than `a`'s."""
        torch = sys.modules.get("torch")
        of_torch = torch is not None and isinstance(self.a, torch.Tensor)
        found = {name: getattr(self, name) for name in TENSORS if name in OPERANDS or getattr(self, name) is not None}
        for name, value in found.items():
            if not isinstance(value, torch.Tensor if torch is not None and of_torch else np.ndarray):
                like_a = "a torch tensor, like a" if of_torch else "a NumPy array, like a"
                raise OperandError(
                    operand=name,
                    found=f"a {type(value).__qualname__}",
                    expected="a torch tensor or a NumPy array" if name == "a" else like_a,
                    fix=f"`torch.from_dlpack({name})`, or a kernel of `cutegen.compile`, which accepts more",
                )
        return found

    def formula(self) -> Formula:
        """Return the terms. Raises OperandError, RequestError."""
        check_scalars(self.alpha, self.beta, has_c=self.c is not None)
        return Formula.of(self)

    def resolved(self, tensors: Mapping[str, Any], arch: str | None, rows: int | None = None) -> Resolved:
        """Return the request of a call with these tensors, for an `a` with so many `rows` if given."""
        if isinstance(self.a, np.ndarray):
            dtype = None if self.out_dtype is None else arrays.dtype_name(self.out_dtype)
            return arrays.resolve_arrays(tensors, self.formula(), dtype, arch, rows)
        from cutegen.torch_ops.eager import resolved_tensors

        return resolved_tensors(tensors, self.formula(), self.out_dtype, arch, rows)


def _arguments(function: str, a: Any, b: Any = None, **terms: Any) -> Arguments:
    """Return the arguments of `explain` or `prepare`. Raises TypeError for keywords that `matmul` lacks."""
    for name in terms:
        if name not in Terms.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    if terms.get("activation") is not None and (entry := _open_torch_entry()) is not None:
        terms["activation"] = entry.activation_name(terms["activation"])
    activation = paired(terms.pop("activation", None), terms.pop("pairs", None), terms.pop("first", None), function)
    if terms.get("quantize") is not None:
        terms["out"], terms["scale_c"] = pair_of(terms.get("out"), terms.get("out_dtype"))
    scales, seconds = levels(*[terms.pop(name, None) for name in SCALES])
    return Arguments(a, b, activation=activation, **terms, **dict(zip(SCALES, scales, strict=True)), **seconds)


def _of_arrays(call: Arguments) -> Any:
    tensors, formula = call.tensors(), call.formula()
    dtype = None if call.out_dtype is None else arrays.dtype_name(call.out_dtype)
    return arrays.matmul(tensors, formula, scalars_of(call), dtype)
