"""Reads of registers whose values may be undefined: only these are watched while a kernel runs.

A register is definitely assigned at a read if every path from the start to it writes the register. What is computed
from a register that is not is undefined, too, and so are the results of shuffles from lanes that do not take part.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cutegen.ptx.text.flow import BlockRange, FlowGraph, RegisterKey, Written, read_registers
from cutegen.ptx.text.syntax import Entry, Instruction, Vector


@dataclass(frozen=True, slots=True)
class Suspects:
    """Reads of possibly undefined values: the registers of each instruction, and those that may never be written."""

    reads: dict[int, frozenset[RegisterKey]]
    unwritten: frozenset[RegisterKey]

    def registers(self) -> frozenset[RegisterKey]:
        """All registers in the reads."""
        return frozenset[RegisterKey]().union(*self.reads.values())


def suspect_reads(
    entry: Entry, graph: FlowGraph, written: Written, carries: Sequence[bool], loose: Collection[int]
) -> Suspects:
    """Find the reads of values that may be undefined.

    `written` has the registers that each instruction writes, and `carries` whether it only computes them from others.
    `loose` instructions may give an undefined value by themselves.
    """
    unsure = _unsure_reads(entry, graph, written)
    unwritten = frozenset[RegisterKey]().union(*unsure.values())
    if not unwritten and not loose:
        return Suspects({}, unwritten)
    never = frozenset[RegisterKey]().union(*map(read_registers, entry.instructions, written))
    never -= frozenset[RegisterKey]().union(*written)
    reads = [
        read_registers(each, changed) - (never if _only_moves_bytes(each) else frozenset())
        for each, changed in zip(entry.instructions, written, strict=True)
    ]
    spoiled = _spoiled(unwritten.union(*(written[index] for index in loose)), reads, written, carries)
    bits = {key: 1 << place for place, key in enumerate(spoiled)}
    effects = [
        _Effect(
            reads=_bits_of(reads[index], bits),
            writes=_bits_of(written[index], bits),
            carries=carries[index],
            is_loose=index in loose,
            is_guarded=instruction.guard is not None,
        )
        for index, instruction in enumerate(entry.instructions)
    ]
    found = _suspect_bits(graph, effects)
    names = list(bits)
    by_index = {
        index: frozenset(names[place] for place in range(hit.bit_length()) if hit >> place & 1)
        for index, hit in found.items()
    }
    return Suspects(by_index, unwritten)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """An instruction's effect on possibly undefined registers, as bits."""

    reads: int
    writes: int
    carries: bool
    is_loose: bool
    is_guarded: bool

    def after(self, undefined: int) -> int:
        """The registers that may be undefined after it, from those before it."""
        if self.is_loose or (self.carries and undefined & self.reads):
            return undefined | self.writes
        return undefined if self.is_guarded else undefined & ~self.writes


def _spoiled(
    first: frozenset[RegisterKey], reads: Sequence[frozenset[RegisterKey]], written: Written, carries: Sequence[bool]
) -> set[RegisterKey]:
    """`first`, and all registers that are computed from them in any order of the instructions."""
    readers: dict[RegisterKey, list[int]] = {}
    for index, keys in enumerate(reads):
        for key in keys if carries[index] else ():
            readers.setdefault(key, []).append(index)
    spoiled, pending = set(first), list(first)
    while pending:
        for index in readers.get(pending.pop(), ()):
            new = written[index] - spoiled
            spoiled |= new
            pending.extend(new)
    return spoiled


def _suspect_bits(graph: FlowGraph, effects: Sequence[_Effect]) -> dict[int, int]:
    """The registers that each instruction reads and that may be undefined there, if there are any."""
    everything = 0
    for effect in effects:
        everything |= effect.reads | effect.writes
    touching = [[i for i in range(b.first, b.last) if effects[i].reads | effects[i].writes] for b in graph.blocks]
    at_start, pending = dict.fromkeys(graph.roots, everything), list(graph.roots)
    while pending:
        number = pending.pop()
        undefined = at_start[number]
        for index in touching[number]:
            undefined = effects[index].after(undefined)
        for successor in graph.blocks[number].successors:
            if successor is None:
                continue
            before = at_start.get(successor)
            both = undefined if before is None else before | undefined
            if both != before:
                at_start[successor] = both
                pending.append(successor)
    found = dict[int, int]()
    for number, undefined in at_start.items():
        for index in touching[number]:
            if undefined & effects[index].reads:
                found[index] = undefined & effects[index].reads
            undefined = effects[index].after(undefined)
    return found


@dataclass(frozen=True, slots=True)
class _Uses:
    """Uses of registers in a block: reads without an earlier write in the block, by instruction, and its writes."""

    exposed: dict[int, frozenset[RegisterKey]]
    assigned: frozenset[RegisterKey]


def _uses(entry: Entry, block: BlockRange, written: Written) -> _Uses:
    exposed, assigned = dict[int, frozenset[RegisterKey]](), set[RegisterKey]()
    for index in range(block.first, block.last):
        instruction = entry.instructions[index]
        missing = read_registers(instruction, written[index]) - assigned
        if missing:
            exposed[index] = missing
        if instruction.guard is None:
            assigned |= written[index]
    return _Uses(exposed, frozenset(assigned))


def _unsure_reads(entry: Entry, graph: FlowGraph, written: Written) -> dict[int, frozenset[RegisterKey]]:
    """Return, for each instruction, the registers that it reads and that some path to it has not written.

    `written` has what each instruction writes.

    LLVM expresses an undefined value as a register that no instruction writes. Instructions that only move its bytes
    may read it, because the bytes are often never used: what they move stays poison.
    """
    uses = [_uses(entry, block, written) for block in graph.blocks]
    exposed = {key for use in uses for keys in use.exposed.values() for key in keys}
    undefined = exposed - frozenset[RegisterKey]().union(*written)
    bits = {key: 1 << place for place, key in enumerate(exposed)}
    at_start = _assigned_at_start(graph, [_bits_of(use.assigned, bits) for use in uses])
    unsure: dict[int, frozenset[RegisterKey]] = {}
    for number, assigned in at_start.items():
        for index, keys in uses[number].exposed.items():
            missing = frozenset(key for key in keys if not assigned & bits[key])
            if _only_moves_bytes(entry.instructions[index]):
                missing -= undefined
            if missing:
                unsure[index] = missing
    return unsure


def _bits_of(keys: frozenset[RegisterKey], bits: dict[RegisterKey, int]) -> int:
    """The subset of `keys` that have a bit; most registers are read only after their own block has written them."""
    return sum(bits[key] for key in keys if key in bits)


def _assigned_at_start(graph: FlowGraph, assigned: list[int]) -> dict[int, int]:
    """Return the registers that every path to each reachable block has written, as bits."""
    at_start, pending = dict.fromkeys(graph.roots, 0), list(graph.roots)
    while pending:
        number = pending.pop()
        after = at_start[number] | assigned[number]
        for successor in graph.blocks[number].successors:
            if successor is None:
                continue
            before = at_start.get(successor)
            both = after if before is None else before & after
            if both != before:
                at_start[successor] = both
                pending.append(successor)
    return at_start


def _only_moves_bytes(instruction: Instruction) -> bool:
    """`prmt`, and a `mov` that packs a vector into one register."""
    opcode = instruction.parts[0]
    return opcode == "prmt" or (opcode == "mov" and any(isinstance(x, Vector) for x in instruction.operands[1:]))
