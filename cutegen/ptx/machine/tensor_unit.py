"""The tensor memories of a cluster, and the operations on them that are in flight: `mma`, `cp`, `shift` and `commit`.

Operations execute in the order of their issue, at once or as late as their `tcgen05.commit` allows, as the policy says;
a commit arrives at its mbarriers when all earlier operations of its thread are complete. What other threads may access
meanwhile does not depend on it (`tensor_order`).

Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Memory Consistency Model", `tcgen05.commit`,
`tcgen05.alloc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cutegen.ptx.machine.mbarriers import Mbarrier
from cutegen.ptx.machine.policy import Schedule
from cutegen.ptx.machine.tensor_memory import TensorMemory, choose_columns
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.tensor_order import TensorOrder, Way
from cutegen.ptx.watch.vector_clock import ReleasedKnowledge
from cutegen.ptx.watch.violations import ViolationKind

if TYPE_CHECKING:
    from cutegen.ptx.machine.cta import Cta

Target: TypeAlias = "tuple[Cta, Mbarrier]"


@dataclass(slots=True, kw_only=True, eq=False)
class _Commit:
    """A commit in flight of `warp`: it arrives at `targets` when the first `operations` have been executed."""

    warp: Warp
    site: int
    thread: int
    agent: int
    operations: int
    targets: list[Target]
    told: ReleasedKnowledge


@dataclass(slots=True, eq=False)
class _Pair:
    """Two CTAs that allocate together: the warp of one that waits for the other's; `phase` counts what they did."""

    phase: int = 0
    asked: dict[int, tuple[int, Warp, int]] = field(default_factory=dict)
    """Columns that a CTA's warp asks for, the warp, and the instruction, by rank."""
    given: dict[int, int] = field(default_factory=dict)
    """First of the columns that a CTA's warp has received, by rank."""

    def awaited(self) -> str:
        """Name of the object, for messages."""
        return f"the other CTA of its pair to execute tcgen05.alloc.cta_group::2 (CTA {next(iter(self.asked), 0)} has)"


@dataclass(slots=True)
class TensorUnit:
    """The tensor memories of one cluster's CTAs, by rank, and their operations in flight."""

    order: TensorOrder
    group: tuple[int, int] | None = None
    """The CTAs of a group, 1 or 2, and the instruction that first said so: all others must agree."""
    _memories: dict[int, TensorMemory] = field(default_factory=dict)
    _operations: list[Callable[[], None]] = field(default_factory=list)
    _executed: int = 0
    _commits: list[_Commit] = field(default_factory=list)
    _pairs: dict[int, _Pair] = field(default_factory=dict)

    def memory(self, rank: int) -> TensorMemory:
        """The tensor memory of the CTA of `rank`."""
        if rank not in self._memories:
            self._memories[rank] = TensorMemory(self.order)
        return self._memories[rank]

    def group_of(self, warp: Warp, site: int, ctas: int) -> list[Cta]:
        """The CTAs that an instruction of `warp` with `.cta_group::ctas` concerns: its own, or the pair's."""
        self.check_group(warp, site, ctas)
        if ctas == 1:
            return [warp.cta]
        cluster, even = warp.cta.cluster, warp.cta.rank & ~1
        return [cluster.peer(warp, site, int(warp.threads()[0]), rank, 0) for rank in (even, even + 1)]

    def check_group(self, warp: Warp, site: int, ctas: int) -> None:
        """All instructions of a kernel have one `.cta_group`, and a pair has two CTAs."""
        thread = int(warp.threads()[0])
        if self.group is None:
            self.group = ctas, site
        elif self.group[0] != ctas:
            message = f".cta_group::{ctas} here and .cta_group::{self.group[0]} at {warp.cta.describe(self.group[1])}"
            warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, thread, f"{message}: a kernel has one", always=True)
        rank, size = warp.cta.rank, len(warp.cta.cluster.ctas)
        if ctas == 2 and rank | 1 >= size:
            message = f".cta_group::2 in CTA {rank} of a cluster of {size}, which has no peer"
            warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, thread, message, always=True)

    def allocate(self, warp: Warp, site: int, count: int, ctas: int) -> int | TensorMemory | _Pair:
        """`tcgen05.alloc` of a warp: the first column, or what it must wait for."""
        members = self.group_of(warp, site, ctas)
        memory = self.memory(warp.cta.rank)
        if memory.has_relinquished:
            message = "tcgen05.alloc after a tcgen05.relinquish_alloc_permit of its CTA"
            warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, int(warp.threads()[0]), message, always=True)
        if ctas == 1:
            first = choose_columns([memory], count, warp.cta.schedule)
            if first is None:
                return memory
            memory.allocate(self.order.access(warp, site, Way.ALLOC), first, count)
            return first
        return self._allocate_together(warp, site, count, members)

    def _allocate_together(self, warp: Warp, site: int, count: int, members: list[Cta]) -> int | TensorMemory | _Pair:
        rank, ranks = warp.cta.rank, [cta.rank for cta in members]
        pair = self._pairs.setdefault(ranks[0], _Pair())
        if rank not in pair.given:
            pair.asked[rank] = count, warp, site
            if len(pair.asked) < len(ranks):
                return pair
            counts = [n for n, _, _ in pair.asked.values()]
            if len(set(counts)) > 1:
                message = f"the CTAs of a pair allocate {' and '.join(map(str, counts))} columns"
                warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, int(warp.threads()[0]), message, always=True)
            first = choose_columns([self.memory(each) for each in ranks], count, members[0].schedule)
            if first is None:
                return self.memory(rank)
            for each, (_, asking, place) in pair.asked.items():
                self.memory(each).allocate(self.order.access(asking, place, Way.ALLOC), first, count)
            pair.given, pair.asked = dict.fromkeys(ranks, first), {}
            pair.phase += 1
        return pair.given.pop(rank)

    def issue(self, operation: Callable[[], None], schedule: Schedule) -> None:
        """An operation is in flight."""
        self._operations.append(operation)
        if schedule.lands_at_once():
            self._execute(len(self._operations))

    def commit(self, warp: Warp, site: int, targets: list[Target]) -> None:
        """`tcgen05.commit` of the only active lane of `warp`, to mbarriers of some CTAs."""
        thread = int(warp.threads()[0])
        ordering, agent = self.order.ordering, self.order.pipe_of(thread)
        commit = _Commit(
            warp=warp,
            site=site,
            thread=thread,
            agent=agent,
            operations=len(self._operations),
            targets=targets,
            told=ordering.committed(thread, agent),
        )
        for cta, barrier in targets:
            if cta is not warp.cta:
                cta.remote_smem_accesses.arrival(warp, site, thread, barrier.address, ordering.tick)
        ordering.tick += 1
        self._commits.append(commit)
        if warp.cta.schedule.lands_at_once():
            self._arrive(commit)

    def land_some(self, schedule: Schedule) -> None:
        """The commits that the policy chooses arrive, and with each the earlier ones of its thread."""
        for commit in list(self._commits):
            if commit in self._commits and schedule.lands_now():
                for earlier in [each for each in self._commits if each.thread == commit.thread]:
                    self._arrive(earlier)
                    if earlier is commit:
                        break

    def land_newest(self) -> bool:
        """The first commit in flight of the thread that has committed last arrives; False if none is in flight."""
        if not self._commits:
            return False
        thread = self._commits[-1].thread
        self._arrive(next(commit for commit in self._commits if commit.thread == thread))
        return True

    def finish(self, cta: Cta) -> None:
        """A CTA ends: its columns must have been freed."""
        memory = self._memories.get(cta.rank)
        for first, (count, access) in memory.allocations.items() if memory is not None else ():
            message = f"the CTA ends and has not freed columns {first} to {first + count - 1} of tensor memory"
            cta.fault(ViolationKind.TENSOR_MEMORY, access.site, access.thread, message)

    def _execute(self, count: int) -> None:
        """Executes the first `count` operations, in the order of their issue."""
        while self._executed < count:
            operation, self._executed = self._operations[self._executed], self._executed + 1
            operation()
            self._operations[self._executed - 1] = _done

    def _arrive(self, commit: _Commit) -> None:
        self._commits.remove(commit)
        self._execute(commit.operations)
        for cta, barrier in commit.targets:
            cta.mbarriers.arrive(
                commit.warp, commit.site, commit.thread, barrier, 1, commit.told, own_agent=commit.agent
            )


def _done() -> None:
    """Stands for an operation that has been executed."""
