"""A call of `cutegen.matmul` as a program in PyTorch writes it: a product, and a kernel for each term that is left.

Torch's product computes a bias, C with its factors, and scales of 8-bit floats where it takes them. The last kernel
writes the result, so that nothing is copied. What `aux` stores, torch keeps anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from cutegen.bench.contenders import Operands, Prepare
from cutegen.bench.measure import Call

Step = Callable[[Any, Any], Any]
"""A function of a value, None for the first; it writes to memory if that is given."""


def in_torch(ops: Sequence[str], *, tf32: bool = False) -> Prepare | None:
    """Return what computes a product with these ops of an epilogue in eager torch; None for an op of another kind."""
    known = all(op in _STEPS for op in ops)
    return partial(_call, tuple(op for op in ops if op != "aux"), tf32) if known else None


def _call(ops: tuple[str, ...], tf32: bool, x: Operands) -> Call:
    import torch

    if x.a.dtype == torch.float32:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    product = _product(ops, x)
    steps: list[Step] = [product.step, *(partial(_STEPS[op], x.extras) for op in ops[product.ops :])]

    def call() -> None:
        value, dtype = None, product.dtype
        for step in steps:
            value = step(value, x.out if step is steps[-1] and dtype == x.out.dtype else None)
            dtype = value.dtype
        if value is not x.out:  # of another type than the result
            x.out.copy_(value)

    return call


class _Product(NamedTuple):
    """Torch's product, how many of the first ops it computes as well, and its type."""

    step: Step
    ops: int
    dtype: Any


def _product(ops: tuple[str, ...], x: Operands) -> _Product:
    import torch

    dtype, extras, batched = x.a.dtype, x.extras, x.a.dim() == 3
    if dtype == torch.int8:
        return _Product(lambda _, out: _into(out, torch._int_mm, x.a, x.b), 0, torch.int32)
    if dtype.itemsize == 1:
        by_rows = ops[:2] == ("scale_m", "scale_n") and extras["scale_m"].dtype == torch.float32
        one = torch.ones((), dtype=torch.float32, device=x.a.device)
        scales = (extras["scale_m"][:, None], extras["scale_n"][None, :]) if by_rows else (one, one)
        scaled = partial(torch._scaled_mm, scale_a=scales[0], scale_b=scales[1], out_dtype=x.out.dtype)
        return _Product(lambda _, out: _into(out, scaled, x.a, x.b), 2 if by_rows else 0, x.out.dtype)
    with_c = ("alpha", "beta") if ops[:2] == ("alpha", "beta") else ("beta",)
    if ops[: len(with_c)] == with_c and extras["c"].dtype == dtype:
        add = torch.baddbmm if batched else torch.addmm
        added = partial(add, extras["c"], beta=extras["beta"], alpha=extras.get("alpha", 1.0))
        return _Product(lambda _, out: _into(out, added, x.a, x.b), len(with_c), dtype)
    if ops[:1] == ("bias_n",) and not batched and extras["bias"].dtype == dtype:
        return _Product(lambda _, out: _into(out, torch.addmm, extras["bias"], x.a, x.b), 1, dtype)
    return _Product(lambda _, out: _into(out, torch.bmm if batched else torch.mm, x.a, x.b), 0, dtype)


def _into(out: Any, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return function(*given, **named) if out is None else function(*given, **named, out=out)


def _add(name: str, extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    return _into(out, torch.add, y, extras[name])


def _add_c(extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    return _into(out, torch.add, y, extras["c"], alpha=extras["beta"])


def _add_bias(extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    bias = extras["bias"] if "bias" in extras else extras["bias_n"]
    return _into(out, torch.add, y, bias[..., None, :])


def _scale(name: str, extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    factor = extras[name]
    if name == "scale_m":
        factor = factor[..., :, None]
    elif name == "scale_n":
        factor = factor[..., None, :]
    return _into(out, torch.mul, y, factor)


def _activation(name: str, extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    aten = torch.ops.aten
    if name == "relu":
        return _into(out, torch.clamp_min, y, 0)
    if name == "silu":
        return aten.silu(y) if out is None else aten.silu.out(y, out=out)
    approximate = "tanh" if name == "gelu_tanh" else "none"
    return aten.gelu(y, approximate=approximate) if out is None else aten.gelu.out(y, approximate=approximate, out=out)


_STEPS: Mapping[str, Callable[[Mapping[str, Any], Any, Any], Any]] = {
    "alpha": partial(_scale, "alpha"),
    "beta": _add_c,
    "scale_m": partial(_scale, "scale_m"),
    "scale_n": partial(_scale, "scale_n"),
    "bias_n": _add_bias,
    "aux": lambda extras, y, out: y,
    "residual": partial(_add, "residual"),
    **{name: partial(_activation, name) for name in ("relu", "gelu_erf", "gelu_tanh", "silu")},
}
