"""The chain of an epilogue as expressions, one per line of the kernel, in the forms with the fewest instructions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from cutegen.contract.pairs import Member, Pairs
from cutegen.spec import OPS, VECTORS, Binary, Call, Expression, Name, Negation, Number, Step, parts_of

GELU = ("gelu_erf", "gelu_tanh")
MEMBERS: Mapping[Member, str] = {"gate": "x", "up": "y"}
"""Names of the sums of a pair, as in an expression."""
HALF_SUM = "half_sum"
"""A function that kernels define in addition to those of specs: half the sum of two."""


@dataclass(frozen=True, slots=True)
class Link:
    """One line: x becomes `expression`, or is stored if that is None; `said` are its ops or its text."""

    said: str
    expression: Expression | None


def links(steps: Iterable[Step]) -> tuple[Link, ...]:
    """Return the chain as requested."""
    return tuple(Link(step.name if step.name in OPS else step.text, step.expression) for step in steps)


def links_by_halves(steps: Iterable[Step]) -> tuple[Link, ...]:
    """Return the chain for kernels whose GELU takes half of its argument.

    If a vector is added before it, the adding instruction also halves the sum.

    >>> from cutegen.spec.steps import steps
    >>> [link.said for link in links_by_halves(steps(("alpha", "bias_n", "gelu_erf"), None))]
    ['alpha', 'bias_n, gelu_erf']
    """
    chain: list[Link] = []
    for link in links(steps):
        before = chain[-1] if chain else None
        match link.expression:
            case Call(function, (Name("x"),)) if function in GELU and before and _is_sum(before.expression):
                chain[-1] = Link(f"{before.said}, {link.said}", Call(function, (before.expression,)))
            case _:
                chain.append(link)
    return tuple(Link(link.said, link.expression and _of_halves(link.expression)) for link in chain)


def _is_sum(expression: Expression | None) -> TypeGuard[Binary]:
    """Return whether it is x plus a vector, whose half serves several x."""
    match expression:
        case Binary("+", Name("x"), Name(name)):
            return name in VECTORS
        case _:
            return False


def _of_halves(expression: Expression) -> Expression:
    parts = tuple(map(_of_halves, parts_of(expression)))
    if isinstance(expression, Call) and expression.function in GELU:
        parts = tuple(map(_half, parts))
    return with_parts(expression, parts)


def _half(expression: Expression) -> Expression:
    if _is_sum(expression):
        return Call(HALF_SUM, parts_of(expression))
    return Binary("*", Number(0.5), expression)


def of_partner(expression: Expression) -> Expression:
    """Return an expression over x as the same over y."""
    if expression == Name(MEMBERS["gate"]):
        return Name(MEMBERS["up"])
    return with_parts(expression, tuple(map(of_partner, parts_of(expression))))


def members_in_order(pairs: Pairs) -> tuple[str, str]:
    """Return the names of the sums of a pair, in the order of their columns."""
    first, second = pairs.members
    return MEMBERS[first], MEMBERS[second]


def with_parts(expression: Expression, parts: tuple[Expression, ...]) -> Expression:
    """Return the expression with its parts replaced."""
    match expression:
        case Negation():
            return Negation(*parts)
        case Binary(symbol):
            return Binary(symbol, *parts)
        case Call(function):
            return Call(function, parts)
        case _:
            return expression
