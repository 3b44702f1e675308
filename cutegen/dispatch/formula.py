"""The formula of a call as the ops of a spec's epilogue.

act(alpha * scale_a * scale_b * (a @ b) + beta * c + bias) + residual
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from cutegen.contract.quantized import FactorsOfC
from cutegen.dispatch.gated import GATED, Gated, gated_of
from cutegen.dispatch.quantized import factors_of
from cutegen.errors import OperandError, RequestError
from cutegen.run.call.epilogue_operands import check_range
from cutegen.support.literals import literal, nearest

ACTIVATIONS: Mapping[str, str] = {"relu": "relu", "gelu": "gelu_erf", "gelu_tanh": "gelu_tanh", "silu": "silu"}
"""Names of activations in calls, and their ops. `gelu` is PyTorch's, with the error function."""

TENSORS = ("a", "b", "bias", "residual", "c", "scale_a", "scale_b", "out", "scale_c", "scale_m", "scale_n")
"""Names of a call's tensors; `scale_m` and `scale_n` are factors of rows and columns beside those of blocks."""
_TERMS = ("alpha", "bias", "residual", "c", "scale_a", "scale_b")


@dataclass(frozen=True, slots=True)
class Formula:
    """Terms of the formula that a call has. With `aux` the value before the activation is stored as well.

    A `quantized` result has factors, rounded so.
    """

    activation: str | None = None
    alpha: bool = False
    scale_a: bool = False
    scale_b: bool = False
    c: bool = False
    bias: bool = False
    residual: bool = False
    aux: bool = False
    quantized: FactorsOfC | None = None

    @classmethod
    def of(cls, call: Any, *, aux: bool = False) -> Formula:
        """Return the terms of a call, which has `matmul`'s arguments as attributes. Raises RequestError."""
        if (gated := gated_of(call.activation)) is None:
            check_activation(call.activation)
        elif call.c is not None:
            raise RequestError(f"matmul: c: found with {gated.name}; expected none: C has half of the sums' columns")
        given = {name: getattr(call, name) is not None for name in _TERMS}
        return cls(call.activation, aux=aux, quantized=factors_of(call.quantize), **given)

    @property
    def gated(self) -> Gated | None:
        """The activation if it is one of pairs of columns."""
        return gated_of(self.activation)

    @property
    def expression(self) -> str | None:
        """The epilogue's last step, after its ops: an activation of pairs, with what is added to it."""
        return None if self.gated is None else self.gated.expression(residual=self.residual)

    @property
    def ops(self) -> tuple[str, ...]:
        """The epilogue's ops, in order.

        >>> Formula("gelu", alpha=True, bias=True, residual=True).ops
        ('alpha', 'bias_n', 'gelu_erf', 'residual')
        """
        asked = {
            "alpha": self.alpha,
            "scale_m": self.scale_a,
            "scale_n": self.scale_b,
            "beta": self.c,
            "bias_n": self.bias,
            "aux": self.aux,
            ACTIVATIONS.get(self.activation or "", ""): self.activation in ACTIVATIONS,
            "residual": self.residual and self.gated is None,
        }
        return tuple(op for op, wanted in asked.items() if wanted)


def check_activation(name: str | None) -> None:
    """Reject an activation that is not one of `ACTIVATIONS`. Raises RequestError."""
    if name is None or (isinstance(name, str) and name in ACTIVATIONS):
        return
    if isinstance(name, str) and name in GATED:
        raise RequestError(f"matmul: activation: found {literal(name)} in a call without pairs of columns")
    close = nearest(name, ACTIVATIONS) if isinstance(name, str) else ""
    raise RequestError(
        f"matmul: activation: found {literal(name)}; expected None or one of {', '.join(ACTIVATIONS)}; with "
        f"pairs= and first= one of {', '.join(GATED)}" + (f"; did you mean {close}?" if close else "")
    )


def check_scalars(alpha: Any, beta: Any, *, has_c: bool) -> None:
    """Reject a value that is not a number of float32, and a beta without c. Raises OperandError, RequestError."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value is None:
            continue
        if isinstance(value, Real):
            check_range(name, value)
            continue
        fix = f"`{name}.item()`" if hasattr(value, "item") else f"`float({name})`"
        fix += "; for a factor on the device use scale_a=" if name == "alpha" else ""
        raise OperandError(operand=name, found=f"a {type(value).__qualname__}", expected="a number, by value", fix=fix)
    if beta is not None and not has_c:
        raise RequestError("matmul: beta: found without c; expected both, because beta * c is added; pass c=")


def scalars_of(call: Any) -> dict[str, float]:
    """Return the numbers that a kernel takes from a call; with c, beta is 1 by default."""
    numbers = {} if call.alpha is None else {"alpha": float(call.alpha)}
    return numbers if call.c is None else {**numbers, "beta": 1.0 if call.beta is None else float(call.beta)}
