"""The memory order that an instruction specifies: `.relaxed.gpu`, `.volatile`, `.acq_rel.cta`.

Source: PTX ISA, `ld`, `st`, `atom`, `red`, `fence`, `membar`.
"""

from __future__ import annotations

from cutegen.ptx.machine.lowering import Modifiers
from cutegen.ptx.text.syntax import Instruction
from cutegen.ptx.watch.semantics import SCOPES, Semantics

_MEMBARS = {"cta": "cta", "gl": "gpu", "sys": "sys"}


def take_access_order(instruction: Instruction, modifiers: Modifiers, order: str) -> Semantics | None:
    """The semantics of a load (`order` acquire) or a store (`order` release); None if it is weak."""
    if modifiers.flag("volatile"):
        return Semantics.of("relaxed", "sys")
    is_mmio = modifiers.flag("mmio")
    word = modifiers.one_of("relaxed", order, "weak")
    scope = modifiers.one_of(*SCOPES)
    if is_mmio and (word, scope) != ("relaxed", "sys"):
        raise instruction.error(".mmio needs .relaxed.sys")
    if word in (None, "weak"):
        if scope is not None:
            raise instruction.error(f"a scope needs an order: .relaxed.{scope} or .{order}.{scope}")
        return None
    if scope is None:
        raise instruction.error(f".{word} needs a scope: .{word}.cta, .cluster, .gpu or .sys")
    return Semantics.of(str(word), scope)


def take_atomic_order(modifiers: Modifiers) -> Semantics:
    """The semantics of `atom` and `red`: relaxed at scope gpu by default."""
    order = modifiers.one_of("relaxed", "acquire", "release", "acq_rel") or "relaxed"
    return Semantics.of(order, modifiers.one_of(*SCOPES) or "gpu")


def fence_order(instruction: Instruction) -> Semantics:
    """The semantics of a `fence` with a scope, or of a `membar`."""
    words = instruction.parts[1:]
    if instruction.parts[0] == "membar":
        return Semantics.of("sc", _MEMBARS[words[0]])
    order = next((word for word in words if word not in SCOPES), "acq_rel")
    return Semantics.of(order, next(word for word in words if word in SCOPES))
