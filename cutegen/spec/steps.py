"""The epilogue as a chain of steps from an accumulator to C: each computes a new x from x, or stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.contract.launch import SCALARS
from cutegen.spec.expression import Expression, names_of, parse_expression, takes_pair

MATRICES = ("c", "residual")
VECTORS = ("bias_n", "bias_m", "scale_m", "scale_n")
OPERANDS = (*SCALARS, *MATRICES, *VECTORS)
"""Names in an expression besides x."""

STORE = "aux"

NARROW_BITS = 16
"""Bits of the widest result for which GELU may use `tanh.approx.f32` and have its accuracy. For GELU by erf, a
polynomial argument adds an error of `NARROW_SHARE` of the value: a quarter of f16's rounding error.
"""
NARROW_SHARE = 1.25e-4

OPS: Mapping[str, str] = {
    "alpha": "x -> alpha * x",
    "beta": "x -> x + beta * c",
    "scale_m": "x -> scale_m * x",
    "scale_n": "x -> scale_n * x",
    "bias_n": "x -> x + bias_n",
    "bias_m": "x -> x + bias_m",
    "relu": "x -> relu(x)",
    "gelu_tanh": "x -> gelu_tanh(x)",
    "gelu_erf": "x -> gelu_erf(x)",
    "silu": "x -> silu(x)",
    "residual": "x -> x + residual",
    "aux": STORE,
}
"""An op is a short name for an expression, or stores x at that point."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `text` is an expression, or `STORE`; `name` is its op in the spec, or "expression"."""

    name: str
    text: str

    @property
    def expression(self) -> Expression | None:
        """Expression that x becomes; None if x is stored to aux unchanged."""
        return None if self.text == STORE else parse_expression(self.text, OPERANDS)

    @property
    def takes_pair(self) -> bool:
        """True if it makes one value of a pair; the steps before it change both alike."""
        return self.expression is not None and takes_pair(self.expression)


def steps(ops: Iterable[str] | None, expression: str | None) -> tuple[Step, ...]:
    """Return the chain of a spec's `[epilogue]`: its ops in order, then its expression.

    >>> [step.text for step in steps(("alpha", "beta"), "x -> max(x, 0)")]
    ['x -> alpha * x', 'x -> x + beta * c', 'x -> max(x, 0)']
    """
    chain = [Step(op, OPS[op]) for op in ops or ()]
    if expression is not None:
        chain.append(Step("expression", " ".join(expression.split())))
    return tuple(chain)


def chain_of(texts: Iterable[str]) -> tuple[Step, ...]:
    """Return the chain from its `Step.text`."""
    return tuple(Step("expression", text) for text in texts)


def operands_of(chain: Iterable[Step]) -> tuple[str, ...]:
    """Return the operands that a chain reads, in the order of `OPERANDS`, and `STORE` last if it stores.

    >>> operands_of(steps(("aux", "beta"), None))
    ('beta', 'c', 'aux')
    """
    wanted = {name for step in chain for name in (names_of(step.expression) if step.expression else (STORE,))}
    return tuple(name for name in (*OPERANDS, STORE) if name in wanted)


def guards_source(chain: Iterable[Step]) -> bool:
    """Return True if only the op `beta` reads C, so that it need not be read if beta is 0.

    >>> guards_source(steps(("beta",), None)), guards_source(steps(None, "x -> x + beta * c"))
    (True, True)
    """
    readers = {step.text for step in chain if step.expression and "c" in names_of(step.expression)}
    return readers == {OPS["beta"]}
