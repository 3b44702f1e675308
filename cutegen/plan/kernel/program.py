"""The programs of a kernel's roles: tiles, in each tile k-tiles, in each k-tile k-blocks of steps.

Each role's threads run its program in order. A range is the k-tiles `first` to `last` of a tile, with the steps on each
of them; a section is outside the k-tiles. Steps acquire, fill, wait for and release the stages of pipelines by name.
All statements about a loop derive from this value: instructions in the PTX text (`written`), instructions, wavefronts
and hardware counters of a launch (`executed`), the limits of a k-tile, the timeline
(`cutegen/plan/kernel/timeline.py`), and the proof that roles and pipelines fit together
(`cutegen/plan/kernel/handshakes.py`). A template writes the loop again in the CuTe DSL; the resulting PTX is checked
against these counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from cutegen.plan.kernel.pipeline import AB, MMA, Pipeline, Role, Sync


class Action(StrEnum):
    """Action of a step: an operation on a pipeline, or work; `load` and `mma` are different instructions in plans.

    A producer acquires a stage, and commits it when it is filled, or before its copies, whose bytes complete it. A
    consumer waits for it and releases it. `tail` waits until all stages are free.
    """

    ACQUIRE = "acquire"
    COMMIT = "commit"
    WAIT = "wait"
    RELEASE = "release"
    TAIL = "tail"
    BARRIER = "bar.sync"
    LOAD = "load"
    FETCH = "cp.async"
    BULK_FETCH = "cp.async.bulk.tensor"
    ASK = "clusterlaunchcontrol.try_cancel"
    GLOBAL_LOAD = "ld.global"
    STORE = "st.shared"
    TO_TMEM = "tcgen05.cp"
    MULTIPLY = "mma"
    MMA_FENCE = "wgmma.fence.sync.aligned"
    MMA_COMMIT = "wgmma.commit_group.sync.aligned"
    MMA_WAIT = "wgmma.wait_group.sync.aligned"
    LOAD_ACCUMULATOR = "load accumulator"
    DRAIN = "drain"
    BULK_STORE = "cp.async.bulk.tensor of C"


FETCHES = frozenset({Action.FETCH, Action.BULK_FETCH, Action.GLOBAL_LOAD})
"""The steps that issue the copies of a k-tile."""
MMA_ORDER = frozenset({Action.MMA_FENCE, Action.MMA_COMMIT, Action.MMA_WAIT})
"""The steps that order asynchronous multiplications; each is one instruction."""
HANDSHAKES = frozenset({Action.ACQUIRE, Action.COMMIT, Action.WAIT, Action.RELEASE, Action.TAIL})
"""The steps on a pipeline's barriers."""
_SPELLED = {
    (Action.WAIT, Sync.COPY_GROUPS): "cp.async.wait_group",
    (Action.COMMIT, Sync.COPY_GROUPS): "cp.async.commit_group",
    (Action.WAIT, Sync.MBARRIER): "mbarrier.try_wait",
    (Action.RELEASE, Sync.MBARRIER): "mbarrier.arrive",
}
"""Instructions of the steps on `ab` that tables and timelines show."""
_READ = {word: action for (action, _), word in _SPELLED.items()}
_ROLES_SHOWN = {MMA: "consumers"}
"""Names of roles in `plan.json`, if they differ."""


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
    """The k-tiles of a turn, or the times of a section, that have a step: all, all but the first, or the last."""

    EVERY = "every"
    LATER = "all but the first"
    LAST = "the last"

    def of(self, copies: int) -> range:
        """Return their numbers, out of `copies`."""
        return {Nth.EVERY: range(copies), Nth.LATER: range(1, copies), Nth.LAST: range(copies - 1, copies)}[self]


class RangeName(StrEnum):
    """A range's place in the loop. The edge turn handles the k-tiles that may cross an edge of the matrices."""

    PROLOGUE = "prologue"
    TURN = "turn"
    EDGE_TURN = "edge turn"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Step:
    """One action on the k-tile `ahead` of the range's own, on one of its k-blocks or on all of it.

    `pending` is the number of groups that a WAIT leaves in flight, of cp.async or of multiplications: its k-tile is the
    last one that has then arrived, or been multiplied. `check` is the bounds check. A step with `below` is skipped for
    k-tiles at or after that mark, and in the copies of its range, or times of its section, that are not the `nth`.
    `pipeline` is that of a handshake; for pipelines of other items than k-tiles, `ahead` counts those.
    """

    action: Action
    ahead: int = 0
    k_block: int | None = None
    pending: int | None = None
    check: Check = Check.NONE
    below: Mark | None = None
    nth: Nth = Nth.EVERY
    pipeline: str = AB


Slot = tuple[Step, ...]
"""The steps between two multiplications, in program order."""


@dataclass(frozen=True, slots=True)
class Range:
    """The slots of one k-tile, run for the k-tiles `first` to `last`; the text holds them `copies` times.

    A range with a `group` is run only by that group of the role; otherwise by all of its threads.
    """

    name: RangeName
    slots: tuple[Slot, ...]
    first: Mark
    last: Mark
    copies: int = 1
    group: int | None = None

    @property
    def steps(self) -> Slot:
        """Every step, in program order."""
        return tuple([step for slot in self.slots for step in slot])


@dataclass(frozen=True, slots=True)
class Section:
    """Steps of a tile outside its k-tiles, run `times` times, once for each sub-tile of C; by one `group`, or all."""

    steps: Slot
    times: int = 1
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Program of a role: `begin` once, `tile` for each of its tiles, then `end`."""

    role: str
    tile: tuple[Range | Section, ...]
    begin: tuple[Section, ...] = ()
    end: tuple[Section, ...] = ()

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The k-tiles of a tile."""
        return tuple([each for each in self.tile if isinstance(each, Range)])

    @property
    def sections(self) -> tuple[Range | Section, ...]:
        """Everything, in program order."""
        return (*self.begin, *self.tile, *self.end)


@dataclass(frozen=True, slots=True)
class Executed:
    """Executions of a step for one tile, in k-tiles: those within K, and those past its end."""

    k_tiles: Fraction
    past_end: Fraction

    @property
    def total(self) -> Fraction:
        """Executions within K and past it."""
        return self.k_tiles + self.past_end

    def __add__(self, other: Executed) -> Executed:
        return Executed(self.k_tiles + other.k_tiles, self.past_end + other.past_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLoop:
    """The programs of all roles, and the pipelines between them; k-tiles of A and B have `stages`.

    Each tile has at least `least_k_tiles` k-tiles, even for an empty K. A `persistent` CTA runs one tile after another.
    A loop that was read from `plan.json` has neither roles nor pipelines, and serves counts.
    """

    stages: int
    k_blocks: int
    programs: tuple[Program, ...]
    roles: tuple[Role, ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    least_k_tiles: int = 0
    persistent: bool = False

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges of all roles."""
        return tuple([each for program in self.programs for each in program.tile if isinstance(each, Range)])

    @property
    def main(self) -> Program:
        """The program of the role that multiplies."""
        return next(
            program
            for program in self.programs
            if any(step.action is Action.MULTIPLY for each in program.ranges for step in each.steps)
        )

    @property
    def storing(self) -> Role:
        """The role that stores C."""
        return self.role(
            next(
                program.role
                for program in self.programs
                if any(step.action is Action.DRAIN for each in program.tile for step in each.steps)
            )
        )

    def fetching(self, fetch: Action) -> Role:
        """The role that issues such copies of k-tiles."""
        return self.role(
            next(
                each.role
                for each in self.programs
                for part in each.ranges
                for step in part.steps
                if step.action is fetch
            )
        )

    def first_thread(self, role: Role) -> int:
        """The first thread of a role in its CTA: roles follow one another."""
        return sum(each.threads for each in self.roles[: self.roles.index(role)])

    def role(self, name: str) -> Role:
        """The role of that name."""
        return next(each for each in self.roles if each.name == name)

    def pipeline(self, name: str) -> Pipeline | None:
        """The pipeline of that name, if there is one."""
        return next((each for each in self.pipelines if each.name == name), None)

    def over_tiles(self) -> KernelLoop:
        """Return the loop of a CTA that runs one tile after another. Where all threads copy, they meet in between."""
        programs = self.programs
        if len(programs) == 1:
            meeting = Section((Step(Action.BARRIER),))
            programs = (replace(programs[0], tile=(*programs[0].tile, meeting)),)
        return replace(self, programs=programs, persistent=True)

    def in_one_place(self) -> KernelLoop:
        """Return the loop whose producer copies all k-tiles in one place, if it does not know its first tile sooner."""
        programs = tuple(
            replace(each, tile=_joined(each))
            if Action.BULK_FETCH in {s.action for r in each.ranges for s in r.steps}
            else each
            for each in self.programs
        )
        return replace(self, programs=programs)

    @property
    def k_tiles_per_turn(self) -> int:
        """K-tiles per turn of the unrolled loop."""
        return max([each.copies for each in self.ranges if each.name is RangeName.TURN])

    def whole(self, k_tiles: int) -> int:
        """Return how many of `k_tiles` run in full turns: they, and the k-tiles that they copy, are inside the
        matrices.
        """
        slots = [slot for each in self.ranges if each.name is RangeName.TURN for slot in each.slots]
        ahead = max([0, *[step.ahead for slot in slots for step in slot if step.action in FETCHES]])
        turn = self.k_tiles_per_turn
        return max(k_tiles - ahead, 0) // turn * turn

    def written(self, opcodes: Callable[[Step], Mapping[str, int]]) -> dict[str, int]:
        """Count each opcode of the k-tiles in the text; `opcodes` are those of a step on a whole k-tile."""
        counts: Counter[str] = Counter()
        for each in self.ranges:
            for step in each.steps:
                for opcode, count in opcodes(step).items():
                    counts[opcode] += _integer(len(step.nth.of(each.copies)) * self._share(step) * count)
        return {opcode: count for opcode, count in counts.items() if count}

    def executed(self, action: Action, k_tiles: int, group: int = 0) -> Executed:
        """Count how often a tile with so many k-tiles executes a step on them, over all ranges.

        For groups that share a tile, count the `group`-th; all have the same count.
        """
        found = Executed(Fraction(0), Fraction(0))
        for each in self.ranges:
            if each.group not in (None, group):
                continue
            for step in each.steps:
                if step.action is action:
                    found += self._times(each, step, k_tiles)
        return found

    def instruction(self, step: Step) -> str | None:
        """Return what tables and timelines call a step on k-tiles; None for a handshake that they leave out."""
        if step.action not in HANDSHAKES:
            return step.action.value
        pipeline = self.pipeline(step.pipeline)
        if pipeline is None or step.pipeline != AB:
            return None
        barrier = pipeline.empty if step.action in (Action.ACQUIRE, Action.RELEASE) else pipeline.full
        return None if barrier is None else _SPELLED.get((step.action, barrier.sync))

    def to_json(self) -> dict[str, Any]:
        """Return the k-tiles of a tile as plain tables, which `from_json` reads: `loop` in `plan.json`.

        It leaves out sections, and handshakes that it has no word for.
        """
        ab = self.pipeline(AB)
        edges = () if ab is None or ab.full.sync is not Sync.MBARRIER else tuple(ab.barriers.items())
        return {
            "stages": self.stages,
            "k_blocks": self.k_blocks,
            "roles": [
                {"name": _shown(each.role), "parts": [self._range_table(part) for part in each.ranges]}
                for each in self.programs
                if each.ranges
            ],
            "edges": [
                {
                    "name": name,
                    "source": _shown(barrier.arrivals[0].role),
                    "target": _shown((ab.consumers if name == "full" else ab.producers)[0]),
                    "credits": barrier.credits,
                }
                for name, barrier in edges
                if ab is not None
            ],
            "least_k_tiles": self.least_k_tiles,
            "persistent": self.persistent,
        }

    def _range_table(self, each: Range) -> dict[str, Any]:
        slots = [[(step, self.instruction(step)) for step in slot] for slot in each.slots]
        return {
            "name": each.name,
            "slots": [[_step_table(step, word) for step, word in slot if word is not None] for slot in slots],
            "first": each.first,
            "last": each.last,
            "copies": each.copies,
            "group": each.group,
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> KernelLoop:
        """Read what `to_json` wrote, for counts. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            stages=table["stages"],
            k_blocks=table["k_blocks"],
            programs=tuple(Program(role["name"], tuple(map(_range, role["parts"]))) for role in table["roles"]),
            least_k_tiles=table["least_k_tiles"],
            persistent=table["persistent"],
        )

    def _times(self, each: Range, step: Step, k_tiles: int) -> Executed:
        """Count how often a range executes `step`, if all k-tiles lie inside the matrices.

        A k-tile that runs although K has none counts as past the end.

        Otherwise edge turns run some k-tiles of the full turns, and the sum over the ranges is unchanged.
        """
        taken = max(k_tiles, self.least_k_tiles)
        marks = (taken, self.whole(taken), self.stages)
        first, stop = each.first.of(*marks) + step.ahead, each.last.of(*marks) + step.ahead
        if step.below is not None:
            stop = min(stop, step.below.of(*marks))
        touched = [range(first + copy, stop, each.copies) for copy in step.nth.of(each.copies)]
        total = sum(map(len, touched))
        inside, share = sum(len(range(x.start, min(x.stop, k_tiles), x.step)) for x in touched), self._share(step)
        return Executed(share * inside, share * (total - inside))

    def _share(self, step: Step) -> Fraction:
        """Return the step's fraction of a k-tile: a k-block is one of `k_blocks`."""
        return Fraction(1) if step.k_block is None else Fraction(1, self.k_blocks)


def _shown(role: str) -> str:
    return _ROLES_SHOWN.get(role, role)


def _step_table(step: Step, word: str) -> dict[str, Any]:
    return {
        "action": word,
        "ahead": step.ahead,
        "k_block": step.k_block,
        "pending": step.pending,
        "check": step.check,
        "below": step.below,
        "nth": step.nth,
    }


def _range(table: Mapping[str, Any]) -> Range:
    slots = tuple(tuple(map(_step, slot)) for slot in table["slots"])
    first, last = Mark(table["first"]), Mark(table["last"])
    return Range(RangeName(table["name"]), slots, first, last, table["copies"], table["group"])


def _step(table: Mapping[str, Any]) -> Step:
    word = table["action"]
    below = None if table["below"] is None else Mark(table["below"])
    names = {"action": _READ.get(word) or Action(word), "check": Check(table["check"]), "nth": Nth(table["nth"])}
    return Step(**{**table, **names, "below": below})


def _joined(program: Program) -> tuple[Range | Section, ...]:
    """Return a producer's tile with the first k-tile in the range of the others, where it may be already."""
    first, *others = program.tile
    assert isinstance(first, Range)
    if first.name is not RangeName.PROLOGUE:
        return program.tile
    assert isinstance(others[0], Range)
    return (replace(others[0], first=first.first), *others[1:])


def _integer(count: Fraction) -> int:
    assert count.denominator == 1, f"{count} of an instruction"
    return int(count)
