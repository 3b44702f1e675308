"""Prepares an entry to run: every instruction becomes a step, every operand a cell, every variable an address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.instructions import lower_instruction, row_of
from cutegen.ptx.machine import blocks as ends
from cutegen.ptx.machine.alike import Alike
from cutegen.ptx.machine.blocks import Arrival, Awaited, Block, End, executing, guarded
from cutegen.ptx.machine.calls import callees
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.frame import Frame
from cutegen.ptx.machine.layout import lay_out
from cutegen.ptx.machine.lowering import Lowering, Predicate, Step
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.text.flow import (
    Ends,
    FlowGraph,
    RegisterKey,
    Written,
    branch_targets,
    build_flow,
    function_end,
    registers_of,
    registers_of_operands,
    unsure_reads,
    written_registers,
)
from cutegen.ptx.text.link import link
from cutegen.ptx.text.syntax import Entry, Instruction, Module, Register
from cutegen.ptx.text.types import scalar_type
from cutegen.ptx.watch.held_registers import register_list
from cutegen.ptx.watch.shadow import MAX_SITES
from cutegen.ptx.watch.sites import SiteTable
from cutegen.ptx.watch.violations import ViolationKind


@dataclass(frozen=True, slots=True)
class _Rows:
    """The row of each instruction of an entry, and the registers that it writes."""

    rows: tuple[Row, ...]
    written: Written

    @classmethod
    def of(cls, entry: Entry) -> _Rows:
        rows = tuple(row_of(instruction) for instruction in entry.instructions)
        both = zip(entry.instructions, rows, strict=True)
        return cls(rows, [written_registers(each, sources_only=row.sources_only) for each, row in both])

    def held(self, entry: Entry) -> set[int]:
        """The rows of the 32-bit file that some instruction holds after it was issued."""
        both = zip(entry.instructions, self.rows, strict=True)
        return set().union(*(row.holds(each) for each, row in both if row.holds is not None))

    def filled(self, entry: Entry) -> set[int]:
        """The rows of the 32-bit file that receive their values after an instruction, and those they are moved to."""
        both = zip(entry.instructions, self.rows, strict=True)
        found = set[int]().union(*(row.fills(each) for each, row in both if row.fills is not None))
        moves = [pair for pair in map(_move_of, entry.instructions) if pair is not None] if found else []
        grows = True
        while grows:
            more = {to for to, source in moves if source in found} - found
            found, grows = found | more, bool(more)
        return found


def _move_of(instruction: Instruction) -> tuple[int, int] | None:
    """(destination, source) of a `mov` from one 32-bit register to another."""
    registers = [each for each in instruction.operands if isinstance(each, Register) and each.file_bits == 32]
    if instruction.parts[0] != "mov" or len(registers) != len(instruction.operands):
        return None
    return registers[0].row, registers[1].row


def prepare(module: Module, entry: Entry) -> Executable:
    """Lowers `entry`.

    Raises:
        PtxSyntaxError: text that cannot be read, or the first unknown instruction, with its line.
    """
    if entry.error is not None:
        raise entry.error
    entry = link(module, entry)
    if len(entry.instructions) >= MAX_SITES:
        message = f"{entry.name} has {len(entry.instructions)} instructions; fewer than {MAX_SITES} are supported"
        raise PtxSyntaxError(message, line=entry.line)
    layout = lay_out(module, entry)
    frame = Frame(dict(entry.rows))
    context = Lowering(frame, layout.addresses, layout.spaces)
    rows = _Rows.of(entry)
    graph = build_flow(entry, [row.ends for row in rows.rows])
    unsure = unsure_reads(entry, graph, rows.written)
    frame.tracked = set().union(*unsure.values())
    context.know_functions(entry, callees(entry, graph.block_at, frame.tracked), layout)
    frame.held_rows, frame.filled_rows = rows.held(entry), rows.filled(entry)
    blocks = tuple(_BlockLowering(context, entry, rows, graph, n).lower(unsure) for n in range(len(graph.blocks)))
    asking = {site for site in context.semantics if entry.instructions[site].parts[0] in ("ld", "atom")}
    blocks = tuple(replace(b, asks=not asking.isdisjoint(range(b.first, b.last))) for b in blocks)
    return Executable(
        entry=entry,
        frame=frame,
        blocks=blocks,
        layout=layout,
        granule_bytes=min(context.shared_access_bytes, default=16),
        sites=_site_table(context, rows.rows),
        semantics=context.semantics,
        global_granule_bytes=min(context.global_access_bytes, default=16),
        ctas_communicate=context.ctas_communicate,
        names_global_variables=context.names_global_variables,
        keeps_seen=any(row.passes_seen for row in rows.rows),
    )


def _site_table(context: Lowering, rows: Sequence[Row]) -> SiteTable:
    """Return the properties of each instruction that the watchers look up."""
    reach, size = np.zeros(len(rows) + 1, np.int64), np.zeros(len(rows) + 1, np.int64)
    constant = np.zeros(len(rows) + 1, bool)
    for site, semantics in context.semantics.items():
        reach[site] = semantics.reach
    for site, size_bytes in context.element_bytes.items():
        size[site] = size_bytes
    constant[list(context.constant_sites)] = True
    return SiteTable(reach, size, constant, {site: row.agent for site, row in enumerate(rows) if row.agent is not None})


def _predicate(context: Lowering, instruction: Instruction) -> Predicate | None:
    """The cell of an instruction's guard, and whether the guard is negated."""
    guard = instruction.guard
    return None if guard is None else (context.source(instruction, guard.register, scalar_type("pred")), guard.negated)


class _BlockLowering:
    """Lowers one basic block."""

    def __init__(self, context: Lowering, entry: Entry, rows: _Rows, graph: FlowGraph, number: int) -> None:
        self._context, self._entry, self._rows, self._graph = context, entry, rows, graph
        self._block, self._meet = graph.blocks[number], graph.meets[number]

    def lower(self, unsure: dict[int, frozenset[RegisterKey]]) -> Block:
        block, steps = self._block, list[Step]()
        for index in range(block.first, block.last):
            self._context.site = index
            instruction = self._entry.instructions[index]
            if index in unsure:
                steps.append(_check_assigned(self._context, instruction, unsure[index]))
            if self._rows.rows[index].ends is not Ends.NOTHING:
                return Block(block.first, block.last, tuple(steps), self._end(instruction, index))
            _append(steps, self._step(instruction, index))
        return Block(block.first, block.last, tuple(steps), ends.fall_through(self._graph.block_at[block.last]))

    def _step(self, instruction: Instruction, index: int) -> Step:
        context, written = self._context, self._rows.written[index]
        step = _with_assignments(context, written, lower_instruction(context, instruction))
        if self._rows.rows[index].holds is None:
            step = _with_held_registers(context, instruction, written, step)
        if self._rows.rows[index].fills is None:
            step = _with_filled_registers(context, instruction, written, step)
        predicate = _predicate(context, instruction)
        return step if predicate is None else guarded(step, predicate)

    def _end(self, instruction: Instruction, index: int) -> End:
        row, predicate = self._rows.rows[index], _predicate(self._context, instruction)
        if row.end is None:
            raise instruction.error(f"instruction {instruction.parts[0]} is not supported")
        end = row.end(self._context, instruction, predicate, self._ways(instruction, row))
        return _end_with_assignments(self._context, self._rows.written[index], predicate, end)

    def _ways(self, instruction: Instruction, row: Row) -> Ways:
        """Every text ends with a `ret`: only a branch may have no block after it, and then does not need one."""
        block_at, targets = self._graph.block_at, tuple[int, ...]()
        if row.ends is Ends.BRANCH:
            labels = branch_targets(self._entry, instruction)
            targets = tuple(block_at[self._entry.labels[label]] for label in labels)
        end = function_end(self._entry, self._block.last - 1) if row.ends is Ends.RETURN else None
        if end is not None:
            targets = (block_at[end],)
        return Ways(following=block_at.get(self._block.last, -1), targets=targets, meet=self._meet)


def _append(steps: list[Step], step: Step) -> None:
    """Add a step, or merge it with the last one if both instructions can be executed at once."""
    last = steps[-1] if steps else None
    both = last.joined(step) if isinstance(last, Alike) and isinstance(step, Alike) else None
    if both is None:
        steps.append(step)
    else:
        steps[-1] = both


def _with_assignments(context: Lowering, written: frozenset[RegisterKey], step: Step) -> Step:
    """Return the step, extended to record the watched registers among those that it writes, if there are any."""
    keys = tuple(written & context.frame.tracked)
    if not keys:
        return step

    def run(warp: Warp) -> None:
        step(warp)
        for key in keys:
            warp.defined[key] |= warp.mask

    return run


def _end_with_assignments(
    context: Lowering, written: frozenset[RegisterKey], predicate: Predicate | None, end: End
) -> End:
    """The same for the end of a block: a wait for an mbarrier, once it is done, and `bar.red`, when it arrives."""
    keys = tuple(written & context.frame.tracked)
    if not keys:
        return end

    def run(warp: Warp, path: Path) -> Arrival | Awaited | None:
        lanes = executing(warp, predicate)
        blocking = end(warp, path)
        if blocking is None or isinstance(blocking, Arrival):
            for key in keys:
                warp.defined[key] |= lanes
        return blocking

    return run


def _with_held_registers(
    context: Lowering, instruction: Instruction, written: frozenset[RegisterKey], step: Step
) -> Step:
    """Return the step, extended to check first whether an earlier instruction holds the registers."""
    rows = context.frame.held_rows
    if not rows:
        return step
    touched = {register.row: register.name for register in registers_of(instruction) if register.file_bits == 32}
    registers = register_list([(row, name) for row, name in touched.items() if row in rows])
    if not len(registers.rows):
        return step
    changed = {row for bits, row in written if bits == 32} & rows
    site, written_rows, moves = context.site, np.array(sorted(changed), np.intp), instruction.parts[0] == "mov"

    def run(warp: Warp) -> None:
        warp.held.touch(warp, site, registers, written_rows, moves=moves)
        step(warp)

    return run


def _with_filled_registers(
    context: Lowering, instruction: Instruction, written: frozenset[RegisterKey], step: Step
) -> Step:
    """Return the step, extended to complete first the loads from tensor memory whose registers it uses."""
    filled = context.frame.filled_rows
    if not filled:
        return step
    changed = {row for bits, row in written if bits == 32} & filled
    touched = {register.row for register in registers_of(instruction) if register.file_bits == 32} & filled
    if not touched:
        return step
    operands = instruction.operands[1:] if written else instruction.operands
    used = {register.row for register in registers_of_operands(operands) if register.file_bits == 32} & filled
    reads, writes = np.array(sorted(used), np.intp), np.array(sorted(changed), np.intp)
    moves = _move_of(instruction) is not None

    def run(warp: Warp) -> None:
        tick = warp.loads.touch(reads, writes, moves=moves)
        if tick is not None:
            warp.cta.cluster.tensor.order.use(warp, tick)
        step(warp)

    return run


def _check_assigned(context: Lowering, instruction: Instruction, keys: frozenset[RegisterKey]) -> Step:
    """The step that reports active lanes that read a register which they never wrote."""
    site = context.site
    guard = _predicate(context, instruction)
    guard_row = None if instruction.guard is None else (1, instruction.guard.register.row)

    def run(warp: Warp) -> None:
        for key in keys:
            reading = warp.mask if key == guard_row else executing(warp, guard)
            missing = reading & ~warp.defined[key]
            if missing.any():
                thread = warp.thread0 + int(np.argmax(missing))
                message = f"a {key[0]}-bit register is read that this thread never wrote"
                warp.cta.fault(ViolationKind.UNINITIALIZED, site, thread, message)

    return run
