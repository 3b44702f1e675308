"""Prepares an entry to run: every instruction becomes a step, every operand a cell, every variable an address."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.instructions import lower_instruction, row_of
from cutegen.ptx.machine import blocks as ends
from cutegen.ptx.machine.blocks import Arrival, Awaited, Block, End, executing, guarded
from cutegen.ptx.machine.calls import callees
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.frame import Frame
from cutegen.ptx.machine.layout import MemoryLayout, lay_out
from cutegen.ptx.machine.lowering import FusedStep, Lowering, Predicate, Step
from cutegen.ptx.machine.origins import define
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.shared import Extent
from cutegen.ptx.machine.undefined import carry_rule, define_rule, matter_rule
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.text import flow
from cutegen.ptx.text.bases import accessed_variables
from cutegen.ptx.text.link import link
from cutegen.ptx.text.syntax import Address, Entry, Instruction, Module, Register, scalar_type
from cutegen.ptx.text.undefined import Suspects, suspect_reads
from cutegen.ptx.watch.actor import SiteTable
from cutegen.ptx.watch.async_registers import register_list
from cutegen.ptx.watch.shadow import MAX_SITES
from cutegen.ptx.watch.violations import ViolationKind


@dataclass(frozen=True, slots=True)
class _Rows:
    """The row of each instruction of an entry, and the registers that it writes."""

    rows: tuple[Row, ...]
    written: flow.Written

    @classmethod
    def of(cls, entry: Entry) -> Self:
        rows = tuple(row_of(instruction) for instruction in entry.instructions)
        both = zip(entry.instructions, rows, strict=True)
        return cls(rows, [flow.written_registers(each, sources_only=row.sources_only) for each, row in both])

    def only_compute(self, entry: Entry) -> list[bool]:
        """True for each instruction that does nothing but write registers."""
        return [row.only_computes(each) for row, each in zip(self.rows, entry.instructions, strict=True)]

    def may_miss(self, entry: Entry, *, follows_memory: bool) -> frozenset[int]:
        """The instructions that may give an undefined result by themselves."""
        both = enumerate(zip(self.rows, entry.instructions, strict=True))
        return frozenset(
            index
            for index, (row, each) in both
            if (row.may_miss is not None and row.may_miss(each)) or (row.follows and follows_memory)
        )

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


def prepare(module: Module, entry: Entry, *, follows_memory: bool = False) -> Executable:
    """Lowers `entry`; `follows_memory`: undefined values are followed through memory.

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
    context = Lowering(frame, layout.addresses, layout.spaces, follows_memory=follows_memory)
    rows = _Rows.of(entry)
    graph = flow.build_flow(entry, [row.ends for row in rows.rows])
    loose = rows.may_miss(entry, follows_memory=follows_memory)
    suspects = suspect_reads(entry, graph, rows.written, rows.only_compute(entry), loose)
    frame.watched, frame.unwritten = suspects.registers(), suspects.unwritten
    context.know_functions(entry, callees(entry, graph.block_at, frame.unwritten), layout)
    frame.exits = frozenset(n for n in range(len(graph.blocks)) if _only_exits(entry, graph, rows, n))
    frame.held_rows, frame.filled_rows = rows.held(entry), rows.filled(entry)
    blocks = tuple(_BlockLowering(context, entry, rows, graph, n).lower(suspects) for n in range(len(graph.blocks)))
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
        variables=_variables(entry, graph, rows, layout),
        keeps_seen=any(row.passes_seen for row in rows.rows),
    )


def _only_exits(entry: Entry, graph: flow.FlowGraph, rows: _Rows, number: int) -> bool:
    """Return whether a block of the entry, not of a function, is a `ret` or `exit` of all of its lanes."""
    block = graph.blocks[number]
    leaves = (
        rows.rows[block.first].ends in (flow.Ends.EXIT, flow.Ends.RETURN)
        and entry.instructions[block.first].guard is None
    )
    return leaves and block.last == block.first + 1 and flow.function_end(entry, block.first) is None


def _variables(entry: Entry, graph: flow.FlowGraph, rows: _Rows, layout: MemoryLayout) -> dict[int, Extent]:
    """Return the shared variable that each access is meant for, if there are several and its address tells."""
    if len({extent.start for extent in layout.shared.values()}) <= 1:
        return {}
    found = accessed_variables(entry, graph, rows.written, layout.shared.keys())
    return {index: layout.shared[name] for index, name in found.items()}


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

    def __init__(self, context: Lowering, entry: Entry, rows: _Rows, graph: flow.FlowGraph, number: int) -> None:
        self._context, self._entry, self._rows, self._graph = context, entry, rows, graph
        self._block, self._meet = graph.blocks[number], graph.meets[number]

    def lower(self, suspects: Suspects) -> Block:
        block, steps = self._block, _Steps()
        for index in range(block.first, block.last):
            self._context.site = index
            instruction = self._entry.instructions[index]
            reads = suspects.reads.get(index, frozenset())
            if self._rows.rows[index].ends is not flow.Ends.NOTHING:
                end = self._end(instruction, index)
                with_rules = _with_rules(end, self._rules(instruction, index, reads))
                return Block(block.first, block.last, steps.finish(), with_rules)
            step = self._step(instruction, index)  # first: it refuses operands that the rules do not expect
            steps.append(step, self._rules(instruction, index, reads))
        return Block(block.first, block.last, steps.finish(), ends.fall_through(self._graph.block_at[block.last]))

    def _rules(self, instruction: Instruction, index: int, reads: frozenset[flow.RegisterKey]) -> list[Step]:
        """The instruction's effect on undefined values, `reads` among them; an end defines its results by itself."""
        row, context, guard = self._rows.rows[index], self._context, _predicate(self._context, instruction)
        writes, rules = self._rows.written[index] & context.frame.watched, list[Step]()
        computes = row.only_computes(instruction)
        deciding = flow.keys_of(tuple(instruction.operands[number] for number in row.decide)) if computes else reads
        if row.follows and context.follows_memory:
            deciding = reads - flow.keys_of(
                tuple(each for each in instruction.operands if not isinstance(each, Address))
            )
        if deciding & reads:
            rules.append(matter_rule(context, instruction, deciding & reads, guard))
        if computes and (reads or writes):
            rules.append(carry_rule(context, instruction, (reads, writes), row.spread(context, instruction), guard))
        elif writes and row.ends is flow.Ends.NOTHING:
            rules.append(define_rule(writes, guard))
        return rules

    def _step(self, instruction: Instruction, index: int) -> Step:
        context, written = self._context, self._rows.written[index]
        step = lower_instruction(context, instruction)
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
        if row.ends is flow.Ends.BRANCH:
            labels = flow.branch_targets(self._entry, instruction)
            targets = tuple(block_at[self._entry.labels[label]] for label in labels)
        end = flow.function_end(self._entry, self._block.last - 1) if row.ends is flow.Ends.RETURN else None
        if end is not None:
            targets = (block_at[end],)
        return Ways(following=block_at.get(self._block.last, -1), targets=targets, meet=self._meet)


class _Steps:
    """The steps of a block, each with the rules of undefined values that run before it."""

    def __init__(self) -> None:
        self._steps: list[tuple[Step, list[Step]]] = []

    def append(self, step: Step, rules: list[Step]) -> None:
        """Adds a step, or merges it with the last one if both instructions can be executed at once."""
        last, before = self._steps[-1] if self._steps else (None, list[Step]())
        both = last.joined(step) if isinstance(last, FusedStep) and isinstance(step, FusedStep) else None
        if both is None:
            self._steps.append((step, rules))
        else:
            self._steps[-1] = both, before + rules

    def finish(self) -> tuple[Step, ...]:
        """All steps; rules cost next to nothing while no register is undefined."""
        return tuple(_after_rules(step, rules) if rules else step for step, rules in self._steps)


def _after_rules(step: Step, rules: list[Step]) -> Step:
    def run(warp: Warp) -> None:
        if warp.undefined:
            for rule in rules:
                rule(warp)
        step(warp)

    return run


def _with_rules(end: End, rules: list[Step]) -> End:
    """The end of a block, which runs `rules` first."""
    if not rules:
        return end

    def run(warp: Warp, path: Path) -> Arrival | Awaited | None:
        if warp.undefined:
            for rule in rules:
                rule(warp)
        return end(warp, path)

    return run


def _end_with_assignments(
    context: Lowering, written: frozenset[flow.RegisterKey], predicate: Predicate | None, end: End
) -> End:
    """The end, extended to define what it writes: a wait for an mbarrier once it is done, `bar.red` when it arrives."""
    keys = written & context.frame.watched
    if not keys:
        return end

    def run(warp: Warp, path: Path) -> Arrival | Awaited | None:
        lanes = executing(warp, predicate)
        blocking = end(warp, path)
        if blocking is None or isinstance(blocking, Arrival):
            define(warp, keys, lanes)
        return blocking

    return run


def _with_held_registers(
    context: Lowering, instruction: Instruction, written: frozenset[flow.RegisterKey], step: Step
) -> Step:
    """Return the step, extended to check first whether an earlier instruction holds the registers."""
    rows = context.frame.held_rows
    if not rows:
        return step
    touched = {register.row: register.name for register in flow.registers_of(instruction) if register.file_bits == 32}
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
    context: Lowering, instruction: Instruction, written: frozenset[flow.RegisterKey], step: Step
) -> Step:
    """Return the step, extended to complete first the loads from tensor memory whose registers it uses."""
    filled = context.frame.filled_rows
    if not filled:
        return step
    changed = {row for bits, row in written if bits == 32} & filled
    touched = {register.row for register in flow.registers_of(instruction) if register.file_bits == 32} & filled
    if not touched:
        return step
    operands = instruction.operands[1:] if written else instruction.operands
    used = {register.row for register in flow.registers_of_operands(operands) if register.file_bits == 32} & filled
    reads, writes = np.array(sorted(used), np.intp), np.array(sorted(changed), np.intp)
    moves, site = _move_of(instruction) is not None, context.site

    def run(warp: Warp) -> None:
        if not moves and (load := warp.loads.awaited(reads)) is not None:
            message = f"no tcgen05.wait::ld after {warp.cta.describe(load)}, of which this instruction uses a register"
            warp.cta.fault(ViolationKind.CONVENTION, site, int(warp.threads()[0]), message)
        tick = warp.loads.touch(reads, writes, moves=moves)
        if tick is not None:
            warp.cta.cluster.tensor.order.use(warp, tick)
        step(warp)

    return run
