"""Cost of a given key of a spec: the quantities that it makes worse, beside what would be chosen without it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


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
