"""Orders in which things happen that a program must not depend on.

CTAs, warps between barriers, sides of a branch; which lane is elected, and when bulk copies land.
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
"""How many blocks a warp runs before others do, where nothing is drawn: who runs so many may wait for somebody."""


TURN_QUESTIONS = 16
"""A warp that asks so often in a turn for what other CTAs write waits for them: others take their turns."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An order of CTAs, warps and sides of a branch, by name.

    `in-order`: lowest first, each warp as far as it can go; bulk copies land at once. `reversed`: highest first; bulk
    copies land, the newest first, when nothing else can go on, and relaxed reads find the oldest value that they may.
    `random`: drawn by `seed`, and warps also change places
    between any two basic blocks; bulk copies land at any time, and a wait may come back too early.

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
        """The order of one thing, as CTA 5; the same key gives the same order."""
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
        """`items` in the order in which they go."""
        if self._policy.name == "random":
            return self._generator.sample(list(items), len(items))
        return list(items) if self._policy.name == "in-order" else list(reversed(items))

    def turn_blocks(self) -> int:
        """After how many basic blocks a warp lets others go on."""
        return self._generator.randint(1, 8) if self._policy.name == "random" else TURN_BLOCKS

    def takes_turns(self) -> bool:
        """Return whether the CTAs of a cluster take turns even where one could go on."""
        return self._policy.name == "random"

    def read_among(self, first: int, last: int) -> int:
        """Choose which of the writes `first` to `last` of a location a strong read finds, where it may find any of
        them.
        """
        if self._policy.name == "random":
            return self._generator.randint(first, last)
        return last if self._policy.name == "in-order" else first

    def lands_at_once(self) -> bool:
        """Return whether a bulk copy is done when it is issued."""
        return self._policy.name == "in-order"

    def lands_now(self) -> bool:
        """Return whether a bulk copy in flight lands before the warps take their next turns."""
        return self._policy.name == "random" and self._generator.random() < 0.5

    def is_patient(self) -> bool:
        """Return whether a repeated wait for an mbarrier goes on waiting; else it returns false."""
        return self._policy.name != "random" or self._generator.random() < 0.75

    def elect(self, lanes: Sequence[int]) -> int:
        """The lane that `elect.sync` chooses among `lanes`, always the same."""
        if self._policy.name == "random":
            return random.Random(f"{self._policy.seed}/{lanes}").choice(lanes)
        return min(lanes) if self._policy.name == "in-order" else max(lanes)
