"""The result of a rule: a value, and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected alternative, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one key of the spec: `given` by the spec, otherwise chosen by cutegen.

    `for_problem` is the arithmetic of the problem that the plan was made for. It is not written into the generated
    kernel, so that problems with the same decisions share one.
    """

    key: str
    chosen: str
    why: str
    given: bool = False
    rejected: tuple[Rejected, ...] = ()
    for_problem: str = ""

    @classmethod
    def as_given(cls, key: str, chosen: str, why: str = "", rejected: tuple[Rejected, ...] = ()) -> Decision:
        """Return the decision on a key that the spec gives; `why` is what it means.

        >>> Decision.as_given("tile.stages", "1", "a k-tile is copied, then multiplied").why
        'given; a k-tile is copied, then multiplied'
        """
        return cls(key, chosen, f"given; {why}" if why else "given", given=True, rejected=rejected)


@dataclass(frozen=True, slots=True)
class Choice(Generic[T_co]):
    """A rule's result: the value that later rules use, and the decision that people read."""

    value: T_co
    decision: Decision
