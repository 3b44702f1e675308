"""`trap`, fences, and instructions without an observable effect here: prefetches, hints.

Source: PTX ISA, `trap`, `membar`/`fence`, `prefetch`, `nanosleep`, `createpolicy`, `griddepcontrol`, `setmaxnreg`.
"""

import numpy as np

from cutegen.ptx.instructions.memory import fence_order
from cutegen.ptx.machine.blocks import End, executing
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Predicate, Step
from cutegen.ptx.machine.registers import RegisterChange, RegisterPool
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.tensor_map import TENSOR_MAP_BYTES
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.syntax import WARP_LANES, Immediate, Instruction, scalar_type
from cutegen.ptx.watch.violations import ViolationKind

_F32, _U32, _B64 = scalar_type("f32"), scalar_type("u32"), scalar_type("b64")
_WITHOUT_EFFECT = {"prefetch": 1, "prefetchu": 1, "applypriority": 2, "nanosleep": 1, "pmevent": 1}
"""Instructions that change nothing, and their number of operands."""
_ASYNC_FENCES = ("proxy.async", "proxy.async.shared::cta", "proxy.async.shared::cluster")


def lower_nothing(context: Lowering, instruction: Instruction) -> Step:
    """An instruction that changes nothing."""
    context.modifiers(instruction, _WITHOUT_EFFECT[instruction.parts[0]])
    return _nothing


def _nothing(warp: Warp) -> None:
    """Does nothing."""


def lower_policy(context: Lowering, instruction: Instruction) -> Step:
    """`createpolicy`: a cache policy, which changes no result; here all are one number."""
    kind = instruction.parts[1] if len(instruction.parts) > 1 else ""
    context.modifiers(instruction, {"fractional": (1, 2), "range": (4,)}.get(kind, (2,)))
    target, *sources = instruction.operands
    cell = context.target(instruction, target, _B64)
    if kind == "range":
        context.address(instruction, sources[0])
        sources = sources[1:]
    types = {"fractional": _F32, "range": _U32}
    for source in sources:
        context.source(instruction, source, types.get(kind, _B64))
    return lambda warp: warp.put(cell, np.ones(WARP_LANES, np.uint64))


def lower_dependency(context: Lowering, instruction: Instruction) -> Step:
    """`griddepcontrol`: `.wait` waits for the grid before; `.launch_dependents` changes nothing in this launch."""
    context.modifiers(instruction, 0)
    if instruction.parts[1:] == ("launch_dependents",):
        return _nothing

    def wait(warp: Warp) -> None:
        if warp.cta.predecessor is not None:
            warp.cta.predecessor.wait(warp, warp.cta.ordering)

    return wait


def lower_fence(context: Lowering, instruction: Instruction) -> Step:
    """`fence`, `membar`: order between threads; with `.proxy.async` and `.mbarrier_init`, order before bulk copies."""
    words = ".".join(instruction.parts[1:])
    context.modifiers(instruction, 2 if words.startswith("proxy.tensormap::generic.acquire") else 0)
    if words in _ASYNC_FENCES:
        return lambda warp: warp.cta.ordering.proxy_fence(warp)
    if words.startswith("proxy.tensormap::generic.release"):
        return lambda warp: warp.cta.tensors.proxy.release(warp, warp.cta.ordering)
    if words.startswith("proxy.tensormap::generic.acquire"):
        return _acquire_map(context, instruction)
    if words.startswith("proxy."):
        return _nothing
    if words.startswith("mbarrier_init."):
        return lambda warp: warp.cta.mbarriers.fence(warp)
    semantics = fence_order(instruction)
    return lambda warp: warp.cta.fences.fence(warp, semantics)


def _register_change(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    """The end of a block with `setmaxnreg.inc|dec.sync.aligned.u32 n`, which the whole warpgroup must execute."""
    modifiers = context.modifiers(instruction, 1)
    increase = modifiers.need("inc", "dec") == "inc"
    for word in ("sync", "aligned", "u32"):
        modifiers.need(word)
    modifiers.finish()
    operand = instruction.operands[0]
    count = operand.value if isinstance(operand, Immediate) else None
    if not isinstance(count, int) or not 24 <= count <= 256 or count % 8:
        raise instruction.error("the number of registers is a multiple of 8 from 24 to 256")
    site, change = context.site, RegisterChange(count=count, increase=increase)

    def end(warp: Warp, path: Path) -> RegisterPool | None:
        with warp.narrowed(executing(warp, predicate)):
            group = warp.cta.warpgroups.of(warp, site, short=ViolationKind.CONVENTION) if warp.count else None
        if group is not None:
            if not warp.cta.registers.change(warp, change):
                return warp.cta.registers
            group.note(warp, site, change)
        path.block = ways.following
        return None

    return end


def _acquire_map(context: Lowering, instruction: Instruction) -> Step:
    """`fence.proxy.tensormap::generic.acquire.scope [a], 128`."""
    size, site = instruction.operands[1], context.site
    if not isinstance(size, Immediate) or size.value != TENSOR_MAP_BYTES:
        raise instruction.error(f"the size is {TENSOR_MAP_BYTES}")
    base, offset = context.address(instruction, instruction.operands[0])

    def step(warp: Warp) -> None:
        for thread, address in zip(warp.threads().tolist(), warp.addresses(base, offset).tolist(), strict=True):
            warp.cta.tensors.acquire(warp, site, thread, address)

    return step


def lower_trap(context: Lowering, instruction: Instruction) -> Step:
    """`trap`: the program itself reports an error."""
    context.modifiers(instruction, 0).finish()
    site = context.site
    return lambda warp: warp.cta.fault(ViolationKind.TRAP, site, int(warp.threads()[0]), "the program gave up (trap)")


LOWERERS: dict[str, Lowerer] = {
    **dict.fromkeys(_WITHOUT_EFFECT, lower_nothing),
    **dict.fromkeys(("fence", "membar"), lower_fence),
    "createpolicy": lower_policy,
    "griddepcontrol": lower_dependency,
    "trap": lower_trap,
}
ROWS = {
    "nanosleep": Row(step=lower_nothing, sources_only=True),
    "setmaxnreg": Row(end=_register_change, ends=Ends.WAIT),
}
