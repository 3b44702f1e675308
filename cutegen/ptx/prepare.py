"""Prepares an entry to run: every instruction becomes a step, every operand a cell, every variable an address."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.instructions import lower_instruction
from cutegen.ptx.instructions.effects import register_change
from cutegen.ptx.instructions.mbarrier import mbarrier_wait
from cutegen.ptx.instructions.wgmma import group_wait, held_rows
from cutegen.ptx.machine import blocks as ends
from cutegen.ptx.machine.alike import Alike
from cutegen.ptx.machine.blocks import Arrival, Awaited, Block, End, executing, guarded
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.frame import Frame
from cutegen.ptx.machine.layout import lay_out
from cutegen.ptx.machine.lowering import Lowering, Predicate, Step
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.text.flow import (
    FlowGraph,
    RegisterKey,
    branch_targets,
    build_flow,
    ends_block,
    registers_of,
    unsure_reads,
    written_registers,
)
from cutegen.ptx.text.syntax import Entry, Instruction, Module
from cutegen.ptx.text.types import scalar_type
from cutegen.ptx.watch.held_registers import register_list
from cutegen.ptx.watch.shadow import MAX_SITES
from cutegen.ptx.watch.sites import SiteTable
from cutegen.ptx.watch.violations import ViolationKind


def prepare(module: Module, entry: Entry) -> Executable:
    """Lowers `entry`.

    Raises:
        PtxSyntaxError: text that cannot be read, or the first unknown instruction, with its line.
    """
    if entry.error is not None:
        raise entry.error
    if len(entry.instructions) >= MAX_SITES:
        message = f"{entry.name} has {len(entry.instructions)} instructions; fewer than {MAX_SITES} are supported"
        raise PtxSyntaxError(message, line=entry.line)
    layout = lay_out(module, entry)
    frame = Frame(dict(entry.rows))
    context = Lowering(frame, layout.addresses, layout.spaces)
    graph = build_flow(entry)
    unsure = unsure_reads(entry, graph)
    frame.tracked = set().union(*unsure.values())
    frame.held_rows = set().union(*map(held_rows, entry.instructions))
    blocks = tuple(_BlockLowering(context, entry, graph, n).lower(unsure) for n in range(len(graph.blocks)))
    asking = {site for site in context.semantics if entry.instructions[site].parts[0] in ("ld", "atom")}
    blocks = tuple(replace(b, asks=not asking.isdisjoint(range(b.first, b.last))) for b in blocks)
    return Executable(
        entry=entry,
        frame=frame,
        blocks=blocks,
        layout=layout,
        granule_bytes=min(context.shared_access_bytes, default=16),
        sites=_site_table(context, len(entry.instructions)),
        semantics=context.semantics,
        global_granule_bytes=min(context.global_access_bytes, default=16),
        ctas_communicate=context.ctas_communicate,
        names_global_variables=context.names_global_variables,
        has_cluster_barrier=any(each.parts[:2] == ("barrier", "cluster") for each in entry.instructions),
    )


def _site_table(context: Lowering, instructions: int) -> SiteTable:
    """Return the properties of each instruction that the watchers look up."""
    reach, size = np.zeros(instructions + 1, np.int64), np.zeros(instructions + 1, np.int64)
    constant = np.zeros(instructions + 1, bool)
    for site, semantics in context.semantics.items():
        reach[site] = semantics.reach
    for site, size_bytes in context.element_bytes.items():
        size[site] = size_bytes
    constant[list(context.constant_sites)] = True
    return SiteTable(reach, size, constant)


def _predicate(context: Lowering, instruction: Instruction) -> Predicate | None:
    """The cell of an instruction's guard, and whether the guard is negated."""
    guard = instruction.guard
    return None if guard is None else (context.source(instruction, guard.register, scalar_type("pred")), guard.negated)


class _BlockLowering:
    """Lowers one basic block."""

    def __init__(self, context: Lowering, entry: Entry, graph: FlowGraph, number: int) -> None:
        self._context, self._entry, self._graph = context, entry, graph
        self._block, self._meet = graph.blocks[number], graph.meets[number]

    def lower(self, unsure: dict[int, frozenset[RegisterKey]]) -> Block:
        block, steps = self._block, list[Step]()
        for index in range(block.first, block.last):
            self._context.site = index
            instruction = self._entry.instructions[index]
            if index in unsure:
                steps.append(_check_assigned(self._context, instruction, unsure[index]))
            if ends_block(instruction):
                predicate = _predicate(self._context, instruction)
                end = _end_with_assignments(self._context, instruction, predicate, self._end(instruction, predicate))
                return Block(block.first, block.last, tuple(steps), end)
            _append(steps, self._step(instruction))
        return Block(block.first, block.last, tuple(steps), ends.fall_through(self._following()))

    def _step(self, instruction: Instruction) -> Step:
        context = self._context
        step = _with_assignments(context, instruction, lower_instruction(context, instruction))
        step = _with_held_registers(context, instruction, step)
        predicate = _predicate(context, instruction)
        return step if predicate is None else guarded(step, predicate)

    def _following(self) -> int:
        """The next block in the text; every text ends with a `ret`, so every other block has one."""
        return self._graph.block_at[self._block.last]

    def _targets(self, instruction: Instruction) -> tuple[int, ...]:
        labels = branch_targets(self._entry, instruction)
        return tuple(self._graph.block_at[self._entry.labels[label]] for label in labels)

    def _end(self, instruction: Instruction, predicate: Predicate | None) -> End:
        match instruction.parts[0]:
            case "bra":
                self._check(instruction, 1)
                taken = self._targets(instruction)[0]
                return ends.branch(predicate, taken, self._graph.block_at.get(self._block.last, taken), self._meet)
            case "brx":
                return self._end_with_switch(instruction)
            case "ret" | "exit":
                self._check(instruction, 0)
                return ends.leave(predicate, None if predicate is None else self._following())
            case "mbarrier":
                return mbarrier_wait(self._context, instruction, predicate, self._following())
            case "barrier" if "cluster" in instruction.parts:
                return ends.cluster_wait(instruction, predicate, self._following(), self._context.site)
            case "wgmma":
                return group_wait(self._context, instruction, predicate, self._following())
            case "setmaxnreg":
                return register_change(self._context, instruction, predicate, self._following())
            case _:
                return ends.barrier(self._context, instruction, predicate, self._following())

    def _check(self, instruction: Instruction, operands: int) -> None:
        modifiers = self._context.modifiers(instruction, operands)
        modifiers.flag("uni")
        modifiers.finish()

    def _end_with_switch(self, instruction: Instruction) -> End:
        modifiers = self._context.modifiers(instruction, 2)
        modifiers.flag("uni")
        modifiers.need("idx")
        modifiers.finish()
        if instruction.guard is not None:
            raise instruction.error("a guarded brx is not supported")
        cell = self._context.source(instruction, instruction.operands[0], scalar_type("u32"))
        return ends.switch(cell, self._targets(instruction), self._meet, self._context.site)


def _append(steps: list[Step], step: Step) -> None:
    """Add a step, or merge it with the last one if both instructions can be executed at once."""
    last = steps[-1] if steps else None
    both = last.joined(step) if isinstance(last, Alike) and isinstance(step, Alike) else None
    if both is None:
        steps.append(step)
    else:
        steps[-1] = both


def _with_assignments(context: Lowering, instruction: Instruction, step: Step) -> Step:
    """Return the step, extended to record the watched registers that the instruction writes, if it writes any."""
    keys = tuple(written_registers(instruction) & context.frame.tracked)
    if not keys:
        return step

    def run(warp: Warp) -> None:
        step(warp)
        for key in keys:
            warp.defined[key] |= warp.mask

    return run


def _end_with_assignments(context: Lowering, instruction: Instruction, predicate: Predicate | None, end: End) -> End:
    """The same for the end of a block: a wait for an mbarrier, once it is done, and `bar.red`, when it arrives."""
    keys = tuple(written_registers(instruction) & context.frame.tracked)
    if not keys:
        return end

    def run(warp: Warp, path: Path) -> Arrival | Awaited | None:
        written = executing(warp, predicate)
        blocking = end(warp, path)
        if blocking is None or isinstance(blocking, Arrival):
            for key in keys:
                warp.defined[key] |= written
        return blocking

    return run


def _with_held_registers(context: Lowering, instruction: Instruction, step: Step) -> Step:
    """Return the step, extended to check first whether a `wgmma` holds the registers."""
    rows = context.frame.held_rows
    if not rows or instruction.parts[0] == "wgmma":
        return step
    touched = {register.row: register.name for register in registers_of(instruction) if register.file_bits == 32}
    registers = register_list([(row, name) for row, name in touched.items() if row in rows])
    if not len(registers.rows):
        return step
    written = {row for bits, row in written_registers(instruction) if bits == 32} & rows
    site, written_rows, moves = context.site, np.array(sorted(written), np.intp), instruction.parts[0] == "mov"

    def run(warp: Warp) -> None:
        warp.held.touch(warp, site, registers, written_rows, moves=moves)
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
