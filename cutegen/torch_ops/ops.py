"""`torch.ops.cutegen`: the call of `cutegen.matmul` as ops that torch fully supports.

    matmul        -> the result
    matmul_aux    -> the result, and the value before the activation, for the gradient
    matmul_out    writes the result to `out`
    matmul_quantized, matmul_quantized_out    values of 8 bits, and their factors

They are defined once, on import, and stay until the process ends.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from cutegen.dispatch.formula import check_activation, gated_of
from cutegen.dispatch.quantized import ELEMENT, factors_of, new_factors
from cutegen.dispatch.resolve import check_given, product_of
from cutegen.errors import OperandError
from cutegen.torch_ops import gradients
from cutegen.torch_ops.activations import activated
from cutegen.torch_ops.call import ARGUMENTS, Call, dtype_name, dtype_of
from cutegen.torch_ops.call_cache import memoize, quick
from cutegen.torch_ops.eager import compute, empty_factors, form_of
from cutegen.torch_ops.flops import register_flops
from cutegen.torch_ops.lowering import lower_in_inductor

NAMESPACE = "cutegen"
_ARGUMENTS = (
    "Tensor a, Tensor b, Tensor? bias=None, str? activation=None, Tensor? residual=None, float? alpha=None, "
    "float? beta=None, Tensor? c=None, Tensor? scale_a=None, Tensor? scale_b=None, ScalarType? out_dtype=None, "
    "Tensor? scale_m=None, Tensor? scale_n=None"
)
_C, _SCALES, _OUT_DTYPE = 7, slice(8, 10), 10
"""Their indices among the arguments."""
CASTS = frozenset({torch.float16, torch.bfloat16, torch.float32})
"""Arguments that autocast converts to its type."""


def _matmul(a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str | None = None, *others: Any) -> Tensor:
    simple = others.count(None) == len(others)
    if simple and (found := quick(a, b, bias, activation)) is not None:
        return found
    call = _call((a, b, bias, activation, *others))
    result = compute(call)[0]
    if simple:
        memoize(call, result)
    return result


def _matmul_aux(*arguments: Any) -> tuple[Tensor, Tensor]:
    out, aux = compute(_call(arguments)._replace(aux=True))
    assert aux is not None
    return out, aux


def _matmul_out(*arguments: Any, out: Tensor) -> None:
    call = _call(arguments)._replace(out=out)
    refuse_out_with_grad(call.wants_grad)
    compute(call)


def _matmul_quantized(*arguments: Any, quantize: str) -> tuple[Tensor, Tensor]:
    values, factors = compute(_call(arguments)._replace(quantize=quantize))
    assert factors is not None
    return values, factors


def _matmul_quantized_out(*arguments: Any, quantize: str, out: Tensor, scale_c: Tensor) -> None:
    compute(_call(arguments)._replace(quantize=quantize, out=out, scale_c=scale_c))


def refuse_out_with_grad(wants_grad: bool) -> None:
    """Reject a call with `out` that autograd must record. Raises OperandError."""
    if wants_grad:
        raise OperandError(
            operand="out",
            found="a tensor to write to, and operands that require grad",
            expected="only one of them: autograd does not record a result in given memory",
            fix="omit out=, or call under `torch.no_grad()`",
        )


def call_of(op: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
    """Return the call that an op of `torch.ops.cutegen` makes with these arguments."""
    given = {each.name: value for each, value in zip(op._schema.arguments, arguments, strict=False)} | dict(named)
    return Call(**given)._replace(aux=op is OPS.matmul_aux.default)


def _call(arguments: tuple[Any, ...]) -> Call:
    return Call.of_arguments(arguments)


def _whole(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with None for those left out."""
    return arguments + (None,) * (ARGUMENTS - len(arguments))


def _fake(*arguments: Any, out: Tensor | None = None) -> Tensor:
    lower_in_inductor(OPS.matmul.default)  # Inductor traces before it lowers
    return _fake_of(_call(arguments)._replace(out=out))


def _fake_of(call: Call) -> Tensor:
    """Return an empty result of the right shape and type, on the arguments' device. Raises like a real call."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # half a second, only when tracing

    if (gated := gated_of(call.activation)) is None:
        check_activation(call.activation)
    given = {name: form_of(tensor) for name, tensor in call.tensors.items()}
    problem, element = product_of(given, None if call.out_dtype is None else dtype_name(call.out_dtype), gated)
    with suppress(GuardOnDataDependentSymNode):  # for data-dependent extents, which the call itself checks
        check_given(given, problem, element, quantized=call.quantize is not None)
    return call.a.new_empty(problem.result, dtype=dtype_of(element))


def _fake_quantized(*arguments: Any, quantize: str, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    call = _call(arguments)._replace(out_dtype=dtype_of(ELEMENT), out=out, quantize=quantize)
    factors_of(quantize)
    values = _fake_of(call)
    problem, _ = product_of({name: form_of(x) for name, x in call.tensors.items()}, ELEMENT, gated_of(call.activation))
    return values, empty_factors(new_factors(problem), call.a)


def _fake_quantized_out(*arguments: Any, quantize: str, out: Tensor, scale_c: Tensor) -> None:
    _, factors = _fake_quantized(*arguments, quantize=quantize, out=out)
    if (scale_c.dtype, scale_c.shape) != (factors.dtype, factors.shape):
        found, expected = (
            f"{scale_c.dtype} of shape {tuple(scale_c.shape)}",
            f"{factors.dtype} of {tuple(factors.shape)}",
        )
        raise OperandError(operand="scale_c", found=found, expected=f"{expected}, the factors of out")


def _fake_aux(*arguments: Any) -> tuple[Tensor, Tensor]:
    return _fake(*arguments), _fake(*arguments)


def _fake_out(*arguments: Any, out: Tensor) -> None:
    _fake(*arguments, out=out)


def autocast(
    op: Any, device: str, others: Callable[[list[Any], torch.dtype], None] | None = None
) -> Callable[..., Any]:
    """Call the op on operands of autocast's type; `others` casts further arguments of a call with a fresh result.

    A bias and a residual keep their types, which kernels accept.
    """
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device.upper()}"))

    def cast(*arguments: Any, **out: Tensor) -> Any:
        wanted, given = torch.get_autocast_dtype(device), list(arguments)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if all(x.dtype in CASTS for x in given[:2]):
                given[:2] = [x.to(wanted) for x in given[:2]]
            if others is not None and not out:
                others(given, wanted)
            return op(*given, **out)

    return cast


def _cast_source(given: list[Any], wanted: torch.dtype) -> None:
    """Cast `c`, if there is one, to the type of the result."""
    given[:] = _whole(tuple(given))
    if given[_C] is not None and given[0].dtype == wanted:
        given[_C] = given[_C].to(given[_OUT_DTYPE] or wanted)


def _vmap(op: Any) -> Callable[..., Any]:
    """Run a batch of calls: batched A and B are one product with an additional batch mode.

    Other batched arguments run one by one, and so do scales with dimensions of their own, which do not expand.
    """

    def batched(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        many = [i for i, dim in enumerate(in_dims) if dim is not None]
        both_matrices = all(arguments[i].dim() - (in_dims[i] is not None) > 1 for i in (0, 1))
        scales_fit = all(scale is None or scale.dim() < 2 for scale in _whole(arguments)[_SCALES])
        if set(many) <= {0, 1} and both_matrices and scales_fit:
            found = op(*_in_front(arguments[:2], in_dims), *arguments[2:])
        else:
            given = [_of_some(x, in_dims[i]) if i in many else x for i, x in enumerate(arguments)]
            each = [
                op(*(x[k] if i in many else x for i, x in enumerate(given))) for k in range(max(info.batch_size, 1))
            ]
            several = isinstance(each[0], tuple)
            found = tuple(map(torch.stack, zip(*each, strict=True))) if several else torch.stack(each)
            if not info.batch_size:
                found = tuple(x[:0] for x in found) if several else found[:0]
        return found, (0,) * len(found) if isinstance(found, tuple) else 0

    return batched


def _of_some(x: Tensor, dim: int) -> Tensor:
    """Return `x` with the mapped dimension first; one zero element if it has none, so that the result has a shape."""
    x = x.movedim(dim, 0)
    return x if x.shape[0] else torch.cat((x, x.new_zeros(1, *x.shape[1:])))


def _in_front(matrices: tuple[Tensor, ...], in_dims: tuple[Any, ...]) -> list[Tensor]:
    """Return A and B with the mapped dimension first, followed by the same number of other dimensions."""
    moved = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(matrices, in_dims, strict=False)]
    rank = max(x.dim() + (dim is None) for x, dim in zip(moved, in_dims, strict=False))
    return [
        x if dim is None else x.reshape(x.shape[0], *(1,) * (rank - x.dim()), *x.shape[1:])
        for x, dim in zip(moved, in_dims, strict=False)
    ]


library = torch.library.Library(NAMESPACE, "DEF")
"""The definitions of all ops, which stay until the process ends."""


def _define() -> None:
    for name, returns, impl, fake in (
        ("matmul", "Tensor", _matmul, _fake),
        ("matmul_aux", "(Tensor, Tensor)", _matmul_aux, _fake_aux),
        ("matmul_out", "()", _matmul_out, _fake_out),
    ):
        out = ", *, Tensor(a!) out" if name == "matmul_out" else ""
        library.define(f"{name}({_ARGUMENTS}{out}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
        op, whole = getattr(torch.ops.cutegen, name), f"{NAMESPACE}::{name}"
        for device in ("CPU", "CUDA"):
            library.impl(name, impl, device)
            library.impl(name, autocast(op, device.lower(), _cast_source), f"Autocast{device}")
        torch.library.register_fake(whole, fake, lib=library)
    for name, own, returns, quantizes, fakes in (
        ("matmul_quantized", "", "(Tensor, Tensor)", _matmul_quantized, _fake_quantized),
        (
            "matmul_quantized_out",
            ", Tensor(a!) out, Tensor(b!) scale_c",
            "()",
            _matmul_quantized_out,
            _fake_quantized_out,
        ),
    ):
        library.define(f"{name}({_ARGUMENTS}, *, str quantize{own}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
        op = getattr(torch.ops.cutegen, name)
        for device in ("CPU", "CUDA"):
            library.impl(name, quantizes, device)
            library.impl(name, autocast(op, device.lower(), _cast_source), f"Autocast{device}")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fakes, lib=library)
    for name, setup in (("matmul", gradients.keep), ("matmul_aux", gradients.keep_aux)):
        whole = f"{NAMESPACE}::{name}"
        torch.library.register_autograd(whole, gradients.backward, setup_context=setup, lib=library)
        torch.library.register_vmap(whole, _vmap(getattr(torch.ops.cutegen, name)), lib=library)
    register_flops()


_define()
OPS = torch.ops.cutegen
"""Defined from here on."""


def matmul_before(*arguments: Any) -> tuple[Tensor, Tensor | None]:
    """Return the result, and the value before the activation, None if the fourth of the op's arguments is."""
    if arguments[3] is None:
        return OPS.matmul(*arguments), None
    if (gated := gated_of(arguments[3])) is not None:
        before = OPS.matmul(*arguments[:3])
        return activated(gated, before), before
    found: tuple[Tensor, Tensor] = OPS.matmul_aux(*arguments)
    return found
