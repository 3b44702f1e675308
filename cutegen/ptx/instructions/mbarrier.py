"""`mbarrier`: making one, arriving at it, expecting bytes, and waiting for a phase.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier". A wait has its own basic block;
the rest are ordinary steps. The state that an arrival returns holds the phase and the pending count.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutegen.ptx.machine.blocks import End, executing
from cutegen.ptx.machine.grid import CTA_WINDOW_BYTES
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Predicate, Step, count_operands
from cutegen.ptx.machine.mbarriers import Mbarrier
from cutegen.ptx.machine.memory import Addresses
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.spaces import to_shared
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.syntax import Immediate, Instruction, Sink, scalar_type
from cutegen.ptx.watch.actor import Agent, Proxy
from cutegen.ptx.watch.violations import ViolationKind

_U32, _B64, _PRED = scalar_type("u32"), scalar_type("b64"), scalar_type("pred")
_PENDING_BITS = 20
_PENDING_MASK = (1 << _PENDING_BITS) - 1


@dataclass(frozen=True, slots=True)
class _Manner:
    """Order of an operation, and whether its scope reaches beyond the CTA."""

    relaxed: bool
    reaches_cluster: bool


def _take_place(modifiers: Modifiers, *orders: str, remote: bool = False) -> _Manner:
    """Takes order, scope, space and type off; `remote`: the mbarrier may belong to another CTA."""
    order = modifiers.one_of(*orders, "relaxed")
    scope = modifiers.one_of("cta", "cluster")
    modifiers.flag("shared", "shared::cta", *(("shared::cluster",) if remote else ()))
    modifiers.need("b64")
    modifiers.finish()
    return _Manner(order == "relaxed", scope == "cluster")


def _address(context: Lowering, instruction: Instruction, index: int) -> Callable[[Warp], Addresses]:
    """The shared addresses of the active lanes' mbarriers; generic addresses are converted."""
    base, offset = context.address(instruction, instruction.operands[index])
    context.access(instruction, "shared", 8)

    return lambda warp: to_shared(warp.addresses(base, offset))


def lower_mbarrier(context: Lowering, instruction: Instruction) -> Step:
    """Every `mbarrier` instruction except the waits."""
    modifiers, name = Modifiers(instruction), instruction.parts[1] if len(instruction.parts) > 1 else ""
    if name not in _FAMILY:
        raise instruction.error(f"expected mbarrier.{', .'.join(_FAMILY)}, .test_wait or .try_wait")
    modifiers.flag(name)
    return _FAMILY[name](context, instruction, modifiers)


def _lanes(warp: Warp, addresses: Callable[[Warp], Addresses], cell: int) -> list[tuple[int, int, int]]:
    """(thread, address, value of the cell) of each active lane."""
    values = warp.cells[cell][warp.mask].tolist()
    return list(zip(warp.threads().tolist(), addresses(warp).tolist(), values, strict=True))


def _lower_init(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    count_operands(instruction, 2)
    _take_place(modifiers)
    addresses, count = _address(context, instruction, 0), context.source(instruction, instruction.operands[1], _U32)
    site = context.site

    def step(warp: Warp) -> None:
        for thread, address, expected in _lanes(warp, addresses, count):
            warp.cta.mbarriers.make(warp, site, thread, address, expected)

    return step


def _lower_inval(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    count_operands(instruction, 1)
    _take_place(modifiers)
    addresses, site = _address(context, instruction, 0), context.site

    def step(warp: Warp) -> None:
        for thread, address in zip(warp.threads().tolist(), addresses(warp).tolist(), strict=True):
            warp.cta.mbarriers.unmake(warp, site, thread, address)

    return step


def _lower_expect(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    count_operands(instruction, 2)
    _take_place(modifiers, remote=True)
    addresses, size = _address(context, instruction, 0), context.source(instruction, instruction.operands[1], _U32)
    site = context.site

    def step(warp: Warp) -> None:
        for thread, address, size_bytes in _lanes(warp, addresses, size):
            cta, local = warp.cta.cluster.at(warp, site, thread, address)
            cta.mbarriers.expect(warp, site, thread, cta.mbarriers.at(warp, site, [thread], local), size_bytes)
            if cta is not warp.cta:
                cta.remote_smem_accesses.access(warp, site, thread, local)

    return step


def _lower_pending_count(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    count_operands(instruction, 2)
    modifiers.need("b64")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], _U32)
    state = context.source(instruction, instruction.operands[1], _B64)
    return lambda warp: warp.put(target, (warp.cells[state] & np.uint64(_PENDING_MASK)).astype(np.uint32))


def _lower_arrive(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`mbarrier.arrive{_drop}{.expect_tx} state, [a]{, n}`: n arrivals, or one arrival and n bytes."""
    expects, drops = modifiers.flag("expect_tx"), instruction.parts[1] == "arrive_drop"
    count_operands(instruction, *((3,) if expects else (2, 3)))
    is_remote = modifiers.has("shared::cluster")
    manner = _take_place(modifiers, "release", remote=True)
    state = instruction.operands[0]
    if is_remote and not isinstance(state, Sink):
        raise instruction.error("an arrival in .shared::cluster gives no state; write _")
    target = None if isinstance(state, Sink) else context.target(instruction, state, _B64)
    addresses = _address(context, instruction, 1)
    number = instruction.operands[2] if len(instruction.operands) == 3 else Immediate(1)
    numbers, site = context.source(instruction, number, _U32), context.site

    def step(warp: Warp) -> None:
        ordering, states = warp.cta.ordering, []
        tick = ordering.tick
        told = ordering.arrive_relaxed(warp) if manner.relaxed else ordering.arrive(warp)
        for thread, address, given in _lanes(warp, addresses, numbers):
            cta, local = warp.cta.cluster.at(warp, site, thread, address)
            mbarriers = cta.mbarriers
            barrier = mbarriers.at(warp, site, [thread], local)
            passed = told
            if cta is not warp.cta:
                _note_visit(warp, site, thread, barrier, manner)
                passed = barrier.visited(told, reaches_cluster=manner.reaches_cluster)
                cta.remote_smem_accesses.arrival(warp, site, thread, local, tick)
            states.append(barrier.phase << _PENDING_BITS | barrier.pending)
            if expects:
                mbarriers.expect(warp, site, thread, barrier, given)
            if drops:
                mbarriers.drop(warp, site, thread, barrier, 1 if expects else given)
            mbarriers.arrive(warp, site, thread, barrier, 1 if expects else given, passed)
        if target is not None:
            warp.put_active(target, np.array(states, np.uint64))

    return step


def _note_visit(warp: Warp, site: int, thread: int, barrier: Mbarrier, manner: _Manner) -> None:
    """`thread` arrives at an mbarrier of another CTA."""
    if not manner.reaches_cluster and not manner.relaxed:
        message = "a release at scope cta to another CTA of the cluster: it takes .release.cluster"
        warp.cta.fault(ViolationKind.CONVENTION, site, thread, message, barrier.address)


_FAMILY: dict[str, Callable[[Lowering, Instruction, Modifiers], Step]] = {
    "init": _lower_init,
    "inval": _lower_inval,
    "expect_tx": _lower_expect,
    "arrive": _lower_arrive,
    "arrive_drop": _lower_arrive,
    "pending_count": _lower_pending_count,
}


def _wait(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    """The end of a block with `mbarrier.test_wait` or `.try_wait`.

    Operands: `p, [a], state`, or with `.parity` `p, [a], parity`, and a time hint. It returns false the first time, so
    that a program that ignores the result goes wrong, unless everything that the phase needs is ordered before it. When
    repeated, it waits: it is executed again after the phase has changed. It still returns false if the policy says so,
    or if nothing else can make progress.
    """
    modifiers = Modifiers(instruction)
    modifiers.flag("test_wait", "try_wait")
    by_parity = modifiers.flag("parity")
    count_operands(instruction, *((3, 4) if "try_wait" in instruction.parts else (3,)))
    manner = _take_place(modifiers, "acquire")
    target = context.target(instruction, instruction.operands[0], _PRED)
    addresses = _address(context, instruction, 1)
    wanted = context.source(instruction, instruction.operands[2], _U32 if by_parity else _B64)
    site = context.site
    look = _Look(site, by_parity, manner)

    def wait(warp: Warp, path: Path) -> Mbarrier | None:
        with warp.narrowed(executing(warp, predicate)):
            over, blocking = look.at(warp, _lanes(warp, addresses, wanted))
            refuses = blocking is not None and (
                site not in warp.refused or warp.gives_up or not warp.cta.schedule.is_patient()
            )
            if blocking is not None and not refuses:
                return blocking
            warp.put_active(target, np.array(over, bool))
        (warp.refused.add if refuses else warp.refused.discard)(site)
        path.block, warp.gives_up, warp.satisfied = ways.following, False, set()
        return None

    return wait


@dataclass(frozen=True, slots=True)
class _Look:
    """Tests if phases are complete; a thread that observes one acquires what it orders, unless the wait is relaxed."""

    site: int
    by_parity: bool
    manner: _Manner

    def at(self, warp: Warp, lanes: list[tuple[int, int, int]]) -> tuple[list[bool], Mbarrier | None]:
        """Return for each of `lanes` whether its phase is complete, and an mbarrier whose phase is not."""
        blocking, mbarriers = None, warp.cta.mbarriers
        askers: dict[tuple[int, int], list[int]] = {}
        for thread, address, value in lanes:
            if thread not in warp.satisfied:
                askers.setdefault((address, value), []).append(thread)
        for (address, value), threads in askers.items():
            barrier = mbarriers.at(warp, self.site, threads, self._own(warp, threads[0], address))
            doubtful = self.site not in warp.refused and warp.cta.ordering.is_news(warp, barrier.released, threads[0])
            if doubtful or not self._is_over(barrier, value):
                blocking = barrier
                continue
            warp.satisfied.update(threads)
            self._learn(warp, barrier, threads)
        return [thread in warp.satisfied for thread, _, _ in lanes], blocking

    def _own(self, warp: Warp, thread: int, address: int) -> int:
        """The address, which must be in the CTA's own memory: waits for another CTA's mbarrier are not allowed."""
        if address // CTA_WINDOW_BYTES != warp.cta.rank:
            cta, _ = warp.cta.cluster.at(warp, self.site, thread, address)
            message = f"a wait for an mbarrier of the cluster's CTA {cta.rank}: only its own threads may wait for it"
            warp.cta.fault(ViolationKind.BARRIER, self.site, thread, message, address)
        return address

    def _learn(self, warp: Warp, barrier: Mbarrier, threads: list[int]) -> None:
        if self.manner.relaxed:
            return
        if barrier.has_visitors and not self.manner.reaches_cluster:
            message = "an acquire at scope cta of what another CTA of the cluster released: it takes .acquire.cluster"
            warp.cta.fault(ViolationKind.CONVENTION, self.site, threads[0], message, barrier.address)
        told = barrier.told(reaches_cluster=self.manner.reaches_cluster)
        warp.cta.ordering.observe(warp, told, np.array(threads))

    def _is_over(self, barrier: Mbarrier, value: int) -> bool:
        """Parity selects the current phase, which is not complete, or the previous one; a state selects its own."""
        return barrier.phase & 1 != value & 1 if self.by_parity else barrier.phase != value >> _PENDING_BITS


_HELD_BYTES = Agent(
    noun="mbarrier",
    proxy=Proxy.GENERIC,
    kind=ViolationKind.BARRIER,
    pending="{what} of bytes that hold an mbarrier ({place})",
)
ROWS = {
    "mbarrier": Row(step=lower_mbarrier),
    "mbarrier.init": Row(step=lower_mbarrier, agent=_HELD_BYTES),
    **dict.fromkeys(("mbarrier.test_wait", "mbarrier.try_wait"), Row(end=_wait, ends=Ends.WAIT)),
}
