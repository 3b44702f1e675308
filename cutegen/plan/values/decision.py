"""The result of a rule: a value, and the reason for it; and what a key that the spec gives costs."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Generic, Self, TypeVar

# The result of a rule: a value, and the reason for it.


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
    def as_given(cls, key: str, chosen: str, why: str = "", rejected: tuple[Rejected, ...] = ()) -> Self:
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


# Cost of a given key of a spec: the quantities that it makes worse, beside what would be chosen without it.


@dataclass(frozen=True, slots=True)
class Loss:
    """A quantity that a given key makes worse: its value, and the one without the key.

    `factor` is how much worse; None if there is nothing of it without the key.
    """

    quantity: str
    given: float
    without: float
    factor: float | None

    @property
    def weight(self) -> float:
        """The factor, for ranking."""
        return math.inf if self.factor is None else self.factor

    def __str__(self) -> str:
        times = "" if self.factor is None else f" ({self.factor:.3g}x)"
        return f"{self.quantity} {_number(self.given)}, not {_number(self.without)}{times}"


@dataclass(frozen=True, slots=True)
class KeyCost:
    """Losses by one given key, or several that are chosen together; `instead` is what would be chosen without them."""

    keys: tuple[str, ...]
    instead: str
    losses: tuple[Loss, ...]

    @property
    def rank(self) -> float:
        """The largest factor."""
        return max(loss.weight for loss in self.losses)

    def to_json(self) -> dict[str, Any]:
        """The cost as plain tables."""
        return {"keys": list(self.keys), "instead": self.instead, "losses": [asdict(loss) for loss in self.losses]}

    def __str__(self) -> str:
        losses = "; ".join(map(str, self.losses))
        return f"{', '.join(self.keys)}: {losses}; chosen without: {self.instead}"


def _number(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 or amount == int(amount) else f"{amount:.3g}"
