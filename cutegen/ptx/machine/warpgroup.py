"""Warpgroups: four warps that execute `wgmma` together, and their multiplications in flight.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". The warps of a warpgroup reach their `wgmma`
instructions in any order; the n-th of each must be the same one, with the same operands. A multiplication begins when
the last warp reaches it. From then on it reads shared memory, as one reader for all four warps, until one of them has
waited for its group. Its registers belong to each warp, which gets them back when it waits. The policy decides when it
is computed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array
from cutegen.ptx.arithmetic.tensor_core import TensorCore
from cutegen.ptx.machine.policy import Schedule
from cutegen.ptx.machine.registers import RegisterChange
from cutegen.ptx.machine.shared import SharedMemory
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.async_registers import RegisterList
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.violations import ViolationKind

WARPS = 4
_POISON = 0xFFFFFFFF

Compute: TypeAlias = Callable[[TensorCore, Array, Array, Array | None], Array]
"""(64, K) bits of A, (N, K) bits of B, the accumulators or None -> the accumulators (64, N)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MmaForm:
    """Form of a `wgmma.mma_async`, as given by its text.

    `a_chunks` and `b_chunks` return the addresses of a descriptor, `a_matrix` and `b_matrix` the elements (rows, K)
    that are stored there. `a` are A's registers, or None if it has a descriptor; `a_fragment` returns a warp's rows of
    A from its registers.
    """

    site: int
    shape: int
    d: RegisterList
    a: RegisterList | None
    a_chunks: Callable[[int], Array]
    b_chunks: Callable[[int], Array]
    a_matrix: Callable[[Array], Array]
    b_matrix: Callable[[Array], Array]
    a_fragment: Callable[[Array], Array]
    d_fragment: Callable[[Array], Array]
    d_registers: Callable[[Array], Array]
    compute: Compute


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands that the warps of a group must agree on.

    Descriptors (None: A is in registers), and whether the product is added to D.
    """

    a: int | None
    b: int
    accumulates: bool

    def __str__(self) -> str:
        """Description for messages."""
        a = "registers" if self.a is None else f"{self.a:#018x}"
        return f"({a}, {self.b:#018x}, {str(self.accumulates).lower()})"


@dataclass(slots=True, eq=False)
class _Mma:
    """A multiplication in flight; `before` is the one to whose result it adds.

    `c` and `a` are the registers of each warp.
    """

    form: MmaForm
    operands: Operands
    before: _Mma | None
    c: list[Array | None] = field(default_factory=lambda: [None] * WARPS)
    a: list[Array | None] = field(default_factory=lambda: [None] * WARPS)
    arrived: int = 0
    tick: int = 0
    source: tuple[Array, Array] | None = None
    """Addresses of A's and of B's chunks, once it has begun."""
    result: Array | None = None


@dataclass(slots=True)
class _Member:
    """One warp of the group: the number of `wgmma` instructions it has executed, its groups, and those in flight."""

    executed: int = 0
    committed: int = 0
    in_flight: list[tuple[int, _Mma]] = field(default_factory=list)
    has_left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of a CTA that its warpgroups use."""

    shared: SharedMemory
    ordering: Ordering
    schedule: Schedule
    tensor_core: TensorCore


class Warpgroup:
    """Warps `first` to `first` + 3 of a CTA; `phase` counts the multiplications that have begun."""

    def __init__(self, warps: Sequence[Warp], parts: Parts) -> None:
        self._warps, self._shared, self._ordering = warps, parts.shared, parts.ordering
        self._schedule, self._core = parts.schedule, parts.tensor_core
        self._members = [_Member() for _ in warps]
        self._history: list[tuple[int, Operands | RegisterChange | None]] = []
        self._multiplications: dict[int, _Mma] = {}
        self._agent: int | None = None
        self.phase = 0

    def awaited(self) -> str:
        """Name of this object, for messages."""
        first = self._warps[0].number
        late = [first + i for i, member in enumerate(self._members) if member.executed < len(self._history)]
        return f"warps {late} of its warpgroup to execute the same wgmma instructions"

    def issue(self, warp: Warp, form: MmaForm, operands: Operands) -> None:
        """`wgmma.mma_async` of one warp."""
        number = self._execute(warp, form.site, operands)
        member, place = self._member(warp), warp.number % WARPS
        held, before = warp.held, self._adds_to(warp, form)
        held.check_fenced(warp, form.site, form.d)
        held.check_shape(warp, form.site, form.d, form.shape)
        mma = self._multiplications.setdefault(number, _Mma(form, operands, before))
        if form.a is not None:
            self._check_fragment(warp, form, form.a)
            mma.a[place] = warp.files[32][form.a.rows]
            held.hold(form.site, form.a, writes=False)
        if before is None:
            if operands.accumulates:
                held.check_written(warp, form.site, form.d)
                mma.c[place] = warp.files[32][form.d.rows]
            warp.files[32][form.d.rows] = _POISON
        held.hold(form.site, form.d, writes=True)
        member.in_flight.append((member.committed, mma))
        mma.arrived += 1
        if mma.arrived == WARPS:
            del self._multiplications[number]
            self._begin(mma)

    def note(self, warp: Warp, site: int, change: RegisterChange) -> None:
        """`setmaxnreg` of one warp: all four execute one, by PTX the same, by convention each its own."""
        self._execute(warp, site, change)

    def fence(self, warp: Warp, site: int) -> None:
        """`wgmma.fence` of one warp."""
        self._execute(warp, site, None)
        warp.held.fence()

    def commit(self, warp: Warp, site: int) -> None:
        """`wgmma.commit_group` of one warp."""
        self._execute(warp, site, None)
        self._member(warp).committed += 1

    def wait(self, warp: Warp, site: int, newest: int) -> bool:
        """`wgmma.wait_group` of one warp; False if it must wait for the other warps to arrive."""
        member = self._member(warp)
        limit = member.committed - newest
        done = [mma for group, mma in member.in_flight if group < limit]
        if any(mma.source is None for mma in done):
            self._check_all_here(warp, site)
            return False
        self._execute(warp, site, None)
        member.in_flight = [(group, mma) for group, mma in member.in_flight if group >= limit]
        self._give_back(warp, done, [mma for _, mma in member.in_flight])
        return True

    def leave(self, warp: Warp) -> None:
        """The active lanes of `warp` exit."""
        member = self._member(warp)
        if member.in_flight:
            group, mma = member.in_flight[0]
            what = "wgmma.wait_group" if group < member.committed else "wgmma.commit_group and wgmma.wait_group"
            message = f"the thread exits before a {what} that covers this wgmma.mma_async"
            warp.cta.fault(ViolationKind.ASYNC_MMA, mma.form.site, int(warp.threads()[0]), message)
        member.has_left = True
        if member.executed < len(self._history):
            site = self._history[member.executed][0]
            message = f"warp {warp.number} exits without this instruction, which others of its warpgroup execute"
            warp.cta.fault(ViolationKind.DIVERGENCE, site, int(warp.threads()[0]), message)

    def _member(self, warp: Warp) -> _Member:
        return self._members[warp.number % WARPS]

    def _execute(self, warp: Warp, site: int, operands: Operands | RegisterChange | None) -> int:
        """Compares an instruction of `warp` with those of the other warps; returns its number."""
        member = self._member(warp)
        number = member.executed
        member.executed += 1
        if number == len(self._history):
            self._check_all_here(warp, site)
            self._history.append((site, operands))
            return number
        others, given = self._history[number]
        if others != site:
            both_change = isinstance(operands, RegisterChange) and isinstance(given, RegisterChange)
            kind = ViolationKind.CONVENTION if both_change else ViolationKind.DIVERGENCE
            message = f"other warps of the warpgroup execute {warp.cta.describe(others)} in its place"
            warp.cta.fault(kind, site, int(warp.threads()[0]), message)
        elif given != operands:
            message = f"the warps of the warpgroup do not agree on descriptors and scale-d: {operands} and {given}"
            warp.cta.fault(ViolationKind.DIVERGENCE, site, int(warp.threads()[0]), message)
        return number

    def _check_all_here(self, warp: Warp, site: int) -> None:
        gone = [other.number for other, member in zip(self._warps, self._members, strict=True) if member.has_left]
        if gone:
            message = f"warps {gone} of the warpgroup have exited"
            warp.cta.fault(ViolationKind.DIVERGENCE, site, int(warp.threads()[0]), message)

    def _adds_to(self, warp: Warp, form: MmaForm) -> _Mma | None:
        """The multiplication in flight that has the same accumulators."""
        if not warp.held.is_held(form.d):
            return None
        for _, mma in reversed(self._member(warp).in_flight):
            same = len(mma.form.d.rows) == len(form.d.rows) and (mma.form.d.rows == form.d.rows).all()
            if same and mma.form.d_fragment is form.d_fragment:
                return mma
        message = "its accumulators are in part those of another wgmma.mma_async in flight, or hold its A"
        warp.cta.fault(ViolationKind.ASYNC_MMA, form.site, int(warp.threads()[0]), message)
        return None

    def _check_fragment(self, warp: Warp, form: MmaForm, registers: RegisterList) -> None:
        """A's registers must be fenced, and must not be accumulators in flight."""
        warp.held.check_fenced(warp, form.site, registers)
        rows = set(registers.rows.tolist())
        for _, mma in self._member(warp).in_flight:
            if rows & set(mma.form.d.rows.tolist()):
                message = "its registers of A are accumulators of another wgmma.mma_async in flight"
                warp.cta.fault(ViolationKind.ASYNC_MMA, form.site, int(warp.threads()[0]), message)

    def _begin(self, mma: _Mma) -> None:
        """All four warps have arrived: from now on it may read shared memory."""
        if self._agent is None:
            self._agent = self._ordering.add_agent()
            self._ordering.tick += 1
        form, operands = mma.form, mma.operands
        a = np.zeros((0, 0), np.int64) if operands.a is None else form.a_chunks(operands.a)
        b = form.b_chunks(operands.b)
        mma.source = a, b
        mma.tick = self._ordering.tick
        for chunks in (a, b):
            self._shared.begin_tensor_core_read(self._warps, form.site, chunks.reshape(-1), self._agent)
        self._ordering.tick += 1
        self.phase += 1
        if self._schedule.lands_at_once():
            self._compute(mma)

    def _compute(self, mma: _Mma) -> Array:
        """The accumulators after `mma`, from the current values of its operands."""
        if mma.result is not None:
            return mma.result
        assert mma.source is not None
        form, (a_chunks, b_chunks) = mma.form, mma.source
        if form.a is None:
            a = form.a_matrix(self._shared.tensor_core_peek(a_chunks))
        else:
            a = np.concatenate([form.a_fragment(registers) for registers in mma.a if registers is not None])
        b = form.b_matrix(self._shared.tensor_core_peek(b_chunks))
        mma.result = form.compute(self._core, a, b, self._accumulators(mma))
        mma.before, mma.c, mma.a = None, [], []
        return mma.result

    def _accumulators(self, mma: _Mma) -> Array | None:
        if not mma.operands.accumulates:
            return None
        if mma.before is not None:
            return self._compute(mma.before)
        return np.concatenate([mma.form.d_fragment(registers) for registers in mma.c if registers is not None])

    def _give_back(self, warp: Warp, done: Sequence[_Mma], remaining: Sequence[_Mma]) -> None:
        """Writes results to the registers of `warp`, except those to which a multiplication in flight still adds."""
        if not done:
            return
        for mma in done:
            self._compute(mma)
            warp.held.give_back(mma.form.d)
            if mma.form.a is not None:
                warp.held.give_back(mma.form.a)
        for mma in remaining:
            warp.held.hold(mma.form.site, mma.form.d, writes=True)
            if mma.form.a is not None:
                warp.held.hold(mma.form.site, mma.form.a, writes=False)
        first = WARPS * 4 * (warp.number % WARPS)
        results = {mma.form.d.rows.tobytes(): mma for mma in done}
        for mma in results.values():
            if not warp.held.is_held(mma.form.d):
                rows = self._compute(mma)[first : first + WARPS * 4]
                warp.files[32][mma.form.d.rows] = mma.form.d_registers(rows)
        assert self._agent is not None, "what is done has begun"
        self._ordering.learn_of_agent(warp.index, self._agent, max(mma.tick for mma in done))


class Warpgroups:
    """The warpgroups of a CTA, made when they are first used."""

    def __init__(self, warps: Sequence[Warp], parts: Parts) -> None:
        self._warps, self._parts = warps, parts
        self._groups: dict[int, Warpgroup] = {}

    def of(self, warp: Warp, site: int, *, short: ViolationKind = ViolationKind.DIVERGENCE) -> Warpgroup:
        """The warpgroup of `warp`, whose lanes must all be active; `short`: the kind of finding if it has not four."""
        number = warp.number // WARPS
        if not warp.full:
            lane = int(np.argmin(warp.mask))
            message = "it needs all 32 lanes of the warp together"
            warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0 + lane, message)
        members = self._warps[number * WARPS : (number + 1) * WARPS]
        if len(members) < WARPS or not members[-1].is_whole:
            message = f"warps {[w.number for w in members]} are no whole warpgroup: the CTA has not 128 threads here"
            warp.cta.fault(short, site, int(warp.threads()[0]), message)
        if number not in self._groups:
            self._groups[number] = Warpgroup(members, self._parts)
            for member in members:
                if not member.alive.any():
                    self._groups[number].leave(member)
        return self._groups[number]

    def leave(self, warp: Warp) -> None:
        """The active lanes of `warp` exit."""
        group = self._groups.get(warp.number // WARPS)
        if group is not None and warp.count:
            group.leave(warp)
