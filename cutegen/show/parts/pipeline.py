"""The main loop as a timeline: when each instruction is issued, and which k-tile is in which stage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.pipeline import Sync
from cutegen.plan.kernel.program import Action
from cutegen.plan.kernel.timeline import Residence, Slot, Step, not_shown, passages, residences, shown
from cutegen.show.canvas.drawing import CELL_PX, GRAY, Box, Cell, Item, Picture, Text, hue, legend, text_width, titled
from cutegen.show.view import View, section
from cutegen.support.words import plural, wrapped

WIDE = 8
"""Number of stages from which a text line has no room for a word above each."""

SLOT_PX, ROW_PX, GAP_PX, HEAD_PX = 62, 34, 3, 20
IN_FLIGHT, PRESENT = 2, 0  # shades of a k-tile's hue


@dataclass(frozen=True, slots=True)
class Words:
    """Names of an instruction: above its text column, at its row in the picture, in the note below the text."""

    column: str
    row: str
    note: str


WORDS: Mapping[str, Words] = {
    Action.STORE: Words("st.shared", "st.shared", "st.shared of a k-tile"),
    Sync.COPY_GROUPS: Words("wait", "cp.async.wait_group, bar.sync", "cp.async.wait_group n and bar.sync"),
    Action.BARRIER: Words("bar.sync", "bar.sync", "bar.sync, which publishes a k-tile or releases its stage"),
    Action.BULK_FETCH: Words(
        "bulk copy",
        "cp.async.bulk.tensor",
        "cp.async.bulk.tensor for a k-tile, issued by the producer warp when its stage is free",
    ),
    Sync.MBARRIER: Words("full", "mbarrier.try_wait", "the wait until a k-tile has arrived (mbarrier.try_wait)"),
    Action.LOAD: Words("load", "shared to registers", "the load of a k-tile's block to registers"),
    Action.FETCH: Words("cp.async", "cp.async, commit_group", "cp.async for a k-tile"),
    Action.GLOBAL_LOAD: Words("ld.global", "ld.global", "ld.global of a k-tile"),
    Action.MULTIPLY: Words("mma", "mma", "mma of a k-tile's block"),
    Action.MMA_WAIT: Words("group", "wgmma.wait_group", "wgmma.wait_group n"),
}
"""Words of the actions, in the order in which a slot issues them; the name of the multiplication is the plan's atom."""
OF_A_PRODUCER: Mapping[str, Words] = {
    Action.BULK_FETCH: WORDS[Action.BULK_FETCH],
    Action.FETCH: Words(
        "cp.async", "cp.async, mbarrier.arrive", "cp.async by the producer's lanes, which arrive when these have landed"
    ),
}
"""Words of a producer's copies, which precede the waits for them."""
NOTE = (
    "In a line, instructions are issued from left to right: {}. The columns of the stages show the k-tile "
    "being read, or after < the one in flight."
)


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show prologue and first k-tiles, one line per k-block."""
    slots = shown(plan.loop)
    stays = list(residences(slots, plan.stages))
    counts = f"{plural(plan.stages, 'stage')}, {plural(plan.mma.k_blocks, 'k-block')}"
    title = f"Main loop: {counts} per k-tile of {plan.cta_tile[2]}"
    words = _words(slots, plan.atom.instruction)
    states = [*_passing_names(words), *_stage_names(plan.stages)]
    rows = [
        (_name(slot), *_issued(slot, words), *_passing(number, slots), *_stages(number, stays, plan.stages))
        for number, slot in enumerate(slots)
    ]
    header = ("k-tile.block", *(each.column for each in words.values()), *states)
    table = {
        "spec": plan.spec.name,
        "stages": plan.stages,
        "k_blocks": plan.mma.k_blocks,
        "slots": [_slot_table(slot) for slot in slots],
    }
    note = " ".join((NOTE.format(", ".join(each.note for each in words.values())), *not_shown(plan.loop)))
    return View((section(title, rows, header=header), wrapped(note)), table)


def _words(slots: Sequence[Slot], multiplies: str) -> dict[str, Words]:
    """Return the instructions that occur, in the order of issue within a slot; `multiplies` is the MMA's."""
    steps = {step.instruction: step for slot in slots for step in slot.told}
    name, _, _ = multiplies.partition(".")
    share = "all of a k-tile" if steps[Action.MULTIPLY].k_block is None else "a k-tile's block"
    first = OF_A_PRODUCER if Action.BULK_FETCH in steps else {}
    words = {**first, **WORDS, **first, Action.MULTIPLY: Words(name, multiplies, f"{name} of {share}")}
    return {instruction: found for instruction, found in words.items() if instruction in steps}


def _passing_names(words: Mapping[str, Words]) -> list[str]:
    """Return whether plain copies move a k-tile through registers."""
    return ["registers"] if Action.GLOBAL_LOAD in words else []


def _stage_names(stages: int) -> list[str]:
    """Return the header above the stage columns: the word as often as it fits."""
    return [f"stage {stage}" if stages < WIDE or stage == 0 else f"{stage}" for stage in range(stages)]


def _name(slot: Slot) -> str:
    if slot.k_tile is None:
        return "prologue"
    return f"{slot.k_tile}" if slot.k_block is None else f"{slot.k_tile}.{slot.k_block}"


def _issued(slot: Slot, instructions: Iterable[str]) -> Iterator[str]:
    told = {step.instruction: step for step in slot.told}
    for instruction in instructions:
        step = told.get(instruction)
        if step is None:
            yield ""
        elif instruction in (Sync.COPY_GROUPS, Action.MMA_WAIT):
            yield f"{step.pending}"
        elif instruction == Action.BARRIER:
            yield "*"
        else:
            yield f"{step.k_tile}" if step.k_block is None else f"{step.k_tile}.{step.k_block}"


def _passing(number: int, slots: Sequence[Slot]) -> list[str]:
    """Return the k-tile in registers at the end of a slot, if plain copies hold any."""
    held = list(passages(slots))
    if not held:
        return []
    now = [f"<{k_tile}" for k_tile, first, last in held if first <= number and (last is None or number < last)]
    return ["".join(now)]


def _stages(number: int, stays: list[Residence], stages: int) -> list[str]:
    """Return the content of each stage at the end of a slot."""
    held = [""] * stages
    for stay in stays:
        if stay.fetched <= number and (stay.last_read is None or number <= stay.last_read):
            in_flight = stay.landed is None or number < stay.landed
            held[stay.stage] = f"<{stay.k_tile}" if in_flight else f"{stay.k_tile}"
    return held


def _slot_table(slot: Slot) -> dict[str, Any]:
    steps = [
        {"action": str(step.instruction), "k_tile": step.k_tile, "k_block": step.k_block, "pending": step.pending}
        for step in slot.steps
    ]
    return {"k_tile": slot.k_tile, "k_block": slot.k_block, "steps": steps}


LABEL_PX = max(text_width(words.row, CELL_PX) for words in WORDS.values()) + 8


def picture(plan: GemmPlan, thread: int) -> Picture:
    """Draw prologue and first k-tiles, slot by slot: the instructions, and below them the contents of the stages."""
    slots = shown(plan.loop)
    words = _words(slots, plan.atom.instruction)
    rows, passing = list(words), _passing_names(words)
    issued = [
        _issued_box(n, step, rows.index(step.instruction), plan.stages)
        for n, slot in enumerate(slots)
        for step in slot.told
        if step.instruction in rows
    ]
    first = len(rows) + len(passing)
    stays = list(residences(slots, plan.stages))
    held = [box for stay in stays for box in _held(stay, _next_in_stage(stay, stays), first, len(rows), len(slots))]
    carried = [_carried(*passage, len(rows), len(slots)) for passage in passages(slots)]
    names = [*(each.row for each in words.values()), *passing, *(f"stage {stage}" for stage in range(plan.stages))]
    size = LABEL_PX + len(slots) * SLOT_PX, _row_y(len(names) - 1, len(rows)) + ROW_PX
    chart = Picture(*size, (*_heads(slots), *_names(names, len(rows)), *issued, *carried, *held))
    stages, k_blocks = plural(plan.stages, "stage"), plural(plan.mma.k_blocks, "k-block")
    facts = [
        f"{stages}, {k_blocks} per k-tile of {plan.cta_tile[2]}; the loop continues like this",
        "Time runs to the right. Within a column, instructions are issued from top to bottom;",
        f"{_overlap(plan.stages, words)} Each color is a k-tile.",
        *not_shown(plan.loop),
    ]
    fillers = {Action.BULK_FETCH: "cp.async.bulk.tensor until its mbarrier", Action.FETCH: "cp.async until the wait"}
    filler = next((words for action, words in fillers.items() if action in rows), "st.shared until the barrier")
    notes = legend(
        [Cell(("k-tile 0", "in flight"), hue(0, IN_FLIGHT, 3)), Cell(("k-tile 0", "being read"), hue(0, PRESENT, 3))],
        f"a stage: filled by {filler}, then read by every warp, then free",
    )
    return titled(f"Main loop of {plan.spec.name or plan.kernel_name}", facts, chart, notes)


def _overlap(stages: int, words: Mapping[str, Words]) -> str:
    if stages == 1:
        return "with one stage, copies and MMA alternate."
    if Action.LOAD not in words:
        return "copies in flight and MMA overlap."
    return "copies in flight, loads of the next k-block and mma overlap."


def _issued_box(number: int, step: Step, row: int, stages: int) -> Box:
    """Draw the instructions of slot `number` in one row."""
    match step.instruction:
        case Sync.COPY_GROUPS:
            return _box(number, number + 1, row, GRAY, (f"wait <={step.pending}", "bar.sync"))
        case Action.BARRIER:
            return _box(number, number + 1, row, GRAY, ("bar.sync",))
        case Action.MMA_WAIT:
            return _box(number, number + 1, row, GRAY, (f"wait <={step.pending}",))
        case Sync.MBARRIER:
            return _box(number, number + 1, row, GRAY, ("wait for", f"k-tile {step.k_tile}"))
        case Action.FETCH | Action.BULK_FETCH | Action.STORE:
            second = f"> stage {step.k_tile % stages}"
        case Action.GLOBAL_LOAD:
            second = "> regs"
        case _:
            second = "all of it" if step.k_block is None else f"block {step.k_block}"
    return _box(number, number + 1, row, hue(step.k_tile), (f"k-tile {step.k_tile}", second))


def _next_in_stage(stay: Residence, stays: Sequence[Residence]) -> Residence | None:
    """Return the k-tile that is fetched when a stay is over."""
    later = (other for other in stays if other.stage == stay.stage and other.k_tile > stay.k_tile)
    return min(later, key=lambda other: other.k_tile, default=None)


def _held(stay: Residence, following: Residence | None, first: int, above: int, end: int) -> list[Box]:
    """Draw a k-tile's stay: in flight from the middle of its fetch slot, read from the wait at a slot's start."""
    row = first + stay.stage
    landed = end if stay.landed is None else stay.landed
    name = f"k-tile {stay.k_tile}"
    boxes = []
    if stay.fetched < landed:
        flight = hue(stay.k_tile, IN_FLIGHT, 3)
        boxes.append(_box(stay.fetched + 0.5, landed, row, flight, (name, "in flight"), above))
    if stay.landed is not None:
        until: float = end if stay.last_read is None else stay.last_read + 1
        if following is not None:
            until = min(until, following.fetched + 0.5)
        boxes.append(_box(stay.landed, until, row, hue(stay.k_tile, PRESENT, 3), (name, "being read"), above))
    return boxes


def _carried(k_tile: int, loaded: int, stored: int | None, row: int, end: int) -> Box:
    """Draw the k-tile's time in registers, from the middle of the slot that loads it until it is stored."""
    until = end if stored is None else stored
    lines = (f"k-tile {k_tile}", "in flight")
    return _box(loaded + 0.5, until, row, hue(k_tile, IN_FLIGHT, 3), lines, row)


def _box(begin: float, end: float, row: int, fill: str, lines: tuple[str, ...], above: int | None = None) -> Box:
    """Draw a box from slot `begin` to slot `end`; half a slot has room for one short line only.

    `above` is the number of instruction rows above, for a row of contents.
    """
    width = (end - begin) * SLOT_PX
    fits = all(text_width(line, CELL_PX) <= width for line in lines)
    shown = lines if fits else (lines[0].split()[-1],)
    return Box(
        x=LABEL_PX + begin * SLOT_PX,
        y=_row_y(row, row + 1 if above is None else above),
        width=width,
        height=ROW_PX,
        fill=fill,
        lines=shown,
    )


def _row_y(row: int, above: int) -> float:
    """Separate the rows of contents from the rows of instructions above them."""
    return 2 * HEAD_PX + row * (ROW_PX + GAP_PX) + (HEAD_PX if row >= above else 0)


def _names(names: Sequence[str], above: int) -> list[Item]:
    return [
        Text(x=LABEL_PX - 8, y=_row_y(row, above) + ROW_PX / 2, text=name, align="end", size_px=CELL_PX)
        for row, name in enumerate(names)
    ]


def _heads(slots: Sequence[Slot]) -> list[Item]:
    """Draw k-tiles above their slots, and k-blocks."""
    items: list[Item] = []
    begin = 0
    for k_tile, group in groupby(slots, key=lambda slot: slot.k_tile):
        members = list(group)
        middle = LABEL_PX + (begin + len(members) / 2) * SLOT_PX
        name = "prologue" if k_tile is None else f"k-tile {k_tile}"
        items.append(Text(x=middle, y=HEAD_PX / 2, text=name, align="middle", size_px=CELL_PX, bold=True))
        items += [
            Text(
                x=LABEL_PX + (begin + i + 0.5) * SLOT_PX,
                y=1.5 * HEAD_PX,
                text=f"block {slot.k_block}",
                align="middle",
                size_px=CELL_PX,
            )
            for i, slot in enumerate(members)
            if slot.k_block is not None
        ]
        begin += len(members)
    return items


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: the slots in program order, and each k-tile's stay in a stage."""
    slots = shown(plan.loop)
    words = _words(slots, plan.atom.instruction)
    return {
        "stages": plan.stages,
        "k_blocks": plan.mma.k_blocks,
        "slots": [
            {
                "name": _name(slot),
                "steps": [[str(step.instruction), step.k_tile, step.k_block, step.pending] for step in slot.told],
            }
            for slot in slots
        ],
        "words": {str(name): [found.row, found.note] for name, found in words.items()},
        "stays": [[x.k_tile, x.stage, x.fetched, x.landed, x.last_read] for x in residences(slots, plan.stages)],
        "passing": [list(passage) for passage in passages(slots)],
    }
