"""Instructions that the lanes of a warp execute together: shuffles, votes, matches, reductions.

Source: PTX ISA, `shfl.sync`, `vote.sync`, `match.sync`, `activemask`, `redux.sync`, `elect.sync`.
"""

from collections.abc import Sequence

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array
from cutegen.ptx.machine.convergence import LANE_BITS, ballot, check_members
from cutegen.ptx.machine.frame import Origins
from cutegen.ptx.machine.lowering import Lowering, Step
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.undefined import Spread, from_members, note_absent
from cutegen.ptx.machine.warp import LANES, Warp
from cutegen.ptx.text.flow import keys_of
from cutegen.ptx.text.syntax import WARP_LANES, Immediate, Instruction, Operand, Pair, Sink, scalar_type
from cutegen.ptx.watch.violations import ViolationKind

_B32, _U32, _PRED = scalar_type("b32"), scalar_type("u32"), scalar_type("pred")
_ALL_LANES = (1 << WARP_LANES) - 1


def for_members(context: Lowering, instruction: Instruction, operand: Operand, act: Step) -> Step:
    """The step that does `act` for each group of lanes that give the same member mask: those that the mask names."""
    cell, site = context.source(instruction, operand, _U32), context.site

    def step(warp: Warp) -> None:
        masks = warp.cells[cell][warp.lanes()]
        if (masks == masks[0]).all():
            check_members(warp, site, int(masks[0]))
            act(warp)
            return
        groups = [(members, warp.mask & (warp.cells[cell] == members)) for members in np.unique(masks).tolist()]
        for members, group in groups:
            check_members(warp, site, members, group)
        for _, group in groups:
            with warp.narrowed(group):
                act(warp)

    return step


def lower_shfl(context: Lowering, instruction: Instruction) -> Step:
    """`shfl.sync.mode.b32 d{|p}, a, b, c, members`."""
    modifiers = context.modifiers(instruction, 5)
    modifiers.need("sync")
    mode = modifiers.need("up", "down", "bfly", "idx")
    modifiers.type("b32")
    modifiers.finish()
    result, validity = _results(instruction.operands[0])
    target = context.target(instruction, result, _B32)
    valid_target = None if validity is None else context.target(instruction, validity, _PRED)
    a = context.source(instruction, instruction.operands[1], _B32)
    b, c = (context.source(instruction, operand, _U32) for operand in instruction.operands[2:4])
    site, is_watched = context.site, names_members(instruction)

    def act(warp: Warp) -> None:
        lane, valid = _shuffle_source(mode, warp.cells[b].astype(np.int64), warp.cells[c].astype(np.int64))
        here = warp.mask[lane]
        if not here[warp.mask].all():
            missing = warp.mask & ~here
            reader = int(np.argmax(missing))
            message = f"shfl reads lane {int(lane[reader])}, which does not take part in it"
            if is_watched:
                note_absent(warp, site, keys_of((result,)), missing, message)
            else:
                warp.cta.fault(ViolationKind.UNINITIALIZED, site, warp.thread0 + reader, message)
        values = np.where(here, warp.cells[a][lane], np.uint32(0xFFFFFFFF))
        warp.put(target, values)
        if valid_target is not None:
            warp.put(valid_target, valid)

    return for_members(context, instruction, instruction.operands[4], act)


def _results(operand: Operand) -> tuple[Operand, Operand | None]:
    if isinstance(operand, Pair):
        return operand.first, None if isinstance(operand.second, Sink) else operand.second
    return operand, None


def _shuffle_source(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """The lane that each lane reads, and whether it was in range (PTX ISA, pseudo-code of shfl.sync)."""
    b, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    high = (LANES & segment) | (clamp & ~segment)
    low = LANES & segment
    wanted = {"up": LANES - b, "down": LANES + b, "bfly": LANES ^ b, "idx": low | (b & ~segment)}[mode]
    valid = wanted >= high if mode == "up" else wanted <= high
    return np.where(valid, wanted, LANES) & 31, valid


def lower_vote(context: Lowering, instruction: Instruction) -> Step:
    """`vote.sync.all|any|uni.pred` and `vote.sync.ballot.b32`."""
    modifiers = context.modifiers(instruction, 3)
    modifiers.need("sync")
    mode = modifiers.need("all", "any", "uni", "ballot")
    modifiers.type("b32" if mode == "ballot" else "pred")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], _B32 if mode == "ballot" else _PRED)
    source, inverted = context.predicate(instruction, instruction.operands[1])

    def act(warp: Warp) -> None:
        votes = (warp.cells[source] != inverted) & warp.mask
        count = int(np.count_nonzero(votes))
        values = {
            "all": count == warp.count,
            "any": count > 0,
            "uni": count in (0, warp.count),
            "ballot": ballot(votes),
        }
        warp.put(target, np.full(32, values[mode], np.uint32 if mode == "ballot" else bool))

    return for_members(context, instruction, instruction.operands[2], act)


def lower_match(context: Lowering, instruction: Instruction) -> Step:
    """`match.sync.any|all`: the lanes that have the same value."""
    modifiers = context.modifiers(instruction, 3)
    modifiers.need("sync")
    mode = modifiers.need("any", "all")
    kind = modifiers.type("b32", "b64")
    modifiers.finish()
    result, validity = _results(instruction.operands[0])
    target = context.target(instruction, result, _B32)
    valid_target = None if validity is None else context.target(instruction, validity, _PRED)
    source = context.source(instruction, instruction.operands[1], kind)

    def act(warp: Warp) -> None:
        values = warp.cells[source]
        same = (values[:, None] == values[None, :]) & warp.mask
        if mode == "any":
            warp.put(target, (same * LANE_BITS).sum(axis=1, dtype=np.uint32))
            return
        equal = bool(same[warp.mask].sum() == warp.count**2)
        warp.put(target, np.full(32, ballot(warp.mask) if equal else 0, np.uint32))
        if valid_target is not None:
            warp.put(valid_target, np.full(32, equal))

    return for_members(context, instruction, instruction.operands[2], act)


def lower_redux(context: Lowering, instruction: Instruction) -> Step:
    """`redux.sync.op.type`: one integer result for all lanes."""
    modifiers = context.modifiers(instruction, 3)
    modifiers.need("sync")
    name = modifiers.need("add", "min", "max", "and", "or", "xor")
    kind = modifiers.type("u32", "s32", "b32")
    modifiers.finish()
    functions = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
    function = functions.get(name, np.bitwise_xor)
    target = context.target(instruction, instruction.operands[0], kind)
    source = context.source(instruction, instruction.operands[1], kind)

    def act(warp: Warp) -> None:
        total = function.reduce(warp.cells[source][warp.lanes()])
        warp.put(target, np.full(32, total).astype(kind.dtype))

    return for_members(context, instruction, instruction.operands[2], act)


def lower_activemask(context: Lowering, instruction: Instruction) -> Step:
    """`activemask.b32 d`."""
    modifiers = context.modifiers(instruction, 1)
    modifiers.type("b32")
    modifiers.finish()
    target = context.target(instruction, instruction.operands[0], _B32)
    return lambda warp: warp.put(target, np.full(32, ballot(warp.mask), np.uint32))


def lower_elect(context: Lowering, instruction: Instruction) -> Step:
    """`elect.sync d|p, members`: PTX leaves the elected lane open, but it is always the same for the same members."""
    modifiers = context.modifiers(instruction, 2)
    modifiers.need("sync")
    modifiers.finish()
    pair = instruction.operands[0]
    if not isinstance(pair, Pair):
        raise instruction.error("expected d|p as the destination")
    target, winner = context.target(instruction, pair.first, _B32), context.target(instruction, pair.second, _PRED)

    def act(warp: Warp) -> None:
        elected = warp.cta.schedule.elect(warp.lanes().tolist())
        warp.put(target, np.full(32, elected, np.uint32))
        warp.put(winner, np.equal(LANES, elected))

    return for_members(context, instruction, instruction.operands[1], act)


def names_members(instruction: Instruction) -> bool:
    """Return whether the member mask of a `shfl` may name fewer lanes than a warp has: some read one that is not named.

    With the whole mask only lanes that have exited, or that the block does not have, are absent.
    """
    mask = instruction.operands[-1] if instruction.operands else None  # lowering refuses it then
    return not (isinstance(mask, Immediate) and isinstance(mask.value, int) and mask.value & _ALL_LANES == _ALL_LANES)


def _shuffled(context: Lowering, instruction: Instruction) -> Spread:
    """The result of a `shfl` depends on the lane that it reads, and on its own b and c."""
    mode = next(word for word in instruction.parts if word in ("up", "down", "bfly", "idx"))
    b, c = (context.source(instruction, operand, _U32) for operand in instruction.operands[2:4])

    def spread(warp: Warp, sources: Sequence[Origins]) -> Origins:
        lane, _ = _shuffle_source(mode, warp.cells[b].astype(np.int64), warp.cells[c].astype(np.int64))
        found: Origins = np.maximum.reduce((sources[0][lane], *sources[1:]))
        return found

    return spread


ROWS = {
    "shfl": Row(step=lower_shfl, spread=_shuffled, decide=(4,), may_miss=names_members),
    "vote": Row(step=lower_vote, spread=from_members, decide=(2,)),
    "match": Row(step=lower_match, spread=from_members, decide=(2,)),
    "redux": Row(step=lower_redux, spread=from_members, decide=(2,)),
    "activemask": Row(step=lower_activemask),
    "elect": Row(step=lower_elect, decide=(1,)),
}
