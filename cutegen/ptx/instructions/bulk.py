"""Bulk copies: `cp.async.bulk.tensor`, `cp.async.bulk` within a cluster, and `.commit_group`, `.wait_group`.

Source: PTX ISA, `cp.async.bulk`, `cp.async.bulk.tensor`, "Tensors". Tensor copies are supported only in tiled mode.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutegen.ptx.machine.bulk import Box
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Step, count_operands
from cutegen.ptx.machine.memory import PARAM_WINDOW
from cutegen.ptx.machine.warp import LANES, Warp
from cutegen.ptx.text.syntax import Address, Immediate, Instruction
from cutegen.ptx.text.types import scalar_type
from cutegen.ptx.watch.violations import ViolationKind

_S32, _U32, _U16 = scalar_type("s32"), scalar_type("u32"), scalar_type("u16")
DESTINATION_BYTES = 16
"""Addresses and sizes of a `cp.async.bulk` are multiples of it."""
_COMPLETE = "mbarrier::complete_tx::bytes"
_REFUSED = (
    *("im2col", "im2col::w", "im2col::w::128", "im2col_no_offs"),
    *("tile::gather4", "tile::scatter4", "cta_group::1", "cta_group::2"),
)


def lower_bulk(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp.async.bulk...` without its first three words."""
    if modifiers.flag("commit_group"):
        take_nothing(instruction, modifiers)
        return lambda warp: warp.cta.bulk.commit(warp.threads().tolist())
    if modifiers.flag("wait_group"):
        only_read = modifiers.flag("read")
        newest = take_groups(instruction, modifiers)
        return lambda warp: warp.cta.bulk.wait(warp.threads().tolist(), newest, only_read=only_read)
    if not modifiers.has("prefetch") and instruction.parts[3:5] == ("shared::cluster", "shared::cta"):
        return _lower_send(context, instruction, modifiers)
    if modifiers.has("prefetch") or not modifiers.flag("tensor"):
        raise instruction.error(
            "of the bulk copies only cp.async.bulk.tensor and cp.async.bulk.shared::cluster.shared::cta are supported"
        )
    for word in _REFUSED:
        if modifiers.has(word):
            raise instruction.error(f"bulk tensor copies with .{word} are not supported")
    return _lower_copy(context, instruction, modifiers)


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


def _lower_copy(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    rank = int(modifiers.need("1d", "2d", "3d", "4d", "5d")[0])
    spaces = [word for word in instruction.parts if word in ("global", "shared::cta", "shared::cluster")]
    modifiers.flag("global", "shared::cta", "shared::cluster", "tile")
    has_policy = modifiers.flag("L2::cache_hint")
    loads, multicast = modifiers.flag(_COMPLETE), modifiers.flag("multicast::cluster")
    if not loads:
        modifiers.need("bulk_group")
    modifiers.finish()
    if len(spaces) != 2 or (spaces[0] == "global") == loads or (spaces[1] == "global") != loads:
        raise instruction.error(
            "expected .shared::cta.global with an mbarrier, or .global.shared::cta with .bulk_group"
        )
    if multicast and spaces != ["shared::cluster", "global"]:
        raise instruction.error("only a load to .shared::cluster can be a .multicast::cluster")
    count_operands(instruction, 2 + loads + multicast + has_policy)
    tensor, place = instruction.operands[loads], instruction.operands[not loads]
    boxes = _Boxes(context, instruction, tensor, place, rank)
    site = context.access(instruction, "shared", 16)
    if not loads:
        return lambda warp: warp.cta.bulk.store(warp, site, boxes.each(warp, site))
    barrier = context.address(instruction, instruction.operands[2])
    mask = context.source(instruction, instruction.operands[3], _U16) if multicast else None

    def step(warp: Warp) -> None:
        addresses = warp.addresses(*barrier).tolist()
        masks = [None] * len(addresses) if mask is None else warp.cells[mask][warp.mask].tolist()
        for box, address, targets in zip(boxes.each(warp, site), addresses, masks, strict=True):
            warp.cta.bulk.load(warp, site, box, address, targets)

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
                _check_send(warp, site, (to, of), size_bytes)
                warp.cta.bulk.send(warp, site, of, size_bytes, (to, at))

    return step


def _check_send(warp: Warp, site: int, addresses: tuple[int, int], size_bytes: int) -> None:
    for name, value in (("the size", size_bytes), ("the destination", addresses[0]), ("the source", addresses[1])):
        if value % DESTINATION_BYTES or (name == "the size" and not value):
            message = f"{name} of a bulk copy is {value}; expected a positive multiple of {DESTINATION_BYTES}"
            warp.cta.fault(ViolationKind.MISALIGNED, site, int(warp.threads()[0]), message, always=True)


class _Boxes:
    """Requests of the active lanes, one after the other."""

    def __init__(self, context: Lowering, instruction: Instruction, tensor: object, place: object, rank: int) -> None:
        if not isinstance(tensor, Address) or not isinstance(place, Address) or len(tensor.coordinates) != rank:
            raise instruction.error(f"expected [tensor map, {{{rank} coordinates}}] and an address in shared memory")
        self._tensor = context.address(instruction, tensor)
        self._place = context.address(instruction, place)
        self._coordinates = [context.source(instruction, c, _S32) for c in tensor.coordinates]
        self._window = PARAM_WINDOW if context.space_of(tensor) == "param" else 0

    def each(self, warp: Warp, site: int) -> Iterator[Box]:
        """Yield the box of each active lane, with that lane as the only active one."""
        maps, places = warp.addresses(*self._tensor).tolist(), warp.addresses(*self._place).tolist()
        corners = np.stack([warp.cells[c][warp.mask] for c in self._coordinates], axis=1).tolist()
        for lane, address, corner, place in zip(warp.lanes().tolist(), maps, corners, places, strict=True):
            tensor = warp.cta.tensor_at(site, warp.thread0 + lane, address + self._window, len(corner))
            with warp.narrowed(np.equal(LANES, lane)):
                yield Box(tensor=tensor, corner=tuple(corner), address=place)
