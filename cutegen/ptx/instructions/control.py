"""Branches and exits: `bra`, `brx.idx`, `ret`, `exit`.

Source: PTX ISA, "Control Flow Instructions".
"""

from cutegen.ptx.machine import blocks
from cutegen.ptx.machine.blocks import End
from cutegen.ptx.machine.lowering import Lowering, Predicate
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.syntax import Instruction, scalar_type


def _check(context: Lowering, instruction: Instruction, operands: int) -> None:
    modifiers = context.modifiers(instruction, operands)
    modifiers.flag("uni")
    modifiers.finish()


def _branch(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    _check(context, instruction, 1)
    return blocks.branch(predicate, ways.targets[0], ways.following, ways.meet)


def _switch(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    modifiers = context.modifiers(instruction, 2)
    modifiers.flag("uni")
    modifiers.need("idx")
    modifiers.finish()
    if predicate is not None:
        raise instruction.error("a guarded brx is not supported")
    cell = context.source(instruction, instruction.operands[0], scalar_type("u32"))
    return blocks.switch(cell, ways.targets, ways.meet, context.site)


def _leave(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    _check(context, instruction, 0)
    return blocks.leave(predicate, None if predicate is None else ways.following)


def _return(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    """`ret`: from a function to its end, where its lanes meet; from an entry it is an exit."""
    if not ways.targets:
        return _leave(context, instruction, predicate, ways)
    _check(context, instruction, 0)
    return blocks.branch(predicate, ways.targets[0], ways.following, ways.meet)


ROWS = {
    "bra": Row(end=_branch, ends=Ends.BRANCH),
    "brx": Row(end=_switch, ends=Ends.BRANCH, sources_only=True),
    "ret": Row(end=_return, ends=Ends.RETURN),
    "exit": Row(end=_leave, ends=Ends.EXIT),
}
