"""What a call must return, in float64, and how far the arithmetic of float32 and the roundings on the way may be off.

Bounds are those of the worst case, on the scale of what is added up and not of what is left of it: a sum of n products
is at most n u sum |a| |b| off (N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Those of
activations are of `cutegen.verify.error_bounds`. The last rounding, to the type of the result, has no room of its own:
where the error before it is small, one value passes, or two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cutegen.contract.problem import QUANTIZED_BLOCK, QUANTIZED_FLOOR, QUANTIZED_MOST
from cutegen.dispatch.formula import ACTIVATIONS as OPS_OF
from cutegen.spec import NARROW_BITS, OPS
from cutegen.spec.steps import chain_of
from cutegen.verify.error_bounds import UNIT, Bounded, run_chain
from cutegen.verify.reference import float64_reference

ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
SUM_UNIT = 2 * UNIT
"""Largest relative error of one addition: a tensor core truncates where others round."""
OTHER_TERMS = 8
"""More than the float32 operations on an element beside its product."""
SLOPE_CHANGE = 0.8
"""Largest second derivative of the smooth activations: that of a GELU at 0, 2 / sqrt(2 pi)."""
SLOPE_ERROR = 16 * UNIT
"""More than a slope computed in float32 is off."""
FLOAT8 = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
HALF_STEP, LEAST_HALF_STEP = 2.0**-4, 2.0**-10
"""How far rounding to e4m3 moves a value, relative to it, and if it is subnormal."""


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """act(alpha * scale * (a @ b) + beta * c + bias) + residual, where `scale` has a shape that multiplies a @ b."""

    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    activation: str | None = None
    residual: Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0
    c: Tensor | None = None
    scale: Tensor | None = None

    def result(self, dtype: torch.dtype) -> Bounded:
        """Return the value, and its error before it is rounded to `dtype`."""
        before = self.before()
        ops = [OPS[OPS_OF[self.activation]]] if self.activation else []
        narrow = torch.finfo(dtype).bits <= NARROW_BITS
        error = run_chain(before, chain_of(ops), {}, narrow=narrow).result.error
        value = ACTIVATIONS[self.activation](before.value)
        if self.residual is not None:
            residual = _double(self.residual)
            error = error + UNIT * (value.abs() + error + residual.abs())
            value = value + residual
        return Bounded(value, error)

    def before(self) -> Bounded:
        """Return the value before the activation."""
        leaves = {name: _double(x) for name, x in self._leaves().items()}
        sizes = {name: x.abs() for name, x in leaves.items()}
        error = (self.a.shape[-1] + OTHER_TERMS) * SUM_UNIT * self._linear(sizes, abs)
        if self.a.dtype in FLOAT8:  # whose sums have fewer bits in a tensor core
            product = replace(float64_reference(leaves["a"], leaves["b"]), operands=FLOAT8[self.a.dtype])
            error = error + self._scaled(product.bounded("f32").error, abs)
        return Bounded(self._linear(leaves), error)

    def random_gradient(self, dtype: torch.dtype) -> Tensor:
        """Return a gradient of the result: 0 where the value before the activation is 0 within its error.

        The slope of relu jumps there, and a sum that is right to its last bit may lie on either side.
        """
        before = self.before()
        least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        grad = torch.randn(before.value.shape, device=before.value.device).to(dtype)
        return torch.where(before.value.abs() <= before.error + least, torch.zeros_like(grad), grad)

    def gradients(self, grad: Tensor) -> dict[str, Bounded]:
        """Return the gradient of each operand, given that of the result, before its last rounding.

        On the way are rounded: to the type of `grad` the value before the activation, and its gradient; to A's type
        what the products of the backward pass read; to the leaf's each of the products that a shared batch adds up.
        """
        leaves = self._leaves()
        exact = {name: _double(x).requires_grad_() for name, x in leaves.items()}
        sizes = {name: _double(x).abs().requires_grad_() for name, x in leaves.items()}
        inner, upper = self._linear(exact), _double(grad)
        (lower,) = torch.autograd.grad(ACTIVATIONS[self.activation](inner), inner, upper, retain_graph=True)
        wide = torch.float32 if grad.dtype in FLOAT8 else grad.dtype
        error = torch.zeros_like(lower)
        if self.activation is not None:
            before = self.before()
            moved = before.error + _roundings(grad.dtype, before.value)
            change = 0.0 if self.activation == "relu" else SLOPE_CHANGE
            error = error + upper.abs() * (change * moved + SLOPE_ERROR) + _roundings(wide, lower)
        narrow = 0.0 if self.scale is None and self.a.dtype == wide else _roundings(self.a.dtype, lower)
        size = self._linear(sizes, abs)

        def summed(name: str, of: Tensor) -> Tensor:
            """How much of these in the gradient of a leaf is added up."""
            (found,) = torch.autograd.grad(size, sizes[name], of, retain_graph=True)
            return found

        found = {}
        for name, leaf in leaves.items():
            (value,) = torch.autograd.grad(inner, exact[name], lower, retain_graph=True)
            of_size = summed(name, lower.abs())
            of_products = name in ("a", "b")
            terms = ceil(inner.numel() * (self.a.shape[-1] if of_products else 1) / max(leaf.numel(), 1)) + OTHER_TERMS
            bound = summed(name, error + narrow if of_products else error) + terms * SUM_UNIT * of_size
            if self._rounds_terms(name, terms - OTHER_TERMS):
                bound = bound + _roundings(leaf.dtype, of_size)
            found[name] = Bounded(value, bound)
        if self.residual is not None:
            terms = ceil(inner.numel() / max(self.residual.numel(), 1))
            value, size = (x.sum_to_size(self.residual.shape) for x in (upper, upper.abs()))
            found["residual"] = Bounded(value, terms * SUM_UNIT * size)
        return found

    def _rounds_terms(self, name: str, terms: int) -> bool:
        """Return whether what is added up to the gradient of an operand was rounded to its type before."""
        if name == "a":
            return terms > (self.b.shape[-1] if self.b.dim() > 1 else 1)
        if name == "b":  # a batch that it lacks becomes more rows of one product
            return self.b.dim() > 2 and terms > (self.a.shape[-2] if self.a.dim() > 1 else 1)
        return self.beta != 1.0 if name == "c" else self._leaves()[name].dtype not in FLOAT8

    def _leaves(self) -> dict[str, Tensor]:
        named = {"a": self.a, "b": self.b, "bias": self.bias, "c": self.c}
        return {name: x for name, x in named.items() if x is not None}

    def _linear(self, leaves: Mapping[str, Tensor], of: Callable[[Any], Any] = lambda x: x) -> Tensor:
        x = self._scaled(torch.matmul(leaves["a"], leaves["b"]), of)
        if "c" in leaves:
            x = x + of(self.beta) * leaves["c"]
        if "bias" in leaves:
            x = x + (leaves["bias"] if x.dim() else leaves["bias"].sum())
        return x

    def _scaled(self, x: Tensor, of: Callable[[Any], Any]) -> Tensor:
        return of(self.alpha) * (x if self.scale is None else of(_double(self.scale)) * x)


def scaled_product(x: Any, y: Any, times: float = 1.0, *, cut: bool = False) -> Bounded:
    """Return the product of (M, K) and (N, K) values times their factors, in float64, with its error in f32.

    A value times a factor of 8 bits has at most 8 bits, and instructions that multiply by both keep all bits of an f32
    sum. Those that leave factors to others have fewer: they `cut` sums. Another factor, `times`, is one of the other
    operations.
    """
    x, y = (torch.as_tensor(each).double() for each in (x, y))
    error = (x.shape[-1] + OTHER_TERMS) * SUM_UNIT * (x.abs() @ y.abs().mT)
    if cut:
        error = error + replace(float64_reference(x, y.mT), operands="e4m3").bounded("f32").error
    return Bounded(times * (x @ y.mT), abs(times) * error)


def close_quantized(found: tuple[Tensor, Tensor], exact: Bounded) -> None:
    """Hold e4m3 values and their factors of 1 x 128 against a result before it is quantized, of (R, N) exact values.

    The largest of a block is one of its values, so it is between the largest of their least and of their greatest. Rows
    of which nothing was summed are of no group, and have zeros.
    """
    summed = exact.error.amax(-1) > 0
    assert not any(x[~summed].float().any() for x in found), "rows of no group have values"
    values, factors = (x[summed].double() for x in found)
    exact = Bounded(exact.value[summed], exact.error[summed])
    blocks, columns = factors.shape[-1], values.shape[-1]
    room = (0, blocks * QUANTIZED_BLOCK[1] - columns)

    def most(x: Tensor) -> Tensor:
        of_block = functional.pad(x, room).unflatten(-1, (blocks, -1)).amax(-1)
        return of_block.clamp(min=QUANTIZED_FLOOR) / QUANTIZED_MOST["e4m3"]

    low, high = (most(exact.value.abs() + by) for by in (-exact.error, exact.error))
    assert bool((low * (1 - 2 * UNIT) <= factors).all()), "a factor is too small"
    assert bool((factors <= high * (1 + 2 * UNIT)).all()), "a factor is too large"
    each = factors.repeat_interleave(QUANTIZED_BLOCK[1], -1)[..., :columns]
    rounding = (HALF_STEP + OTHER_TERMS * UNIT) * (exact.value.abs() + exact.error) + LEAST_HALF_STEP * each
    wrong = ((values * each - exact.value).abs() > exact.error + rounding).nonzero()
    assert not len(wrong), f"{len(wrong)} values wrong, the first at {tuple(wrong[0].tolist())}"


def close(found: Tensor, exact: Exact | Bounded, what: str = "result") -> None:
    """Compare element by element, after one rounding to the type of `found`; 8-bit floats saturate."""
    bounded = exact.result(found.dtype) if isinstance(exact, Exact) else exact
    assert found.shape == bounded.value.shape, f"{what}: {found.shape}, {bounded.value.shape}"
    low, high = (_nearest(bounded.value + by, found.dtype) for by in (-bounded.error, bounded.error))
    within = (low <= found.detach().double()) & (found.detach().double() <= high)
    if not within.all():
        at = tuple((~within).nonzero()[0].tolist())
        count = int((~within).sum())
        said = f"found {found[at].item()!r}; expected {bounded.value[at].item()!r} within [{low[at]}, {high[at]}]"
        raise AssertionError(f"{what}: {count} of {within.numel()} wrong, the first at {at}: {said}")


def close_gradients(leaves: Mapping[str, Any], exact: Exact, grad: Tensor, what: str = "") -> None:
    """Compare the gradients that leaves have by now, by the operands' names, given that of the result."""
    wanted = exact.gradients(grad)
    for name, leaf in leaves.items():
        assert leaf.grad.dtype is leaf.dtype
        close(leaf.grad, wanted[name], f"{what}gradient of {name}")


def _double(x: Tensor) -> Tensor:
    return x.detach().double()


def _roundings(dtype: torch.dtype, values: Tensor) -> Tensor:
    """Return how far one rounding to the type moves values of these sizes, subnormal ones too."""
    unit = torch.finfo(dtype).eps / 2
    return unit * values.abs() + unit * torch.finfo(dtype).smallest_normal


def _nearest(values: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype in FLOAT8:
        most = torch.finfo(dtype).max
        values = values.clamp(-most, most)
    return values.to(dtype).double()
