"""The instructions, by family: each turns one kind of instruction into a step.

The modifiers and types that an instruction may have are defined in one place. For an instruction in the table of
`forms` this is the table: `lower_instruction` checks it first, and the lowerer takes the words that it finds without
further checks. The lowerer of any other instruction, such as a memory access or a barrier, refuses unknown words.
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
from cutegen.ptx.instructions.refused import check_modeled
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
    """The step that executes `instruction` in the active lanes.

    Raises:
        PtxSyntaxError: the instruction, a modifier or an operand is unknown or does not fit.
    """
    check_modeled(instruction)
    check_form(instruction)
    name = instruction.parts[0]
    is_float = name in floating.LOWERERS and (
        name not in _LOWERERS or bool({*floating.FLOATS, floating.F32X2} & set(instruction.parts))
    )
    table = floating.LOWERERS if is_float else _LOWERERS
    if name not in table:
        raise instruction.error(f"instruction {name} is not supported")
    return table[name](context, instruction)
