"""The instructions, by family: each module has the rows of one, or their lowerers where a row has nothing else to say.

The modifiers and types that an instruction may have are defined in one place. For an instruction in the table of
`forms` this is the table: `lower_instruction` checks it first, and the lowerer takes the words that it finds without
further checks. The lowerer of any other instruction, such as a memory access or a barrier, refuses unknown words.
"""

from cutegen.ptx.instructions import (
    barriers,
    calls,
    cluster,
    collective,
    compare,
    control,
    convert,
    copies,
    effects,
    floating,
    integer,
    launch_control,
    matrix,
    mbarrier,
    memory,
    tcgen05,
    tensormap,
    wgmma,
)
from cutegen.ptx.instructions.forms import check_form, check_modeled
from cutegen.ptx.machine.lowering import Lowering, Step
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.text.syntax import Instruction

_BY_NAME = (integer, compare, convert, cluster, memory, effects, matrix)
"""Modules whose instructions end nothing, hold nothing, and are issued by each thread for itself."""
_ROWS = {
    **{name: Row(step=lowerer) for each in _BY_NAME for name, lowerer in each.LOWERERS.items()},
    **barriers.ROWS,
    **calls.ROWS,
    **cluster.ROWS,
    **collective.ROWS,
    **compare.ROWS,
    **control.ROWS,
    **copies.ROWS,
    **effects.ROWS,
    **integer.ROWS,
    **launch_control.ROWS,
    **matrix.ROWS,
    **mbarrier.ROWS,
    **memory.ROWS,
    **tcgen05.ROWS,
    **tensormap.ROWS,
    **wgmma.ROWS,
}
_FLOATING = {name: Row(step=lowerer) for name, lowerer in floating.LOWERERS.items()}
_UNKNOWN = Row()
_MOST_WORDS = max(name.count(".") for name in _ROWS) + 1


def row_of(instruction: Instruction) -> Row:
    """The row of `instruction`: that of the longest run of its first words that has one; an empty one if it is unknown.

    >>> from cutegen.ptx.text.syntax import Instruction
    >>> words = ("bar", "red", "popc", "u32")
    >>> row_of(Instruction(line=1, text="", guard=None, parts=words, operands=())).ends.name
    'BARRIER'
    """
    name = instruction.parts[0]
    if name in _FLOATING and (name not in _ROWS or bool({*floating.FLOATS, floating.F32X2} & set(instruction.parts))):
        return _FLOATING[name]
    for count in range(min(_MOST_WORDS, len(instruction.parts)), 0, -1):
        row = _ROWS.get(".".join(instruction.parts[:count]))
        if row is not None:
            return row
    return _UNKNOWN


def lower_instruction(context: Lowering, instruction: Instruction) -> Step:
    """The step that executes `instruction` in the active lanes.

    Raises:
        PtxSyntaxError: the instruction, a modifier or an operand is unknown or does not fit.
    """
    check_modeled(instruction)
    check_form(instruction)
    row = row_of(instruction)
    if row.step is None:
        raise instruction.error(f"instruction {instruction.parts[0]} is not supported")
    return row.step(context, instruction)
