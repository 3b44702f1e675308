"""Execution orders that a program must not depend on.

Orders of CTAs, of warps between barriers and of sides of a branch; the elected lane, and when bulk copies land.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from cutegen.ptx.errors import LaunchError

T = TypeVar("T")
TURN_BLOCKS = 4096
"""Blocks that a warp runs before others run, unless drawn at random: a warp that runs so many may be polling."""


TURN_QUESTIONS = 16
"""A warp that reads other CTAs' data so often in a turn is assumed to wait for them: others take their turns."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An order of CTAs, warps and sides of a branch, by name.

    `in-order`: lowest first, each warp as far as it can go; bulk copies land at once. `reversed`: highest first; bulk
    copies land when nothing else can make progress, newest first, and relaxed reads return the oldest allowed value.
    `random`: drawn by `seed`, and warps also switch between any two basic blocks; bulk copies land at any time, and a
    wait may return too early.

    >>> Policy.parse("random:7")
    Policy(name='random', seed=7)
    """

    name: str
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Reads `in-order`, `reversed`, `random` or `random:SEED`.

        Raises:
            LaunchError: anything else.
        """
        match = re.fullmatch(r"(in-order|reversed|random)(?::(\d+))?", text)
        if match is None or (match[2] and match[1] != "random"):
            raise LaunchError(f"policy is {text!r}; expected in-order, reversed, random or random:SEED")
        return cls(match[1], int(match[2] or 0))

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"{self.name}:{self.seed}" if self.name == "random" else self.name

    def schedule(self, key: str) -> Schedule:
        """The order for one object, such as CTA 5; the same key gives the same order."""
        return Schedule(self, random.Random(f"{self.seed}/{key}"))


IN_ORDER = Policy("in-order")
REVERSED = Policy("reversed")


def random_order(seed: int) -> Policy:
    """The random policy of `seed`."""
    return Policy("random", seed)


class Schedule:
    """A policy at work."""

    def __init__(self, policy: Policy, generator: random.Random) -> None:
        self._policy, self._generator = policy, generator

    def order(self, items: Sequence[T]) -> list[T]:
        """`items` in execution order."""
        if self._policy.name == "random":
            return self._generator.sample(list(items), len(items))
        return list(items) if self._policy.name == "in-order" else list(reversed(items))

    def turn_blocks(self) -> int:
        """Number of basic blocks after which a warp lets others run."""
        return self._generator.randint(1, 8) if self._policy.name == "random" else TURN_BLOCKS

    def takes_turns(self) -> bool:
        """Return whether the CTAs of a cluster take turns even if one could continue."""
        return self._policy.name == "random"

    def read_among(self, first: int, last: int) -> int:
        """Choose which of the writes `first` to `last` of a location a strong read returns; all of them are allowed."""
        if self._policy.name == "random":
            return self._generator.randint(first, last)
        return last if self._policy.name == "in-order" else first

    def lands_at_once(self) -> bool:
        """Return whether a bulk copy lands when it is issued."""
        return self._policy.name == "in-order"

    def lands_now(self) -> bool:
        """Return whether a bulk copy in flight lands before the warps take their next turns."""
        return self._policy.name == "random" and self._generator.random() < 0.5

    def is_patient(self) -> bool:
        """Return whether a repeated wait for an mbarrier continues to wait; else it returns false."""
        return self._policy.name != "random" or self._generator.random() < 0.75

    def cancels(self, pending: Sequence[int], requests: int) -> int | None:
        """The cluster among those that have not started that a request cancels; None: it is refused, as it always may.

        `requests` counts the earlier ones. `in-order` cancels the first, `reversed` the last and refuses every third.
        """
        if not pending or (self._policy.name == "reversed" and requests % 3 == 2):
            return None
        if self._policy.name == "random":
            return self._generator.choice(pending) if self._generator.random() < 0.75 else None
        return pending[0] if self._policy.name == "in-order" else pending[-1]

    def elect(self, lanes: Sequence[int]) -> int:
        """The lane that `elect.sync` elects among `lanes`, always the same."""
        if self._policy.name == "random":
            return random.Random(f"{self._policy.seed}/{lanes}").choice(lanes)
        return min(lanes) if self._policy.name == "in-order" else max(lanes)
