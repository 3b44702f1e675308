"""What a rule answers: a value, and why it is that one and not another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rejected:
    """An alternative that was not taken, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One key of the spec, settled: `given` says that the spec asked for it, otherwise cutegen chose."""

    key: str
    chosen: str
    why: str
    given: bool = False
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """A rule's answer: the value that later rules build on, and the decision that people read."""

    value: T
    decision: Decision
