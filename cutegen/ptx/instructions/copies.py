"""Asynchronous copies: `cp.async` of threads, and bulk copies with their reductions, prefetches and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from cutegen.ptx.instructions.memory import operation
from cutegen.ptx.machine.bulk import Box, Combine, Region, Run
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Step, count_operands
from cutegen.ptx.machine.memory import PARAM_WINDOW, Addresses, Data, data_dtype
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.shared import BULK_CHUNK_BYTES
from cutegen.ptx.machine.spaces import to_shared
from cutegen.ptx.machine.warp import LANES, Warp
from cutegen.ptx.text.syntax import Address, Immediate, Instruction, Negated, Operand, Register, scalar_type
from cutegen.ptx.watch.actor import BULK_COPY, Agent, Proxy
from cutegen.ptx.watch.global_shadow import Flights
from cutegen.ptx.watch.semantics import Semantics
from cutegen.ptx.watch.violations import ViolationKind

# Bulk copies of tensors, of runs of bytes and within a cluster, bulk reductions, prefetches and groups.
#
# Source: PTX ISA, `cp.async.bulk`, `cp.reduce.async.bulk`, `cp.async.bulk.prefetch`, `cp.async.bulk.tensor`, "Tensors".
# Tensor copies are supported only in tiled mode.


_S32, _U32, _U16 = scalar_type("s32"), scalar_type("u32"), scalar_type("u16")
_COMPLETE = "mbarrier::complete_tx::bytes"
_REFUSED = (
    *("im2col", "im2col::w", "im2col::w::128", "im2col_no_offs"),
    *("tile::gather4", "tile::scatter4", "cp_mask", "ignore_oob"),
)
_SPACES = ("global", "shared::cta", "shared::cluster")
_FLOATS, _INTEGERS, _BITS = ("f16", "bf16", "f32", "f64"), ("u32", "s32", "u64", "s64"), ("b32", "b64")
_REDUCTIONS = {
    "add": (*_FLOATS, "u32", "s32", "u64"),
    **dict.fromkeys(("min", "max"), ("f16", "bf16", *_INTEGERS)),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), _BITS),
}
"""The types of `cp.reduce.async.bulk` to global memory, by operation."""


def lower_bulk(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp{.reduce}.async.bulk...` without these words."""
    if modifiers.flag("commit_group"):
        take_nothing(instruction, modifiers)
        return lambda warp: warp.cta.bulk.commit(warp.threads().tolist())
    if modifiers.flag("wait_group"):
        only_read = modifiers.flag("read")
        newest = take_groups(instruction, modifiers)
        return lambda warp: warp.cta.bulk.wait(warp.threads().tolist(), newest, only_read=only_read)
    for word in _REFUSED:
        if modifiers.has(word):
            raise instruction.error(f"bulk copies with .{word} are not supported")
    reduces = instruction.parts[1] == "reduce"
    if modifiers.flag("tensor"):
        if reduces:
            raise instruction.error("bulk reductions of tensors are not supported; store by cp.reduce.async.bulk")
        return _lower_boxes(context, instruction, modifiers)
    spaces = tuple(word for word in instruction.parts if word in _SPACES)
    if modifiers.flag("prefetch"):
        return _lower_prefetch(context, instruction, modifiers)
    if spaces == ("global", "shared::cta"):
        return _lower_store(context, instruction, modifiers, reduces=reduces)
    if reduces or len(spaces) != 2 or spaces[0] == "global":
        directions = "to .global from .shared::cta" + ("" if reduces else ", or to shared memory")
        raise instruction.error(f"expected a bulk {'reduction' if reduces else 'copy'} {directions}")
    return (_lower_load if spaces[1] == "global" else _lower_send)(context, instruction, modifiers)


def take_nothing(instruction: Instruction, modifiers: Modifiers) -> None:
    """Refuses further modifiers and operands."""
    modifiers.finish()
    if instruction.operands:
        raise instruction.error("this instruction has no operands")


def take_groups(instruction: Instruction, modifiers: Modifiers) -> int:
    """The number of groups that may stay in flight after a wait; further modifiers are refused."""
    modifiers.finish()
    literal = instruction.operands[0] if len(instruction.operands) == 1 else None
    if not isinstance(literal, Immediate) or not isinstance(literal.value, int) or literal.value < 0:
        raise instruction.error("expected the number of groups that may stay in flight")
    return literal.value


def _lower_boxes(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp.async.bulk.tensor`, in either direction, and its prefetch."""
    rank = int(modifiers.need("1d", "2d", "3d", "4d", "5d")[0])
    spaces = [word for word in instruction.parts if word in _SPACES]
    modifiers.flag(*_SPACES, "tile")
    has_policy = modifiers.flag("L2::cache_hint")
    if modifiers.flag("prefetch"):
        return _lower_box_prefetch(context, instruction, modifiers, rank, has_policy=has_policy)
    loads, multicast = modifiers.flag(_COMPLETE), modifiers.flag("multicast::cluster")
    group = modifiers.one_of("cta_group::1", "cta_group::2") if loads else None
    if not loads:
        modifiers.need("bulk_group")
    modifiers.finish()
    if len(spaces) != 2 or (spaces[0] == "global") == loads or (spaces[1] == "global") != loads:
        raise instruction.error(
            "expected .shared::cta.global with an mbarrier, or .global.shared::cta with .bulk_group"
        )
    count_operands(instruction, 2 + loads + multicast + has_policy)
    tensor, place = instruction.operands[loads], instruction.operands[not loads]
    boxes = _Boxes(context, instruction, tensor, place, rank, stores=not loads)
    if loads:
        return _loads(context, instruction, boxes, multicast=multicast, to_pairs=group == "cta_group::2")
    site = context.access(instruction, "shared", 16)
    return lambda warp: warp.cta.bulk.store(warp, site, boxes.each(warp, site))


def _lower_box_prefetch(
    context: Lowering, instruction: Instruction, modifiers: Modifiers, rank: int, *, has_policy: bool
) -> Step:
    modifiers.need("L2")
    modifiers.finish()
    count_operands(instruction, 1 + has_policy)
    boxes, site = _Boxes(context, instruction, instruction.operands[0], None, rank), context.site

    def step(warp: Warp) -> None:
        for _ in boxes.each(warp, site):
            pass  # a tensor map that is not one is a fault

    return step


def _lower_load(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from], size, [mbarrier]{, mask}`."""
    modifiers.flag(*_SPACES)
    modifiers.need(_COMPLETE)
    multicast, has_policy = modifiers.flag("multicast::cluster"), modifiers.flag("L2::cache_hint")
    modifiers.finish()
    count_operands(instruction, 4 + multicast + has_policy)
    runs = _Runs(context, instruction, source=1, place=0, size=2, writes=False)
    return _loads(context, instruction, runs, multicast=multicast)


def _loads(
    context: Lowering, instruction: Instruction, regions: _Regions, *, multicast: bool, to_pairs: bool = False
) -> Step:
    """The step that loads regions; the mbarrier comes before the mask of a multicast and a cache policy.

    `to_pairs` (`.cta_group::2`): the mbarrier may be in the other CTA of a pair.
    """
    if multicast and "shared::cta" in instruction.parts:
        raise instruction.error("only a load to .shared::cluster can be a .multicast::cluster")
    site = context.access(instruction, "shared", 16)
    after = multicast + ("L2::cache_hint" in instruction.parts)
    barrier = context.address(instruction, instruction.operands[-1 - after])
    mask = context.source(instruction, instruction.operands[-after], _U16) if multicast else None

    def step(warp: Warp) -> None:
        barriers = np.zeros(32, np.int64)
        barriers[warp.lanes()] = warp.addresses(*barrier)
        for region in regions.each(warp, site):
            lane = int(warp.lanes()[0])
            targets = None if mask is None else int(warp.cells[mask][lane])
            warp.cta.bulk.load(warp, site, region, int(barriers[lane]), targets, to_pairs=to_pairs)

    return step


def _lower_store(context: Lowering, instruction: Instruction, modifiers: Modifiers, *, reduces: bool) -> Step:
    """`cp{.reduce}.async.bulk.global.shared::cta.bulk_group{.op.type} [to], [from], size`."""
    modifiers.flag(*_SPACES)
    modifiers.need("bulk_group")
    has_policy = modifiers.flag("L2::cache_hint")
    combine = _take_reduction(context, instruction, modifiers) if reduces else None
    modifiers.finish()
    count_operands(instruction, 3 + has_policy)
    runs = _Runs(context, instruction, source=0, place=1, size=2, writes=True)
    site = context.access(instruction, "shared", 16)
    return lambda warp: warp.cta.bulk.store(warp, site, runs.each(warp, site), combine)


def _take_reduction(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Combine:
    """Takes the operation and its type off: each element is combined at once, relaxed and at scope gpu."""
    modifiers.flag("noftz")
    name = modifiers.need(*_REDUCTIONS)
    kind = modifiers.type(*_REDUCTIONS[name])
    if (kind.name in ("f16", "bf16") and name == "add") != ("noftz" in instruction.parts):
        raise instruction.error(".noftz is for .add of .f16 and .bf16, which need it")
    function = operation(name, kind)
    context.access(instruction, "global", kind.size_bytes, Semantics.of("relaxed", "gpu"))

    def combine(there: Data, stored: Data) -> Data:
        values = function(there.view(kind.dtype), np.ascontiguousarray(stored).view(kind.dtype))
        return np.ascontiguousarray(values).view(there.dtype)

    return combine


def _lower_prefetch(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp.async.bulk.prefetch.L2.global [from], size`: changes nothing, but reads memory that must exist."""
    modifiers.need("L2")
    modifiers.need("global")
    has_policy = modifiers.flag("L2::cache_hint")
    modifiers.finish()
    count_operands(instruction, 2 + has_policy)
    runs, site = _Runs(context, instruction, source=0, place=None, size=1, writes=False), context.site

    def step(warp: Warp) -> None:
        for _ in runs.each(warp, site):
            pass  # bytes that do not exist are a fault

    return step


def _lower_send(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [from], size, [mbarrier]`."""
    modifiers.flag("shared::cluster", "shared::cta")
    modifiers.need(_COMPLETE)
    modifiers.finish()
    count_operands(instruction, 4)
    target, source, length, barrier = instruction.operands
    places = [context.address(instruction, operand) for operand in (target, source, barrier)]
    size, site = context.source(instruction, length, _U32), context.access(instruction, "shared", 16)

    def step(warp: Warp) -> None:
        addresses = [warp.addresses(*place).tolist() for place in places]
        sizes, lanes = warp.cells[size][warp.mask].tolist(), warp.lanes().tolist()
        for lane, to, of, at, size_bytes in zip(lanes, *addresses, sizes, strict=True):
            with warp.narrowed(np.equal(LANES, lane)):
                _check_multiples(warp, site, size_bytes, destination=to, source=of)
                warp.cta.bulk.send(warp, site, of, size_bytes, (to, at))

    return step


def _check_multiples(warp: Warp, site: int, size_bytes: int, **addresses: int) -> None:
    for name, value in {"size": size_bytes, **addresses}.items():
        if value % BULK_CHUNK_BYTES or (name == "size" and not value):
            message = f"the {name} of a bulk copy is {value}; expected a positive multiple of {BULK_CHUNK_BYTES}"
            warp.cta.fault(ViolationKind.MISALIGNED, site, int(warp.threads()[0]), message, always=True)


class _Regions(Protocol):
    """The regions that the active lanes copy, one after the other."""

    def each(self, warp: Warp, site: int) -> Iterator[Region]:
        """Yield the region of each active lane, with that lane as the only active one."""


class _Boxes:
    """Boxes of a tensor; without a `place` in shared memory for a prefetch."""

    def __init__(
        self,
        context: Lowering,
        instruction: Instruction,
        tensor: Operand,
        place: Operand | None,
        rank: int,
        *,
        stores: bool = False,
    ) -> None:
        is_placed = place is None or isinstance(place, Address)
        if not isinstance(tensor, Address) or not is_placed or len(tensor.coordinates) != rank:
            raise instruction.error(f"expected [tensor map, {{{rank} coordinates}}] and an address in shared memory")
        self._tensor = context.address(instruction, tensor)
        self._place = None if place is None else context.address(instruction, place)
        self._coordinates = [context.source(instruction, c, _S32) for c in tensor.coordinates]
        self._window, self._stores = PARAM_WINDOW if context.space_of(tensor) == "param" else 0, stores

    def each(self, warp: Warp, site: int) -> Iterator[Region]:
        """Yield the box of each active lane, with that lane as the only active one."""
        maps = warp.addresses(*self._tensor)
        places = np.zeros_like(maps) if self._place is None else warp.addresses(*self._place)
        corners = np.stack([warp.cells[c][warp.mask] for c in self._coordinates], axis=1).tolist()
        lanes = zip(warp.lanes().tolist(), maps.tolist(), corners, places.tolist(), strict=True)
        for lane, address, corner, place in lanes:
            at, thread = address + self._window, warp.thread0 + lane
            tensor, map_address = warp.cta.tensors.at(warp, site, thread, at, len(corner))
            align, bits = tensor.map.corner_align_elems, tensor.map.bits
            if corner[0] % align:
                message = f"coordinate {corner[0]} of elements of {bits} bits; expected a multiple of {align}"
                warp.cta.fault(ViolationKind.MISALIGNED, site, warp.thread0 + lane, message, always=True)
            if self._stores and corner[0] < 0:  # an H200 ends the kernel; loads may begin there
                message = f"a box of a store begins at coordinate {corner[0]}; expected 0 or more"
                warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, warp.thread0 + lane, message, always=True)
            with warp.narrowed(np.equal(LANES, lane)):
                first = tensor.map.items(corner[0]), *corner[1:]
                excess = tensor.excess_bytes(first)
                if excess:
                    message = f"the box at {tuple(corner)} reaches {excess} bytes beyond the tensor map's array"
                    warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, warp.thread0 + lane, message, always=True)
                yield Box(tensor=tensor, corner=first, address=place, map_address=map_address)


class _Runs:
    """Consecutive bytes of global memory: operand `source` has their address, `place` that in shared memory."""

    def __init__(
        self, context: Lowering, instruction: Instruction, *, source: int, place: int | None, size: int, writes: bool
    ) -> None:
        operands, self._writes = instruction.operands, writes
        self._source = context.address(instruction, operands[source])
        self._place = None if place is None else context.address(instruction, operands[place])
        self._size = context.source(instruction, operands[size], _U32)

    def each(self, warp: Warp, site: int) -> Iterator[Region]:
        """Yield the bytes of each active lane that exist, with that lane as the only active one."""
        sources, sizes = warp.addresses(*self._source), warp.cells[self._size][warp.mask].tolist()
        places = np.zeros_like(sources) if self._place is None else warp.addresses(*self._place)
        lanes = zip(warp.lanes().tolist(), sources.tolist(), places.tolist(), sizes, strict=True)
        memory = warp.cta.memories["global"]
        for lane, address, place, size_bytes in lanes:
            with warp.narrowed(np.equal(LANES, lane)):
                _check_multiples(warp, site, size_bytes, global_address=address, shared_address=place)
                buffer = memory.span(warp, site, address, size_bytes, writes=self._writes)
                if buffer is not None:
                    yield Run(buffer=buffer, offset=address - buffer.start, size_bytes=size_bytes, address=place)


# Asynchronous copies from global to shared memory: `cp.async`.
#
# Source: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy", `cp.async`, `cp.async.commit_group`,
# `cp.async.wait_group`. Timing is adversarial: the bytes land only at the wait that covers them, and until then any
# access to their destination is reported.


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
