"""Describes a main loop once: which role does which step on which k-tile, how often, and what it waits for.

Each role's threads run its parts in order. A part is a range of k-tiles, `first` to `last`, with the steps on each of
them. All statements about a main loop derive from this value: instructions in the PTX text (`written`), instructions,
wavefronts and hardware counters of a launch (`executed`), the limits of a k-tile, and the timeline
(`cutegen/show/timeline.py`). A template writes the loop again in the CuTe DSL; the resulting PTX is checked against
these counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any


class Action(StrEnum):
    """Action of a step, by its instruction; `load` and `mma` have different ones in different plans."""

    WAIT = "cp.async.wait_group"
    BARRIER = "bar.sync"
    LOAD = "load"
    FETCH = "cp.async"
    COMMIT = "cp.async.commit_group"
    BULK_FETCH = "cp.async.bulk.tensor"
    BULK_WAIT = "mbarrier.try_wait"
    RELEASE = "mbarrier.arrive"
    GLOBAL_LOAD = "ld.global"
    STORE = "st.shared"
    MULTIPLY = "mma"
    MMA_FENCE = "wgmma.fence.sync.aligned"
    MMA_COMMIT = "wgmma.commit_group.sync.aligned"
    MMA_WAIT = "wgmma.wait_group.sync.aligned"


FETCHES = frozenset({Action.FETCH, Action.BULK_FETCH, Action.GLOBAL_LOAD})
"""The steps that issue the copies of a k-tile."""
MMA_ORDER = frozenset({Action.MMA_FENCE, Action.MMA_COMMIT, Action.MMA_WAIT})
"""The steps that order asynchronous multiplications; each is one instruction."""


class Mark(StrEnum):
    """Begin or end of a range of k-tiles; `whole` is the number of leading k-tiles in full turns.

    From `in_turns` on, the remaining k-tiles fit into the stages.
    """

    FIRST = "0"
    ONE = "1"
    FIRST_WHOLE = "min(whole, 1)"
    FILLED = "stages - 1"
    WHOLE = "whole"
    FIRST_ALIKE = "min(in_turns, 1)"
    LAST_ALIKE = "max(in_turns - 1, 0)"
    IN_TURNS = "in_turns"
    NEXT_IN_TURNS = "in_turns + 1"
    LAST = "k_tiles - 1"
    END = "k_tiles"
    FETCHED = "max(k_tiles, 1)"

    def of(self, k_tiles: int, whole: int, stages: int) -> int:
        """Return its k-tile, in a loop of `k_tiles`."""
        in_turns = max(k_tiles - stages, 0)
        return {
            Mark.FIRST: 0,
            Mark.ONE: 1,
            Mark.FIRST_WHOLE: min(whole, 1),
            Mark.FILLED: stages - 1,
            Mark.WHOLE: whole,
            Mark.FIRST_ALIKE: min(in_turns, 1),
            Mark.LAST_ALIKE: max(in_turns - 1, 0),
            Mark.IN_TURNS: in_turns,
            Mark.NEXT_IN_TURNS: in_turns + 1,
            Mark.LAST: k_tiles - 1,
            Mark.END: k_tiles,
            Mark.FETCHED: max(k_tiles, 1),
        }[self]


class Check(StrEnum):
    """Check of a step that may cross an edge of the matrices: for each vector, or for each element."""

    NONE = "none"
    VECTOR = "vector"
    ELEMENT = "element"


class Nth(StrEnum):
    """The k-tiles of a turn that have a step: all, all but the first, or the last."""

    EVERY = "every"
    LATER = "all but the first"
    LAST = "the last"

    def of(self, copies: int) -> range:
        """Return their numbers, out of `copies`."""
        return {Nth.EVERY: range(copies), Nth.LATER: range(1, copies), Nth.LAST: range(copies - 1, copies)}[self]


class PartName(StrEnum):
    """A part's place in the loop. The edge turn handles the k-tiles that may cross an edge of the matrices."""

    PROLOGUE = "prologue"
    TURN = "turn"
    EDGE_TURN = "edge turn"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Step:
    """One action on the k-tile `ahead` of the part's own, on one of its k-blocks or on all of it.

    `pending` is the number of groups that a WAIT leaves in flight, of cp.async or of multiplications: its k-tile is the
    last one that has then arrived, or been multiplied. `check` is the bounds check. A step with `below` is skipped for
    k-tiles at or after that mark, and in the copies of its part that are not the `nth`.
    """

    action: Action
    ahead: int = 0
    k_block: int | None = None
    pending: int | None = None
    check: Check = Check.NONE
    below: Mark | None = None
    nth: Nth = Nth.EVERY


Slot = tuple[Step, ...]
"""The steps between two multiplications, in program order."""


@dataclass(frozen=True, slots=True)
class Part:
    """The slots of one k-tile, run for the k-tiles `first` to `last`; the text holds them `copies` times.

    A part with a `group` is run only by that warpgroup of a tile; otherwise by all of the role's threads.
    """

    name: PartName
    slots: tuple[Slot, ...]
    first: Mark
    last: Mark
    copies: int = 1
    group: int | None = None

    @property
    def steps(self) -> Iterator[Step]:
        """Every step, in program order."""
        return (step for slot in self.slots for step in slot)


@dataclass(frozen=True, slots=True)
class Role:
    """Threads that run the same parts, except those with a `group`."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """One barrier per stage: `target` waits for the arrivals of `source`; the first `credits` waits pass at once."""

    name: str
    source: str
    target: str
    credits: int = 0


@dataclass(frozen=True, slots=True)
class Executed:
    """Executions of a step for one tile, in k-tiles: those within K, and those past its end."""

    k_tiles: Fraction
    past_end: Fraction

    @property
    def total(self) -> Fraction:
        """Both."""
        return self.k_tiles + self.past_end

    def __add__(self, other: Executed) -> Executed:
        return Executed(self.k_tiles + other.k_tiles, self.past_end + other.past_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The main loop of one tile, with at least `least_k_tiles` k-tiles, even for an empty K.

    A `persistent` CTA runs it for one tile after another, with no step in between.
    """

    stages: int
    k_blocks: int
    roles: tuple[Role, ...]
    edges: tuple[Edge, ...] = ()
    least_k_tiles: int = 0
    persistent: bool = False

    @property
    def parts(self) -> Iterator[Part]:
        """The parts of all roles."""
        return (part for role in self.roles for part in role.parts)

    @property
    def k_tiles_per_turn(self) -> int:
        """K-tiles per turn of the unrolled loop."""
        return max(part.copies for part in self.parts if part.name is PartName.TURN)

    def whole(self, k_tiles: int) -> int:
        """Return how many of `k_tiles` run in full turns: they, and the k-tiles that they copy, are inside the
        matrices.
        """
        turns = (part for part in self.parts if part.name is PartName.TURN)
        ahead = max((step.ahead for part in turns for step in part.steps if step.action in FETCHES), default=0)
        return max(k_tiles - ahead, 0) // self.k_tiles_per_turn * self.k_tiles_per_turn

    def written(self, opcodes: Callable[[Step], Mapping[str, int]]) -> dict[str, int]:
        """Count each opcode in the text; `opcodes` are those of a step on a whole k-tile."""
        counts: Counter[str] = Counter()
        for part in self.parts:
            for step in part.steps:
                for opcode, count in opcodes(step).items():
                    counts[opcode] += _integer(len(step.nth.of(part.copies)) * self._share(step) * count)
        return {opcode: count for opcode, count in counts.items() if count}

    def executed(self, action: Action, k_tiles: int, group: int = 0) -> Executed:
        """Count how often a tile with so many k-tiles executes a step, over all parts.

        For warpgroups that share a tile, count the `group`-th; all have the same count.
        """
        found = Executed(Fraction(0), Fraction(0))
        for part in self.parts:
            if part.group not in (None, group):
                continue
            for step in part.steps:
                if step.action is action:
                    found += self._times(part, step, k_tiles)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the plain form that `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Loop:
        """Read what `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        roles = (Role(role["name"], tuple(map(_part, role["parts"]))) for role in table["roles"])
        return cls(**{**table, "roles": tuple(roles), "edges": tuple(Edge(**edge) for edge in table["edges"])})

    def _times(self, part: Part, step: Step, k_tiles: int) -> Executed:
        """Count how often `part` executes `step`, if all k-tiles lie inside the matrices.

        A k-tile that runs although K has none counts as past the end.

        Otherwise edge turns run some k-tiles of the full turns, and the sum over the parts is unchanged.
        """
        taken = max(k_tiles, self.least_k_tiles)
        marks = (taken, self.whole(taken), self.stages)
        first, stop = part.first.of(*marks) + step.ahead, part.last.of(*marks) + step.ahead
        if step.below is not None:
            stop = min(stop, step.below.of(*marks))
        touched = [range(first + copy, stop, part.copies) for copy in step.nth.of(part.copies)]
        total = sum(map(len, touched))
        inside, share = sum(len(range(x.start, min(x.stop, k_tiles), x.step)) for x in touched), self._share(step)
        return Executed(share * inside, share * (total - inside))

    def _share(self, step: Step) -> Fraction:
        """Return the step's fraction of a k-tile: a k-block is one of `k_blocks`."""
        return Fraction(1) if step.k_block is None else Fraction(1, self.k_blocks)


def _part(table: Mapping[str, Any]) -> Part:
    slots = tuple(tuple(map(_step, slot)) for slot in table["slots"])
    first, last = Mark(table["first"]), Mark(table["last"])
    return Part(PartName(table["name"]), slots, first, last, table["copies"], table["group"])


def _step(table: Mapping[str, Any]) -> Step:
    below = None if table["below"] is None else Mark(table["below"])
    names = {"action": Action(table["action"]), "check": Check(table["check"]), "nth": Nth(table["nth"])}
    return Step(**{**table, **names, "below": below})


def _integer(count: Fraction) -> int:
    assert count.denominator == 1, f"{count} of an instruction"
    return int(count)
