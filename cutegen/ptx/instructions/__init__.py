"""The instructions, by family: each turns one kind of instruction into a step.

Which modifiers and types an instruction may have is said once. For an instruction in the table of `forms` the table
alone says it: `lower_instruction` asks it first, and a lowerer takes the words it finds and looks out for no others.
The lowerer of any other instruction, such as an access of memory or a barrier, refuses what it does not know.
"""

from __future__ import annotations

from cutegen.ptx.instructions import (
    atomics,
    cluster,
    collective,
    compare,
    convert,
    copies,
    effects,
    floating,
    integer,
    matrix,
    mbarrier,
    memory,
    wgmma,
)
from cutegen.ptx.instructions.forms import check_form
from cutegen.ptx.machine.lowering import Lowering, Step
from cutegen.ptx.text.syntax import Instruction

_LOWERERS = {
    **integer.LOWERERS,
    **compare.LOWERERS,
    **convert.LOWERERS,
    **memory.LOWERERS,
    **cluster.LOWERERS,
    **atomics.LOWERERS,
    **copies.LOWERERS,
    **effects.LOWERERS,
    **collective.LOWERERS,
    **matrix.LOWERERS,
    **mbarrier.LOWERERS,
    **wgmma.LOWERERS,
}


def lower_instruction(context: Lowering, instruction: Instruction) -> Step:
    """The step that does what `instruction` says, in the active lanes.

    Raises:
        PtxSyntaxError: the instruction, a modifier or an operand is not known or does not fit.
    """
    check_form(instruction)
    name = instruction.parts[0]
    is_float = name in floating.LOWERERS and (
        name not in _LOWERERS or bool({*floating.FLOATS, floating.F32X2} & set(instruction.parts))
    )
    table = floating.LOWERERS if is_float else _LOWERERS
    if name not in table:
        raise instruction.error(f"instruction {name} is not supported")
    return table[name](context, instruction)
