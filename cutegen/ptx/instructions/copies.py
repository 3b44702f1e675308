"""Asynchronous copies from global to shared memory: `cp.async`.

Source: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy", `cp.async`, `cp.async.commit_group`,
`cp.async.wait_group`. Timing is adversarial: the bytes land only at the wait that covers them, and until then any
access to their destination is reported.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutegen.ptx.instructions.bulk import lower_bulk, take_groups, take_nothing
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Step, count_operands
from cutegen.ptx.machine.memory import Addresses, Data, data_dtype
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import to_shared
from cutegen.ptx.machine.warp import LANES, Warp
from cutegen.ptx.text.syntax import Immediate, Instruction, Negated, Register
from cutegen.ptx.text.types import scalar_type
from cutegen.ptx.watch.agents import BULK_COPY, Agent, Proxy
from cutegen.ptx.watch.global_shadow import Flights
from cutegen.ptx.watch.violations import ViolationKind

_U32 = scalar_type("u32")


def lower_cp_async(context: Lowering, instruction: Instruction) -> Step:
    """`cp.async` and the group instructions."""
    modifiers = Modifiers(instruction)
    reduces = modifiers.flag("reduce")
    if not modifiers.flag("async"):
        raise instruction.error("only cp.async is supported")
    if modifiers.flag("bulk"):
        return lower_bulk(context, instruction, modifiers)
    if reduces:
        raise instruction.error("expected cp.reduce.async.bulk")
    if modifiers.flag("mbarrier"):
        return _lower_arrive(context, instruction, modifiers)
    if modifiers.flag("commit_group"):
        take_nothing(instruction, modifiers)
        return lambda warp: warp.commit_copies()
    if modifiers.flag("wait_all"):
        take_nothing(instruction, modifiers)
        return lambda warp: warp.wait_copies(None)
    if modifiers.flag("wait_group"):
        newest = take_groups(instruction, modifiers)
        return lambda warp: warp.wait_copies(newest)
    return _lower_copy(context, instruction, modifiers)


def _lower_arrive(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp.async.mbarrier.arrive{.noinc}{.shared}.b64 [a]`: an arrival once the thread's earlier copies are there."""
    count_operands(instruction, 1)
    modifiers.need("arrive")
    counts_up = not modifiers.flag("noinc")
    modifiers.flag("shared", "shared::cta")
    modifiers.need("b64")
    modifiers.finish()
    base, offset = context.address(instruction, instruction.operands[0])
    site = context.access(instruction, "shared", 8)

    def step(warp: Warp) -> None:
        addresses, threads = to_shared(warp.addresses(base, offset)), warp.threads()
        for address in np.unique(addresses).tolist():
            chosen = tuple(threads[addresses == address].tolist())
            with warp.narrowed(np.isin(LANES + warp.thread0, chosen)):
                warp.cta.bulk.arrive_after_copies(warp, site, chosen, address, counts_up=counts_up)

    return step


def _lower_copy(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    modifiers.need("ca", "cg")
    modifiers.need("shared", "shared::cta")
    modifiers.need("global")
    modifiers.flag("L2::64B", "L2::128B", "L2::256B")
    has_policy = modifiers.flag("L2::cache_hint")
    modifiers.finish()
    operands = instruction.operands[: len(instruction.operands) - has_policy]
    if len(operands) not in (3, 4):
        raise instruction.error(f"expected 3 or 4 operands, found {len(operands)}")
    size = operands[2].value if isinstance(operands[2], Immediate) else None
    allowed = (16,) if "cg" in instruction.parts else (4, 8, 16)
    if not isinstance(size, int) or size not in allowed:
        raise instruction.error(f"the copy size is one of {', '.join(map(str, allowed))} bytes")
    destination, source = context.address(instruction, operands[0]), context.address(instruction, operands[1])
    source_bytes = _source_bytes(context, instruction, size)
    site = context.access(instruction, "shared", size)

    count = _counter(site, size, bypasses_l1="cg" in instruction.parts)

    def step(warp: Warp) -> None:
        to, start, counts = warp.addresses(*destination), warp.addresses(*source), source_bytes(warp)
        count(warp, start, to, counts)
        access = warp.cta.shared.begin_copy(warp, site, to, size)
        flights = Flights(warp.count)
        data = _fetch(warp, site, start, size, counts, flights)
        if access is None:
            flights.land(warp.count)
        else:
            warp.issue_copy(access, data, flights)

    return step


def _counter(
    site: int, size: int, *, bypasses_l1: bool
) -> Callable[[Warp, Addresses, Addresses, Addresses | None], None]:
    """Return the function that counts a copy: a copy with source sizes writes zeros first, whatever the sizes."""

    def count(warp: Warp, start: Addresses, to: Addresses, counts: Addresses | None) -> None:
        traffic = warp.cta.traffic
        if not bypasses_l1 or counts is not None:
            traffic.staged(site, start, to, warp.lanes(), size)
        if bypasses_l1:
            traffic.lines(site, start, to)
            read = slice(None) if counts is None else counts > 0
            traffic.line_sectors(site, start[read], to[read])

    return count


def _source_bytes(context: Lowering, instruction: Instruction, size: int) -> Callable[[Warp], Addresses | None]:
    """Return the bytes that each active lane copies (the rest are zeros); None if every lane copies all."""
    has_policy = "L2::cache_hint" in instruction.parts
    if len(instruction.operands) - has_policy == 3:
        return lambda warp: None
    operand = instruction.operands[3]
    if isinstance(operand, Negated) or (isinstance(operand, Register) and operand.file_bits == 1):
        cell, inverted = context.predicate(instruction, operand)
        return lambda warp: np.where(warp.cells[cell] != inverted, 0, size)[warp.mask]
    cell = context.source(instruction, operand, _U32)
    return lambda warp: warp.cells[cell][warp.mask].astype(np.int64)


def _fetch(warp: Warp, site: int, addresses: Addresses, size: int, counts: Addresses | None, flights: Flights) -> Data:
    """The bytes of each active lane's source, padded with zeros; a lane that copies nothing accesses no memory."""
    memory = warp.cta.memories["global"]
    misaligned = np.flatnonzero((addresses % size != 0) & (counts is None or counts > 0))
    if len(misaligned):
        message = f"the source of a {size}-byte copy is not a multiple of {size}"
        thread, address = int(warp.threads()[misaligned[0]]), int(addresses[misaligned[0]])
        warp.cta.fault(ViolationKind.MISALIGNED, site, thread, message, address)
    if counts is None or (counts == size).all():
        return memory.read(warp, site, addresses, size, flights)
    data = np.zeros(len(addresses) * size, np.uint8).reshape(len(addresses), size)
    for count in np.unique(counts):
        chosen = np.flatnonzero(counts == count)
        if count > size:
            message = f"source size {count} of a {size}-byte copy"
            warp.cta.fault(ViolationKind.ASYNC_COPY, site, int(warp.threads()[chosen[0]]), message)
        elif count > 0:
            data[chosen, :count] = _fetch_part(warp, site, addresses, chosen, int(count), flights)
    return data.reshape(-1).view(data_dtype(size))


def _fetch_part(warp: Warp, site: int, addresses: Addresses, chosen: Addresses, count: int, flights: Flights) -> Data:
    """The first `count` bytes at the addresses `chosen`, read in the largest pieces that divide `count`."""
    memory = warp.cta.memories["global"]
    piece = count & -count
    mask = np.zeros(32, bool)
    mask[warp.lanes()[chosen]] = True
    with warp.narrowed(mask):
        parts = [
            memory.read(warp, site, addresses[chosen] + start, piece, flights)
            .view(np.uint8)
            .reshape(len(chosen), piece)
            for start in range(0, count, piece)
        ]
    return np.concatenate(parts, axis=1)


_COPY = Agent(noun="cp.async", proxy=Proxy.GENERIC)
ROWS = {
    "cp": Row(step=lower_cp_async),
    "cp.async": Row(step=lower_cp_async, agent=_COPY),
    "cp.async.mbarrier": Row(step=lower_cp_async, agent=_COPY, passes_seen=True),
    "cp.async.bulk": Row(step=lower_cp_async, agent=BULK_COPY),
    "cp.reduce.async.bulk": Row(step=lower_cp_async, agent=BULK_COPY),
}
