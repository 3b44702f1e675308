"""Undefined values in registers: where they come from, which registers they reach, and where they matter.

A register that its thread has not written, and what a shuffle gives from a lane that does not take part, is undefined.
To read it is a convention, as long as nothing comes of it: compilers and authors let whole warps shuffle and compute
where only some lanes have numbers. It is an error where the value reaches memory, an address, a branch, a barrier or a
member mask. Only instructions that may read or write such a value have a rule here (`text.undefined`), which runs
before their step.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np

from cutegen.ptx.machine.blocks import executing
from cutegen.ptx.machine.frame import NEVER, Origins
from cutegen.ptx.machine.lowering import Lowering, Predicate, Step
from cutegen.ptx.machine.origins import DEFINED, define, mark, origins_of
from cutegen.ptx.machine.warp import Mask, Warp
from cutegen.ptx.text.flow import RegisterKey, keys_of
from cutegen.ptx.text.syntax import WARP_LANES, Instruction, scalar_type
from cutegen.ptx.watch.violations import ViolationKind

Spread: TypeAlias = Callable[[Warp, Sequence[Origins]], Origins]
"""The origins of an instruction's results, from those of each operand after the first."""
SpreadLowerer: TypeAlias = Callable[[Lowering, Instruction], Spread]
_U32, _PRED = scalar_type("u32"), scalar_type("pred")


def from_own_lane(context: Lowering, instruction: Instruction) -> Spread:
    """Each lane's result depends on its own sources."""
    return lambda warp, sources: np.maximum.reduce(sources) if sources else DEFINED


def from_whole_warp(context: Lowering, instruction: Instruction) -> Spread:
    """Each lane's result depends on the sources of all active lanes."""
    return lambda warp, sources: np.full(WARP_LANES, max(int(of[warp.mask].max()) for of in sources), np.int32)


def from_members(context: Lowering, instruction: Instruction) -> Spread:
    """Each lane's result depends on the sources of the lanes with its member mask, which is the last operand."""
    masks = context.source(instruction, instruction.operands[-1], _U32)

    def spread(warp: Warp, sources: Sequence[Origins]) -> Origins:
        members = warp.cells[masks]
        group = (members[:, None] == members) & warp.mask  # [lane, other]
        found: Origins = np.where(group, np.maximum.reduce(sources), 0).max(axis=1)
        return found

    return spread


def from_selected(context: Lowering, instruction: Instruction) -> Spread:
    """`selp d, a, b, p`: the result depends on one of a and b."""
    predicate = context.source(instruction, instruction.operands[3], _PRED)

    def spread(warp: Warp, sources: Sequence[Origins]) -> Origins:
        return np.maximum(np.where(warp.cells[predicate], sources[0], sources[1]), sources[2])

    return spread


def from_logic(context: Lowering, instruction: Instruction) -> Spread:
    """`and`, `or`: a defined operand that is 0, or has all bits, decides alone."""
    name, kind = instruction.parts[0], scalar_type(instruction.parts[1])
    if name not in ("and", "or"):
        return from_own_lane(context, instruction)
    cells = [context.source(instruction, operand, kind) for operand in instruction.operands[1:]]

    def spread(warp: Warp, sources: Sequence[Origins]) -> Origins:
        values = [warp.cells[cell] if name == "and" else ~warp.cells[cell] for cell in cells]
        decided = [(of == 0) & (value == 0) for of, value in zip(sources, values, strict=True)]
        return np.where(decided[0] | decided[1], 0, np.maximum(*sources))

    return spread


def note_absent(warp: Warp, site: int, keys: Collection[RegisterKey], lanes: Mask, message: str) -> None:
    """The instruction at `site` gave undefined values in `lanes`, to be reported with `message`."""
    warp.cta.fault(ViolationKind.CONVENTION, site, warp.thread0 + int(np.argmax(lanes)), message + _HARMLESS)
    mark(warp, warp.watched.intersection(keys), np.full(WARP_LANES, site + 1, np.int32), lanes)


_HARMLESS = ": an error only where the value matters"


def carry_rule(
    context: Lowering,
    instruction: Instruction,
    keys: tuple[frozenset[RegisterKey], frozenset[RegisterKey]],
    spread: Spread,
    guard: Predicate | None,
) -> Step:
    """The rule of an instruction that only computes registers: the results of undefined sources are undefined.

    `keys` are the registers that it may read undefined, and the watched ones that it writes.
    """
    reads, writes = keys
    site = context.site
    guard_key = None if instruction.guard is None else (1, instruction.guard.register.row)
    operands = [keys_of((operand,)) & reads for operand in instruction.operands[1:]]

    def rule(warp: Warp) -> None:
        undefined, lanes = warp.undefined, executing(warp, guard)
        if undefined.keys().isdisjoint(reads):
            define(warp, writes, lanes)
            return
        for key in reads:
            _note_never(warp, site, key, warp.mask if key == guard_key else lanes)
        origins = spread(warp, [_worst(warp, of_operand) for of_operand in operands])
        if guard_key in undefined:
            doubtful = undefined[guard_key]
            origins = np.maximum(origins, doubtful)
            lanes = lanes | (warp.mask & (doubtful != 0))
        mark(warp, writes, origins, lanes)

    return rule


def _worst(warp: Warp, keys: Collection[RegisterKey]) -> Origins:
    """The origins of what is computed from registers in each lane."""
    return np.maximum.reduce([origins_of(warp, key) for key in keys]) if keys else DEFINED


def _note_never(warp: Warp, site: int, key: RegisterKey, lanes: Mask) -> None:
    """The instruction at `site` reads a register; where nothing has been written to it, the value is from here."""
    origins = warp.undefined.get(key)
    if origins is None:
        return
    fresh = lanes & (origins == NEVER)
    if fresh.any():
        message = f"a {key[0]}-bit register is read that this thread never wrote" + _HARMLESS
        warp.cta.fault(ViolationKind.CONVENTION, site, warp.thread0 + int(np.argmax(fresh)), message)
        warp.undefined[key] = np.where(fresh, site + 1, origins)


def matter_rule(
    context: Lowering, instruction: Instruction, reads: frozenset[RegisterKey], guard: Predicate | None
) -> Step:
    """The rule of an instruction that must not read an undefined value from `reads`."""
    site = context.site
    guard_key = None if instruction.guard is None else (1, instruction.guard.register.row)

    def rule(warp: Warp) -> None:
        for key in reads:
            origins = warp.undefined.get(key)
            if origins is None:
                continue
            bad = (warp.mask if key == guard_key else executing(warp, guard)) & (origins != 0)
            if bad.any():
                report_use(warp, site, key, bad)

    return rule


def report_use(warp: Warp, site: int, key: RegisterKey, lanes: Mask) -> None:
    """The value of a register, undefined in `lanes`, matters to the instruction at `site`."""
    lane = int(np.argmax(lanes))
    origin = int(origins_of(warp, key)[lane])
    message = f"a {key[0]}-bit register is read that this thread never wrote"
    if origin != NEVER:
        message = f"a {key[0]}-bit register is read whose value comes from one that this thread never wrote, or "
        message += f"from a lane that does not take part ({warp.cta.describe(origin - 1)})"
    warp.cta.fault(ViolationKind.UNINITIALIZED, site, warp.thread0 + lane, message)


def define_rule(writes: frozenset[RegisterKey], guard: Predicate | None) -> Step:
    """The rule of an instruction whose results are defined, whatever it reads."""
    return lambda warp: define(warp, writes, executing(warp, guard))
