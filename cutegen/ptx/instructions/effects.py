"""`trap`, and instructions without an effect that could be seen here: fences, prefetches, hints.

Source: PTX ISA, `trap`, `membar`/`fence`, `prefetch`, `nanosleep`, `griddepcontrol`, `setmaxnreg`. Within a launch
CTAs run one after the other and a warp's accesses stay in order, so a fence has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable

from cutegen.ptx.lowering import Lowering, Step
from cutegen.ptx.syntax import Instruction
from cutegen.ptx.violations import ViolationKind
from cutegen.ptx.warp import Warp

_WITHOUT_EFFECT = (
    *("membar", "fence", "prefetch", "prefetchu", "discard", "applypriority"),
    *("nanosleep", "griddepcontrol", "setmaxnreg", "pmevent"),
)


def lower_nothing(context: Lowering, instruction: Instruction) -> Step:
    """An instruction that changes nothing."""
    return _nothing


def _nothing(warp: Warp) -> None:
    """Does nothing."""


def lower_trap(context: Lowering, instruction: Instruction) -> Step:
    """`trap`: the program says itself that something is wrong."""
    context.modifiers(instruction, 0).finish()
    site = context.site
    return lambda warp: warp.cta.fault(ViolationKind.TRAP, site, int(warp.threads()[0]), "the program gave up (trap)")


LOWERERS: dict[str, Callable[[Lowering, Instruction], Step]] = {
    **dict.fromkeys(_WITHOUT_EFFECT, lower_nothing),
    "trap": lower_trap,
}
