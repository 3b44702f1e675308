"""An entry made ready to run: every instruction a step, every operand a cell, every variable an address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx import blocks as ends
from cutegen.ptx.blocks import Arrival, Block, End, guarded
from cutegen.ptx.flow import (
    BlockRange,
    FlowGraph,
    RegisterKey,
    branch_targets,
    build_flow,
    is_barrier,
    unsure_reads,
    written_registers,
)
from cutegen.ptx.frame import Frame
from cutegen.ptx.instructions import lower_instruction
from cutegen.ptx.layout import MemoryLayout, lay_out
from cutegen.ptx.lowering import Lowering, Step
from cutegen.ptx.syntax import Entry, Instruction, Module
from cutegen.ptx.types import scalar_type
from cutegen.ptx.violations import ViolationKind
from cutegen.ptx.warp import Path, Warp


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """What the executor runs.

    `granule_bytes` and `global_granule_bytes` are the smallest accesses to shared and global memory. CTAs communicate
    where the entry has atomic, volatile or ordered accesses to global memory.
    """

    entry: Entry
    frame: Frame
    blocks: tuple[Block, ...]
    layout: MemoryLayout
    granule_bytes: int
    atomic_sites: npt.NDArray[np.bool_]
    global_granule_bytes: int
    ctas_communicate: bool


def prepare(module: Module, entry: Entry) -> Executable:
    """Lowers `entry`.

    Raises:
        PtxSyntaxError: the first instruction that is not known, with its line.
    """
    layout = lay_out(module, entry)
    frame = Frame(dict(entry.rows))
    context = Lowering(frame, layout.addresses, layout.spaces)
    graph = build_flow(entry)
    unsure = unsure_reads(entry, graph)
    frame.tracked = set().union(*unsure.values())
    blocks = tuple(_lower_block(context, entry, graph, number, unsure) for number in range(len(graph.blocks)))
    atomic = np.zeros(len(entry.instructions) + 1, bool)
    atomic[list(context.atomic_sites)] = True
    return Executable(
        entry=entry,
        frame=frame,
        blocks=blocks,
        layout=layout,
        granule_bytes=min(context.shared_access_bytes, default=16),
        atomic_sites=atomic,
        global_granule_bytes=min(context.global_access_bytes, default=16),
        ctas_communicate=context.ctas_communicate,
    )


def _lower_block(
    context: Lowering,
    entry: Entry,
    graph: FlowGraph,
    number: int,
    unsure: dict[int, frozenset[RegisterKey]],
) -> Block:
    block = graph.blocks[number]
    steps: list[Step] = []
    end: End = ends.fall_through(block.successors[-1])
    for index in range(block.first, block.last):
        context.site = index
        instruction = entry.instructions[index]
        if index in unsure:
            steps.append(_check_assigned(context, instruction, unsure[index]))
        maker = _end_maker(instruction)
        if maker is not None:
            end = maker(context, entry, graph, block, instruction)
            continue
        step = _with_assignments(context, instruction, lower_instruction(context, instruction))
        if instruction.guard is not None:
            cell, negated = _predicate(context, instruction)
            step = guarded(step, cell, negated)
        steps.append(step)
    return Block(block.first, block.last, tuple(steps), end)


def _predicate(context: Lowering, instruction: Instruction) -> tuple[int, bool]:
    assert instruction.guard is not None
    return context.source(instruction, instruction.guard.register, scalar_type("pred")), instruction.guard.negated


_EndMaker = Callable[[Lowering, Entry, FlowGraph, BlockRange, Instruction], End]


def _end_maker(instruction: Instruction) -> _EndMaker | None:
    if is_barrier(instruction):
        return _end_with_barrier
    return {
        "bra": _end_with_branch,
        "brx": _end_with_switch,
        "ret": _end_with_exit,
        "exit": _end_with_exit,
        "trap": _end_with_trap,
    }.get(instruction.parts[0])


def _optional_predicate(context: Lowering, instruction: Instruction) -> tuple[int, bool] | None:
    return None if instruction.guard is None else _predicate(context, instruction)


def _meet(graph: FlowGraph, block: BlockRange) -> int | None:
    return graph.meets[graph.block_at[block.first]]


def _end_with_branch(
    context: Lowering, entry: Entry, graph: FlowGraph, block: BlockRange, instruction: Instruction
) -> End:
    modifiers = context.modifiers(instruction, 1)
    modifiers.flag("uni")
    modifiers.finish()
    label = branch_targets(entry, instruction)[0]
    taken = graph.block_at.get(entry.labels[label])
    following = graph.block_at.get(block.last)
    return ends.branch(_optional_predicate(context, instruction), taken, following, _meet(graph, block))


def _end_with_switch(
    context: Lowering, entry: Entry, graph: FlowGraph, block: BlockRange, instruction: Instruction
) -> End:
    modifiers = context.modifiers(instruction, 2)
    modifiers.flag("uni")
    modifiers.need("idx")
    modifiers.finish()
    if instruction.guard is not None:
        raise instruction.error("a guarded brx is not supported")
    cell = context.source(instruction, instruction.operands[0], scalar_type("u32"))
    targets = tuple(graph.block_at.get(entry.labels[label]) for label in branch_targets(entry, instruction))
    return ends.switch(cell, targets, _meet(graph, block), context.site)


def _end_with_exit(
    context: Lowering, entry: Entry, graph: FlowGraph, block: BlockRange, instruction: Instruction
) -> End:
    context.modifiers(instruction, 0).flag("uni")
    return ends.leave(_optional_predicate(context, instruction), graph.block_at.get(block.last))


def _end_with_trap(
    context: Lowering, entry: Entry, graph: FlowGraph, block: BlockRange, instruction: Instruction
) -> End:
    predicate = _optional_predicate(context, instruction)
    if predicate is None:
        return ends.trap(context.site)
    step = guarded(ends.trap_step(context.site), *predicate)
    following = ends.fall_through(graph.block_at.get(block.last))

    def end(warp: Warp, path: Path) -> Arrival | None:
        step(warp)
        return following(warp, path)

    return end


def _end_with_barrier(
    context: Lowering, entry: Entry, graph: FlowGraph, block: BlockRange, instruction: Instruction
) -> End:
    if instruction.guard is not None:
        raise instruction.error("a guarded barrier is not supported; branch around it")
    return ends.barrier(context, instruction, graph.block_at.get(block.last))


def _with_assignments(context: Lowering, instruction: Instruction, step: Step) -> Step:
    """Where the instruction writes watched registers, the step that also notes it."""
    keys = tuple(written_registers(instruction) & context.frame.tracked)
    if not keys:
        return step

    def run(warp: Warp) -> None:
        step(warp)
        for key in keys:
            warp.defined[key] |= warp.mask

    return run


def _check_assigned(context: Lowering, instruction: Instruction, keys: frozenset[RegisterKey]) -> Step:
    """The step that reports active lanes which read a register they never wrote."""
    site = context.site
    guard = None if instruction.guard is None else _predicate(context, instruction)
    guard_row = None if instruction.guard is None else (1, instruction.guard.register.row)

    def run(warp: Warp) -> None:
        for key in keys:
            missing = warp.mask & ~warp.defined[key]
            if guard is not None and key != guard_row:
                missing = missing & (warp.cells[guard[0]] != guard[1])
            if missing.any():
                thread = warp.thread0 + int(np.argmax(missing))
                message = f"a {key[0]}-bit register is read that this thread never wrote"
                warp.cta.fault(ViolationKind.UNINITIALISED, site, thread, message)

    return run
