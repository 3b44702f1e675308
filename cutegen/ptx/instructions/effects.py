"""`trap`, fences for bulk copies, and instructions without an effect that could be seen here: prefetches, hints.

Source: PTX ISA, `trap`, `membar`/`fence`, `prefetch`, `nanosleep`, `griddepcontrol`, `setmaxnreg`. Within a launch
CTAs run one after the other and a warp's accesses stay in order, so a fence has nothing to do but for the async proxy.
"""

from __future__ import annotations

from collections.abc import Callable

from cutegen.ptx.machine.convergence import check_converged
from cutegen.ptx.machine.lowering import Lowering, Step
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Immediate, Instruction
from cutegen.ptx.watch.violations import ViolationKind

_WITHOUT_EFFECT = (
    *("membar", "prefetch", "prefetchu", "discard", "applypriority"),
    *("nanosleep", "griddepcontrol", "pmevent"),
)
_ASYNC_FENCES = ("proxy.async", "proxy.async.shared::cta", "proxy.async.shared::cluster")


def lower_nothing(context: Lowering, instruction: Instruction) -> Step:
    """An instruction that changes nothing."""
    return _nothing


def _nothing(warp: Warp) -> None:
    """Does nothing."""


def lower_fence(context: Lowering, instruction: Instruction) -> Step:
    """`fence`: `.proxy.async` and `.mbarrier_init` let bulk copies see what was written; others have nothing to do."""
    context.modifiers(instruction, (0, 2))
    words = ".".join(instruction.parts[1:])
    if words == "proxy.async.global":
        return _nothing
    if words in _ASYNC_FENCES:
        return lambda warp: warp.cta.ordering.proxy_fence(warp)
    if "mbarrier_init" in instruction.parts:
        if words != "mbarrier_init.release.cluster":
            raise instruction.error("expected fence.mbarrier_init.release.cluster")
        return lambda warp: warp.cta.mbarriers.fence(warp)
    return _nothing


def lower_setmaxnreg(context: Lowering, instruction: Instruction) -> Step:
    """`setmaxnreg.inc|dec.sync.aligned.u32 n`: registers are not counted here; the whole warp must execute it."""
    modifiers = context.modifiers(instruction, 1)
    modifiers.need("inc", "dec")
    for word in ("sync", "aligned", "u32"):
        modifiers.need(word)
    modifiers.finish()
    operand = instruction.operands[0]
    count = operand.value if isinstance(operand, Immediate) else None
    if not isinstance(count, int) or not 24 <= count <= 256 or count % 8:
        raise instruction.error("the number of registers is a multiple of 8 from 24 to 256")
    site = context.site
    return lambda warp: check_converged(warp, site)


def lower_trap(context: Lowering, instruction: Instruction) -> Step:
    """`trap`: the program says itself that something is wrong."""
    context.modifiers(instruction, 0).finish()
    site = context.site
    return lambda warp: warp.cta.fault(ViolationKind.TRAP, site, int(warp.threads()[0]), "the program gave up (trap)")


LOWERERS: dict[str, Callable[[Lowering, Instruction], Step]] = {
    **dict.fromkeys(_WITHOUT_EFFECT, lower_nothing),
    "fence": lower_fence,
    "setmaxnreg": lower_setmaxnreg,
    "trap": lower_trap,
}
