"""Addresses of a cluster's shared memory, and stores that an mbarrier counts: `mapa`, `getctarank`, `st.async`.

Source: PTX ISA, `mapa`, `getctarank`, `st.async`, "State Spaces: Shared State Space".
"""

from collections.abc import Callable

import numpy as np

from cutegen.ptx.instructions.memory import gather
from cutegen.ptx.machine.grid import CTA_WINDOW_BYTES
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Modifiers, Step
from cutegen.ptx.machine.memory import SHARED_WINDOW, SHARED_WINDOW_BYTES, Addresses
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import CLUSTER_SPACE
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Address, Instruction, Operand, Symbol, scalar_type
from cutegen.ptx.watch.actor import Agent, Proxy
from cutegen.ptx.watch.violations import ViolationKind

_U32 = scalar_type("u32")
_SENT = ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
_COMPLETE = "mbarrier::complete_tx::bytes"


def _window(context: Lowering, modifiers: Modifiers) -> tuple[int, Callable[[Warp, Addresses], Addresses]]:
    """Returns the first address of `.shared::cluster` in an instruction, and a function that checks offsets in it."""
    generic = not modifiers.flag(CLUSTER_SPACE)
    start, site = SHARED_WINDOW if generic else 0, context.site

    def inside(warp: Warp, offsets: Addresses) -> Addresses:
        wrong = (offsets < 0) | (offsets >= SHARED_WINDOW_BYTES)
        if wrong.any():
            lane = int(np.argmax(wrong))
            message = "an address outside of the shared memory of the cluster"
            address = int(offsets[lane]) + start
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, int(warp.threads()[lane]), message, address, always=True)
        return offsets

    return start, inside


def lower_mapa(context: Lowering, instruction: Instruction) -> Step:
    """`mapa{.shared::cluster}.u32|u64 d, a, b`: the address in CTA b that corresponds to `a`."""
    modifiers = context.modifiers(instruction, 3)
    start, inside = _window(context, modifiers)
    kind = modifiers.type("u32", "u64")
    modifiers.finish()
    variable = instruction.operands[1]
    if start and isinstance(variable, Symbol):
        raise instruction.error("the address of a variable takes .shared::cluster")
    target = context.target(instruction, instruction.operands[0], kind)
    source = context.source(instruction, variable, kind)
    rank, site = context.source(instruction, instruction.operands[2], _U32), context.site

    def step(warp: Warp) -> None:
        ranks = warp.cells[rank][warp.mask].astype(np.int64)
        size = len(warp.cta.cluster.ctas)
        if (ranks >= size).any():
            lane = int(np.argmax(ranks >= size))
            message = f"the address of CTA {ranks[lane]} of a cluster of {size}, which must not be accessed"
            warp.cta.fault(ViolationKind.CONVENTION, site, int(warp.threads()[lane]), message)
        local = inside(warp, warp.cells[source][warp.mask].astype(np.int64) - start) % CTA_WINDOW_BYTES
        warp.put_active(target, (start + ranks * CTA_WINDOW_BYTES + local).astype(kind.dtype))

    return step


def lower_rank(context: Lowering, instruction: Instruction) -> Step:
    """`getctarank{.shared::cluster}.u32|u64 d, a`: the rank of the CTA to which an address belongs."""
    modifiers = context.modifiers(instruction, 2)
    start, inside = _window(context, modifiers)
    kind = modifiers.type("u32", "u64")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], _U32)
    source = context.source(instruction, instruction.operands[1], kind)

    def step(warp: Warp) -> None:
        offsets = inside(warp, warp.cells[source][warp.mask].astype(np.int64) - start)
        warp.put_active(target, (offsets // CTA_WINDOW_BYTES).astype(np.uint32))

    return step


def _shared_address(
    context: Lowering, instruction: Instruction, operand: Operand, *, generic: bool
) -> Callable[[Warp], Addresses]:
    """The `.shared::cluster` addresses of the active lanes."""
    if not isinstance(operand, Address):
        raise instruction.error("expected an address in square brackets")
    base, offset = context.address(instruction, operand)
    start = SHARED_WINDOW if generic and context.space_of(operand) is None else 0
    return lambda warp: warp.addresses(base, offset) - start


def _lower_send(context: Lowering, instruction: Instruction) -> Step:
    """`st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbarrier]`."""
    modifiers = context.modifiers(instruction, 3)
    modifiers.need("async")
    modifiers.flag("weak")
    generic = not modifiers.flag(CLUSTER_SPACE)
    modifiers.need(_COMPLETE)
    word = modifiers.one_of("v2", "v4")
    width, kind = int(word[1:]) if word else 1, modifiers.type(*_SENT)
    modifiers.finish()
    items = context.vector(instruction, instruction.operands[1], width)
    sources = [context.source(instruction, item, kind) for item in items]
    size = kind.size_bytes * width
    if size > 16:
        raise instruction.error(f"an access of {width} x .{kind.name} does not exist")
    places = _shared_address(context, instruction, instruction.operands[0], generic=generic)
    barriers = _shared_address(context, instruction, instruction.operands[2], generic=generic)
    site, values = context.access(instruction, "shared", size), gather(sources, size)

    def step(warp: Warp) -> None:
        warp.cta.bulk.send_values(warp, site, places(warp), barriers(warp), size, values(warp))

    return step


LOWERERS: dict[str, Lowerer] = {
    "mapa": lower_mapa,
    "getctarank": lower_rank,
}
ROWS = {"st.async": Row(step=_lower_send, agent=Agent(noun="st.async", proxy=Proxy.GENERIC))}
