"""Accesses to tensor memory: the words that they concern, their order, and for each word who wrote and read it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.vector_clock import Clock
from cutegen.ptx.watch.violations import Monitor, ViolationKind

# Words of tensor memory that an access concerns.
#
# Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Tensor Memory Addressing".


LANES, COLUMNS = 128, 512
Index: TypeAlias = slice | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Words of tensor memory, as an index of lanes and one of columns, which go together."""

    lanes: Index
    columns: Index

    @property
    def index(self) -> tuple[Index, Index]:
        """The index of an array (128, 512)."""
        return self.lanes, self.columns

    def column_range(self) -> tuple[int, int]:
        """The first column, and the one after the last."""
        if isinstance(self.columns, slice):
            return self.columns.start, self.columns.stop
        return int(self.columns.min()), int(self.columns.max()) + 1

    def place_of(self, position: tuple[int, ...]) -> tuple[int, int]:
        """The lane and the column of an element of what the index gives."""
        if isinstance(self.lanes, slice) and isinstance(self.columns, slice):
            return self.lanes.start + position[0], self.columns.start + position[1]
        if isinstance(self.lanes, slice) or isinstance(self.columns, slice):
            row = self.lanes.start + position[0] if isinstance(self.lanes, slice) else int(self.lanes[position[0]])
            column = self.columns
            return row, column.start + position[1] if isinstance(column, slice) else int(column[position[1]])
        lanes, columns = np.broadcast_arrays(self.lanes, self.columns)
        return int(lanes[position]), int(columns[position])


# Order of accesses to tensor memory: by waits for loads and stores, by commits, and by the issue of pipelined pairs.
#
# Every access belongs to an agent of `Ordering`: the loads of a warp, its stores, or the pipe of a thread, which takes
# its `mma`, `cp` and `shift`. `tcgen05.wait::ld` and `::st` make the warp know of its agent, a phase that a
# `tcgen05.commit` completed makes a thread know of a pipe; barriers and mbarriers pass that knowledge on, like any
# other. Accesses that PTX pipelines need no completion, only issue in order.
#
# Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Memory Consistency Model", "Pipelined
# Instructions". What production kernels rely on instead is a convention: a load is over when each of its registers has
# been used, `mma`, `cp` and stores of one thread execute in the order of their issue, and fences are left out.


class Way(Enum):
    """The instruction of an access to tensor memory."""

    ALLOC = "tcgen05.alloc"
    DEALLOC = "tcgen05.dealloc"
    LOAD = "tcgen05.ld"
    STORE = "tcgen05.st"
    MMA = "tcgen05.mma"
    COPY = "tcgen05.cp"
    SHIFT = "tcgen05.shift"


PIPED = frozenset({Way.MMA, Way.COPY, Way.SHIFT})
_PIPELINED = frozenset({(Way.COPY, Way.MMA), (Way.SHIFT, Way.MMA), (Way.MMA, Way.SHIFT)})
"""Pairs that execute in the order of their issue; two `mma` do if their accumulators are the same."""
_IN_ORDER = frozenset({(Way.MMA, Way.MMA, "overwrites"), (Way.MMA, Way.COPY, "overwrites")})
"""Pairs that overwrite what the first reads, which kernels issue without a wait."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorAccess:
    """An access of `thread` of `warp` in `tick`, performed by `agent`; `accumulator`: the shape and place of a D."""

    warp: Actor
    thread: int
    site: int
    agent: int
    tick: int
    way: Way
    accumulator: tuple[object, ...] | None = None


@dataclass(slots=True)
class _Agents:
    """The agents of a warp: `used` are its loads of which all registers were used, `fences` its fences."""

    loads: int
    used: int
    stores: int
    fences: int


@dataclass(slots=True)
class TensorOrder:
    """The agents of one cluster's accesses to tensor memory."""

    ordering: Ordering
    monitor: Monitor
    _agents: dict[int, _Agents] = field(default_factory=dict)
    _pipes: dict[int, int] = field(default_factory=dict)
    _fenced_after: dict[int, Clock] = field(default_factory=dict)

    def access(self, warp: Actor, site: int, way: Way, accumulator: tuple[object, ...] | None = None) -> TensorAccess:
        """An access that the first active thread of `warp` issues now."""
        thread = int(warp.threads()[0])
        if way in PIPED:
            agent = self.pipe_of(thread)
        elif way in (Way.LOAD, Way.STORE):
            agents = self._of(warp)
            agent = agents.loads if way is Way.LOAD else agents.stores
        else:
            agent = warp.index
        found = TensorAccess(
            warp=warp, thread=thread, site=site, agent=agent, tick=self.ordering.tick, way=way, accumulator=accumulator
        )
        self.ordering.tick += 1
        return found

    def pipe_of(self, thread: int) -> int:
        """The agent of the `mma`, `cp` and `shift` of `thread`."""
        if thread not in self._pipes:
            self._pipes[thread] = self._new_agent()
        return self._pipes[thread]

    def wait(self, warp: Actor, way: Way) -> None:
        """`tcgen05.wait::ld` or `::st`: all earlier loads or stores of `warp` are complete."""
        agents = self._of(warp)
        for agent in (agents.loads, agents.used) if way is Way.LOAD else (agents.stores,):
            self._learn(warp, agent, self.ordering.tick)

    def use(self, warp: Actor, tick: int) -> None:
        """All registers of the loads of `warp` up to `tick` have been used."""
        self._learn(warp, self._of(warp).used, tick)

    def fence_before(self, warp: Actor) -> None:
        """`tcgen05.fence::before_thread_sync`."""
        self._learn(warp, self._of(warp).fences, self.ordering.tick)

    def fence_after(self, warp: Actor) -> None:
        """`tcgen05.fence::after_thread_sync`."""
        threads = warp.threads()
        agents = np.broadcast_to(np.arange(self.ordering.agents), (len(threads), self.ordering.agents))
        known = self.ordering.knows(warp.index, threads, agents)
        for row, thread in zip(np.atleast_2d(known), threads.tolist(), strict=False):
            self._fenced_after[thread] = row

    def conflict(self, earlier: TensorAccess, later: TensorAccess, verb: str) -> tuple[ViolationKind, str] | None:
        """The violation if `later` is not ordered after `earlier`; it `reads` or `overwrites` the same words."""
        if self._knows(later, earlier.agent, earlier.tick):
            return self._missing_fence(earlier, later)
        issued = earlier.agent == later.agent or (
            {earlier.way, later.way} <= PIPED and self._knows(later, earlier.warp.index, earlier.tick)
        )
        if issued:
            return self._after_issue(earlier, later, verb)
        if earlier.way is Way.LOAD and self._knows(later, self._of(earlier.warp).used, earlier.tick):
            message = f"no tcgen05.wait::ld after {self._name(earlier)}, whose registers were all used before"
            return ViolationKind.CONVENTION, f"{message}: {later.way.value} {verb} what it has read"
        return self._too_early(earlier, verb)

    def who(self, access: TensorAccess) -> str:
        """The thread, or the warp, of an access."""
        if access.way in PIPED:
            return self.ordering.who(access.thread)
        return self.ordering.who_of_warp(access.warp.index)

    def _of(self, warp: Actor) -> _Agents:
        if warp.index not in self._agents:
            self._agents[warp.index] = _Agents(*(self._new_agent() for _ in range(4)))
        return self._agents[warp.index]

    def _new_agent(self) -> int:
        """An agent whose accesses, from the next tick on, nobody knows of."""
        agent = self.ordering.add_agent()
        self.ordering.tick += 1
        return agent

    def _learn(self, warp: Actor, agent: int, tick: int) -> None:
        self.ordering.learn_of_agent(warp.index, agent, tick)
        self.ordering.tick += 1

    def _knows(self, later: TensorAccess, agent: int, tick: int) -> bool:
        threads: npt.NDArray[np.int64] = np.array([later.thread])
        return int(self.ordering.knows(later.warp.index, threads, np.array([agent]))[0]) >= tick

    def _name(self, access: TensorAccess) -> str:
        return f"the {access.way.value} of {self.who(access)} ({self.monitor.describe(access.site)})"

    def _after_issue(self, earlier: TensorAccess, later: TensorAccess, verb: str) -> tuple[ViolationKind, str] | None:
        """Two accesses that are issued in this order, by one thread or by two that have synchronized."""
        same_accumulator = earlier.accumulator is not None and earlier.accumulator == later.accumulator
        if same_accumulator or (earlier.way, later.way) in _PIPELINED:
            return None if earlier.agent == later.agent else self._missing_fence(earlier, later)
        over_reads = earlier.accumulator is None and (earlier.way, later.way, verb) in _IN_ORDER
        if over_reads or earlier.way is later.way is Way.STORE or earlier.way is later.way is Way.COPY:
            message = f"{later.way.value} {verb} words of {self._name(earlier)}, which is issued before"
            return ViolationKind.CONVENTION, f"{message} it and not waited for"
        return self._too_early(earlier, verb)

    def _too_early(self, earlier: TensorAccess, verb: str) -> tuple[ViolationKind, str]:
        name = self._name(earlier)
        if earlier.way in PIPED:
            did = "write or read" if verb == "overwrites" else "write"
            message = f"tensor memory that {name} may still {did}: no wait for a tcgen05.commit after it comes before"
            return ViolationKind.ASYNC_MMA, f"{verb} {message}"
        if earlier.way is Way.LOAD:
            message = f"tensor memory that {name} may still read: no tcgen05.wait::ld, and order after it, comes before"
            return ViolationKind.TENSOR_MEMORY, f"{verb} {message}"
        if earlier.way is Way.STORE:
            message = f"tensor memory that {name} may still write: no tcgen05.wait::st, and order after it, comes"
            return ViolationKind.TENSOR_MEMORY, f"{verb} {message} before"
        return ViolationKind.RACE, f"{verb} tensor memory without order after {name}"

    def _missing_fence(self, earlier: TensorAccess, later: TensorAccess) -> tuple[ViolationKind, str] | None:
        """The fences that PTX wants between threads that have synchronized."""
        if earlier.way in (Way.ALLOC, Way.DEALLOC) or later.way is Way.DEALLOC:
            return None
        between_warps = earlier.warp.index != later.warp.index
        piped = earlier.way in PIPED
        if not piped and not between_warps:
            return None
        both_piped = piped and later.way in PIPED
        if (
            (not piped or (both_piped and between_warps))
            and not self._knows(later, self._of(earlier.warp).fences, earlier.tick)
            and not (both_piped and self._knows(later, earlier.agent, earlier.tick))
        ):
            message = f"no tcgen05.fence::before_thread_sync between {self._name(earlier)} and the arrival after it"
            return ViolationKind.CONVENTION, f"{message}, before this {later.way.value}"
        clock = self._fenced_after.get(later.thread)
        agent = earlier.agent if self._knows(later, earlier.agent, earlier.tick) else earlier.warp.index
        if clock is None or agent >= len(clock) or clock[agent] < earlier.tick:
            message = f"no tcgen05.fence::after_thread_sync between the wait for {self._name(earlier)}"
            return ViolationKind.CONVENTION, f"{message} and this {later.way.value}"
        return None


# Shadow of a CTA's tensor memory: for each word who allocated it, who wrote it last, and who has read it since.
#
# A word holds the number of an access; what orders two of them is in `tensor_order`. Words that nobody has written
# since their allocation are undefined.


Numbers = npt.NDArray[np.int32]


class TensorShadow:
    """The shadow of one CTA's tensor memory."""

    def __init__(self, order: TensorOrder) -> None:
        self._order = order
        self._accesses: list[TensorAccess] = []
        self._owners = np.zeros(COLUMNS, np.int32)
        """Per column the number of the `tcgen05.alloc`, or 0."""
        self._freed_by_peer = np.zeros(COLUMNS, np.int32)
        """Per column the number of the `tcgen05.dealloc` of the other CTA of the pair, or 0."""
        self._writers = np.zeros((LANES, COLUMNS), np.int32)
        self._readers: dict[int, Numbers] = {}

    def allocate(self, access: TensorAccess, columns: slice) -> None:
        """The columns belong to the CTA now, undefined."""
        self._owners[columns] = self._number(access)

    def free(self, access: TensorAccess, columns: slice) -> None:
        """The columns are given back: no access to them may be under way."""
        self._check_free(access, columns)
        self._owners[columns] = self._freed_by_peer[columns] = 0
        self._writers[:, columns] = 0
        for numbers in self._readers.values():
            numbers[:, columns] = 0

    def free_by_peer(self, access: TensorAccess, columns: slice) -> None:
        """The other CTA of the pair gives its columns back: no access to this CTA's may be under way, or follow."""
        self._check_free(access, columns)
        self._freed_by_peer[columns] = self._number(access)

    def _check_free(self, access: TensorAccess, columns: slice) -> None:
        region = Region(slice(0, LANES), columns)
        self._check_writers(access, region, "frees")
        self._check_readers(access, region, "frees")

    def read(self, access: TensorAccess, region: Region, *, also_written: bool = False) -> None:
        """Checks and records a read; `also_written`: the access also writes the words, which counts for both."""
        if not self._check_owned(access, region):
            return
        if int(self._writers[region.index].min()) == 0:
            position = np.unravel_index(int(np.argmin(self._writers[region.index])), self._writers[region.index].shape)
            message = f"{access.way.value} reads tensor memory that was never written since its allocation"
            self._report(ViolationKind.UNINITIALIZED, access, region, tuple(map(int, position)), message)
        self._check_writers(access, region, "reads")
        if not also_written:
            self._readers_of(access.agent)[region.index] = self._number(access)

    def write(self, access: TensorAccess, region: Region) -> None:
        """Checks and records a write."""
        if not self._check_owned(access, region):
            return
        self._check_writers(access, region, "overwrites")
        self._check_readers(access, region, "overwrites")
        self._writers[region.index] = self._number(access)
        for numbers in self._readers.values():
            numbers[region.index] = 0

    def _number(self, access: TensorAccess) -> int:
        if not self._accesses or self._accesses[-1] is not access:
            self._accesses.append(access)
        return len(self._accesses)

    def _readers_of(self, agent: int) -> Numbers:
        if agent not in self._readers:
            self._readers[agent] = np.zeros((LANES, COLUMNS), np.int32)
        return self._readers[agent]

    def _check_owned(self, access: TensorAccess, region: Region) -> bool:
        first, last = region.column_range()
        owners = self._owners[first:last]
        if not owners.all():
            column = first + int(np.argmin(owners))
            message = f"{access.way.value} accesses columns {first} to {last - 1} of tensor memory; column {column}"
            access.warp.cta.fault(
                ViolationKind.OUT_OF_BOUNDS, access.site, access.thread, f"{message} is not allocated", column
            )
            return False
        freed = int(self._freed_by_peer[first:last].max())
        if freed:
            earlier = self._accesses[freed - 1]
            message = f"{access.way.value} accesses columns that the other CTA of its pair has freed"
            message += f" ({earlier.warp.cta.describe(earlier.site)}): the pair frees them together"
            access.warp.cta.fault(ViolationKind.TENSOR_MEMORY, access.site, access.thread, message, first)
        for number in np.unique(owners).tolist():
            # The CTAs of a pair allocate together: the columns of the other one are there if one's own are.
            if self._accesses[number - 1].warp.cta is access.warp.cta:
                self._compare(number, access, "accesses", region, (0, 0))
        return True

    def _check_writers(self, access: TensorAccess, region: Region, verb: str) -> None:
        self._check(self._writers[region.index], access, region, verb)

    def _check_readers(self, access: TensorAccess, region: Region, verb: str) -> None:
        for numbers in self._readers.values():
            self._check(numbers[region.index], access, region, verb)

    def _check(self, numbers: Numbers, access: TensorAccess, region: Region, verb: str) -> None:
        last = int(numbers.max())
        if last == 0:
            return
        found = [last] if int(numbers.min()) == last else np.unique(numbers[numbers > 0]).tolist()
        for number in reversed(found):
            position = tuple(int(i) for i in np.argwhere(numbers == number)[0]) if len(found) > 1 else (0,) * 2
            if self._compare(number, access, verb, region, position):
                return

    def _compare(self, number: int, access: TensorAccess, verb: str, region: Region, position: tuple[int, ...]) -> bool:
        """Reports an access that is not ordered after access `number`; True if there was one."""
        earlier = self._accesses[number - 1]
        if earlier is access:
            return False
        conflict = self._order.conflict(earlier, access, verb)
        if conflict is not None:
            self._report(conflict[0], access, region, position, conflict[1])
        return conflict is not None

    def _report(
        self, kind: ViolationKind, access: TensorAccess, region: Region, position: tuple[int, ...], message: str
    ) -> None:
        lane, column = region.place_of(position)
        access.warp.cta.fault(kind, access.site, access.thread, message, lane << 16 | column)
