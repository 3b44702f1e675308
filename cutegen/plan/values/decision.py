"""Answer of a rule: a value, and why it is that one and not another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Rejected:
    """An alternative that was not taken, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One key of the spec, settled: `given` says that the spec asked for it, otherwise cutegen chose.

    `for_problem` is the arithmetic of the problem that the plan was made for. It stays out of the generated kernel, so
    that problems for which the same is chosen share one.
    """

    key: str
    chosen: str
    why: str
    given: bool = False
    rejected: tuple[Rejected, ...] = ()
    for_problem: str = ""


@dataclass(frozen=True, slots=True)
class Choice(Generic[T_co]):
    """A rule's answer: the value that later rules build on, and the decision that people read."""

    value: T_co
    decision: Decision
