"""Variables that addresses are computed from: an access that begins at one must not end up in another.

PTX addresses are numbers, but an address that is a variable's plus or minus numbers was meant for this variable. The
registers that hold one are followed through the control flow. A sum or difference of two addresses, and anything else
that is computed from one, is no longer followed, nor is an address that comes from memory.
"""

from collections.abc import Collection, Sequence
from typing import TypeAlias

from cutegen.ptx.text.flow import FlowGraph, RegisterKey, Written, keys_of
from cutegen.ptx.text.syntax import Address, Entry, Instruction, Operand, Register, Symbol

_LOST = ""
"""Stands for a name: the address of several variables, or something else that is computed from an address."""
Bases: TypeAlias = dict[RegisterKey, str]
"""The variable that each register's address is computed from; registers with plain numbers are left out."""
_MOVES = ("mov", "cvt", "cvta")
_SUMS = ("add", "or", "xor", "and")
_FIRST_ADDRESS = ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix", "mbarrier", "cp")


def accessed_variables(entry: Entry, graph: FlowGraph, written: Written, names: Collection[str]) -> dict[int, str]:
    """The variable in `names` at whose addresses an instruction accesses memory, by instruction.

    `written` has the registers that each instruction writes.
    """
    at_start = dict[int, Bases]()
    pending = [(root, Bases()) for root in graph.roots]
    while pending:
        number, bases = pending.pop()
        before = at_start.get(number)
        merged = bases if before is None else _merged(before, bases)
        if merged == before:
            continue
        at_start[number] = merged
        block, after = graph.blocks[number], dict(merged)
        for index in range(block.first, block.last):
            _follow(entry.instructions[index], written[index], after, names)
        pending += [(successor, after) for successor in block.successors if successor is not None]
    found = dict[int, str]()
    for number, bases in at_start.items():
        block, after = graph.blocks[number], dict(bases)
        for index in range(block.first, block.last):
            instruction = entry.instructions[index]
            name = _accessed(instruction, after, names)
            if name:
                found[index] = name
            _follow(instruction, written[index], after, names)
    return found


def _merged(a: Bases, b: Bases) -> Bases:
    """The bases where two paths meet."""
    return {key: a[key] if a.get(key) == b.get(key) else _LOST for key in (*a, *b) if key in a or key in b}


def _accessed(instruction: Instruction, bases: Bases, names: Collection[str]) -> str:
    """The variable that the instruction's shared address begins at, if it is known."""
    if instruction.parts[0] not in _FIRST_ADDRESS:
        return _LOST
    places = [operand for operand in instruction.operands if isinstance(operand, Address)]
    if instruction.parts[:3] == ("cp", "async", "bulk"):
        places = [place for place in places if not place.coordinates] if any(p.coordinates for p in places) else []
    return _base(places[0].base, bases, names) or _LOST if places else _LOST


def _base(operand: Operand, bases: Bases, names: Collection[str]) -> str | None:
    """The variable that an operand is computed from; None for a plain number."""
    if isinstance(operand, Symbol):
        return operand.name if operand.name in names else None
    if isinstance(operand, Register):
        return bases.get((operand.file_bits, operand.row))
    return None


def _follow(instruction: Instruction, written: frozenset[RegisterKey], bases: Bases, names: Collection[str]) -> None:
    """Updates `bases` for what the instruction writes."""
    if not written:
        return
    base = _computed(instruction, [_base(operand, bases, names) for operand in instruction.operands[1:]])
    if base is None and any(key in bases for key in keys_of(instruction.operands[1:])):
        base = _LOST if not _reads_memory(instruction) else None
    for key in written:
        before = bases.get(key)
        if instruction.guard is not None and before != base:
            base = _LOST
        if base is None:
            bases.pop(key, None)
        else:
            bases[key] = base


def _reads_memory(instruction: Instruction) -> bool:
    return any(isinstance(operand, Address) for operand in instruction.operands)


def _computed(instruction: Instruction, sources: Sequence[str | None]) -> str | None:
    """The base of a result, from those of the sources; None for a plain number, or if one cannot tell."""
    named = [source for source in sources if source is not None]
    if not named:
        return None
    opcode = instruction.parts[0]
    if opcode in _MOVES and len(sources) == 1:
        return sources[0]
    if opcode in _SUMS and len(named) == 1:
        return named[0]
    if opcode == "sub" and sources[0] is not None and len(named) == 1:
        return sources[0]
    if opcode == "mad" and sources[2] is not None and len(named) == 1:
        return sources[2]
    if opcode == "selp" and sources[0] == sources[1]:
        return sources[0]
    return _LOST
