"""Bulk tensor copies: `cp.async.bulk.tensor` and the group instructions `cp.async.bulk.commit_group`, `.wait_group`.

Source: PTX ISA, `cp.async.bulk.tensor`, "Tensors". Only tiled mode within one CTA.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutegen.ptx.machine.bulk import Box
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Step
from cutegen.ptx.machine.memory import PARAM_WINDOW
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Address, Immediate, Instruction
from cutegen.ptx.text.types import WARP_LANES, scalar_type

_LANES = np.arange(WARP_LANES)
_S32 = scalar_type("s32")
_COMPLETE = "mbarrier::complete_tx::bytes"
_REFUSED = (
    *("multicast::cluster", "im2col", "im2col::w", "im2col::w::128", "im2col_no_offs"),
    *("tile::gather4", "tile::scatter4", "cta_group::1", "cta_group::2"),
)


def lower_bulk(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    """`cp.async.bulk...`, the first three words taken off."""
    if modifiers.flag("commit_group"):
        modifiers.finish()
        return lambda warp: warp.cta.bulk.commit(warp.threads().tolist())
    if modifiers.flag("wait_group"):
        return _lower_wait(instruction, modifiers, only_read=modifiers.flag("read"))
    if modifiers.has("prefetch") or not modifiers.flag("tensor"):
        raise instruction.error("of the bulk copies only cp.async.bulk.tensor is supported")
    for word in _REFUSED:
        if modifiers.has(word):
            raise instruction.error(f"bulk tensor copies with .{word} are not supported")
    return _lower_copy(context, instruction, modifiers)


def _lower_wait(instruction: Instruction, modifiers: Modifiers, *, only_read: bool) -> Step:
    modifiers.finish()
    literal = instruction.operands[0] if len(instruction.operands) == 1 else None
    if not isinstance(literal, Immediate) or not isinstance(literal.value, int) or literal.value < 0:
        raise instruction.error("expected the number of groups that may stay in flight")
    newest = literal.value
    return lambda warp: warp.cta.bulk.wait(warp.threads().tolist(), newest, only_read=only_read)


def _lower_copy(context: Lowering, instruction: Instruction, modifiers: Modifiers) -> Step:
    rank = int(modifiers.need("1d", "2d", "3d", "4d", "5d")[0])
    spaces = [word for word in instruction.parts if word in ("global", "shared::cta", "shared::cluster")]
    modifiers.flag("global", "shared::cta", "shared::cluster", "tile")
    has_policy = modifiers.flag("L2::cache_hint")
    loads = modifiers.flag(_COMPLETE)
    if not loads:
        modifiers.need("bulk_group")
    modifiers.finish()
    if len(spaces) != 2 or (spaces[0] == "global") == loads or (spaces[1] == "global") != loads:
        raise instruction.error(
            "expected .shared::cta.global with an mbarrier, or .global.shared::cta with .bulk_group"
        )
    if len(instruction.operands) != 2 + loads + has_policy:
        raise instruction.error(f"expected {2 + loads + has_policy} operands, found {len(instruction.operands)}")
    tensor, place = instruction.operands[loads], instruction.operands[not loads]
    boxes = _Boxes(context, instruction, tensor, place, rank)
    site = context.access(instruction, "shared", 16)
    if not loads:
        return lambda warp: warp.cta.bulk.store(warp, site, boxes.each(warp, site))
    barrier = context.address(instruction, instruction.operands[2])

    def step(warp: Warp) -> None:
        addresses = warp.addresses(*barrier).tolist()
        for box, address in zip(boxes.each(warp, site), addresses, strict=True):
            warp.cta.bulk.load(warp, site, box, address)

    return step


class _Boxes:
    """What the active lanes ask for, one after the other."""

    def __init__(self, context: Lowering, instruction: Instruction, tensor: object, place: object, rank: int) -> None:
        if not isinstance(tensor, Address) or not isinstance(place, Address) or len(tensor.coordinates) != rank:
            raise instruction.error(f"expected [tensor map, {{{rank} coordinates}}] and an address in shared memory")
        self._tensor = context.address(instruction, tensor)
        self._place = context.address(instruction, place)
        self._coordinates = [context.source(instruction, c, _S32) for c in tensor.coordinates]
        self._window = PARAM_WINDOW if context.space_of(tensor) == "param" else 0

    def each(self, warp: Warp, site: int) -> Iterator[Box]:
        """The box of each active lane; meanwhile it is the only active one."""
        maps, places = warp.addresses(*self._tensor).tolist(), warp.addresses(*self._place).tolist()
        corners = np.stack([warp.cells[c][warp.mask] for c in self._coordinates], axis=1).tolist()
        lanes, saved = warp.lanes().tolist(), (warp.mask, warp.count)
        for lane, address, corner, place in zip(lanes, maps, corners, places, strict=True):
            warp.set_mask(np.equal(_LANES, lane), 1)
            tensor = warp.cta.tensor_at(site, warp.thread0 + lane, address + self._window, len(corner))
            yield Box(tensor=tensor, corner=tuple(corner), address=place)
        warp.set_mask(*saved)
