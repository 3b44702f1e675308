"""The epilogue as a chain: each step makes a new x of x, or stores it, on the way from an accumulator to C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.contract.launch import SCALARS
from cutegen.spec.expression import Expression, names_of, parse_expression

MATRICES = ("c", "residual")
VECTORS = ("bias_n", "bias_m", "scale_m", "scale_n")
OPERANDS = (*SCALARS, *MATRICES, *VECTORS)
"""What an expression may name beside x."""

STORE = "aux"

NARROW_BITS = 16
"""Where no result has more, GELU is as right as `tanh.approx.f32` is, and GELU by erf, whose argument of it is a
polynomial, to `NARROW_SHARE` of itself beside that: a quarter of what f16 rounds to."""
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
"""An op is a short name for an expression, or stores x as it is at that point."""


@dataclass(frozen=True, slots=True)
class Step:
    """One link: `text` is an expression, or `STORE`; `name` is the op it was asked for as, or "expression"."""

    name: str
    text: str

    @property
    def expression(self) -> Expression | None:
        """Expression that x becomes; None when x is stored to aux and stays."""
        return None if self.text == STORE else parse_expression(self.text, OPERANDS)


def steps(ops: Iterable[str] | None, expression: str | None) -> tuple[Step, ...]:
    """The chain that a spec's `[epilogue]` asks for: its ops in their order, then its expression.

    >>> [step.text for step in steps(("alpha", "beta"), "x -> max(x, 0)")]
    ['x -> alpha * x', 'x -> x + beta * c', 'x -> max(x, 0)']
    """
    chain = [Step(op, OPS[op]) for op in ops or ()]
    if expression is not None:
        chain.append(Step("expression", " ".join(expression.split())))
    return tuple(chain)


def chain_of(texts: Iterable[str]) -> tuple[Step, ...]:
    """The chain that `Step.text` was taken from."""
    return tuple(Step("expression", text) for text in texts)


def operands_of(chain: Iterable[Step]) -> tuple[str, ...]:
    """The operands that a chain reads, in the order of `OPERANDS`, and `STORE` last when it stores.

    >>> operands_of(steps(("aux", "beta"), None))
    ('beta', 'c', 'aux')
    """
    wanted = {name for step in chain for name in (names_of(step.expression) if step.expression else (STORE,))}
    return tuple(name for name in (*OPERANDS, STORE) if name in wanted)


def guards_source(chain: Iterable[Step]) -> bool:
    """True where C is read by the op `beta` alone, so that it need not be read when beta is 0.

    >>> guards_source(steps(("beta",), None)), guards_source(steps(None, "x -> x + beta * c"))
    (True, True)
    """
    readers = {step.text for step in chain if step.expression and "c" in names_of(step.expression)}
    return readers == {OPS["beta"]}
