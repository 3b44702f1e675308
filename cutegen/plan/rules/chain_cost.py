"""Counts what an epilogue's chain takes of each element, as the model of time and the rule for parts want it."""

from __future__ import annotations

from collections.abc import Iterable

from cutegen.spec import Binary, Call, Expression, Step, parts_of

SPECIAL = frozenset({"erf", "exp", "gelu_erf", "gelu_tanh", "sigmoid", "silu", "tanh"})
"""Functions by the special function unit, or by a polynomial as long as what that takes."""
SPECIAL_INSTRUCTIONS = 10


def chain_instructions(steps: Iterable[Step]) -> float:
    """Return about how many instructions a scheduler issues for each element.

    >>> from cutegen.spec.steps import steps
    >>> chain_instructions(steps(("bias_n", "gelu_tanh", "aux"), None))
    11.0
    """
    return float(sum(_of(step.expression) for step in steps if step.expression is not None))


def _of(expression: Expression) -> int:
    own = 0
    if isinstance(expression, Call):
        own = SPECIAL_INSTRUCTIONS if expression.function in SPECIAL else 1
    elif isinstance(expression, Binary):
        own = 1
    return own + sum(map(_of, parts_of(expression)))
