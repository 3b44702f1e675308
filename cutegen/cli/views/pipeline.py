"""`show SPEC pipeline`: the main loop in program order, and what each stage holds meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cutegen.cli.views.view import View, titled
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.loop import Action
from cutegen.plan.timeline import Residence, Slot, passages, residences, shown
from cutegen.support.columns import wrapped
from cutegen.support.words import plural

COLUMNS = {
    "st.shared": (Action.STORE, "st.shared of a k-tile"),
    "wait": (Action.WAIT, "cp.async.wait_group n and bar.sync"),
    "bar.sync": (Action.BARRIER, "bar.sync, which makes a k-tile visible or its place free"),
    "bulk copy": (
        Action.BULK_FETCH,
        "cp.async.bulk.tensor for a k-tile, which another warp asks for when its stage is free",
    ),
    "full": (Action.BULK_WAIT, "the wait until a k-tile has come (mbarrier.try_wait)"),
    "load": (Action.LOAD, "the load of a k-tile's block to registers"),
    "cp.async": (Action.FETCH, "cp.async for a k-tile"),
    "ld.global": (Action.GLOBAL_LOAD, "ld.global of a k-tile"),
    "mma": (Action.MULTIPLY, "mma of a k-tile's block"),
    "fma": (Action.MULTIPLY, "fma of all of a k-tile"),
}
NOTE = (
    "In a line, instructions are issued from left to right: {}. Then what each stage holds: the k-tile that "
    "is read, or after < the one that is on its way."
)


def pipeline(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
    """Prologue and first k-tiles, one line for each k-block."""
    slots = shown(plan.loop)
    stays = list(residences(slots, plan.stages))
    counts = f"{plural(plan.stages, 'stage')}, {plural(plan.k_blocks, 'k-block')}"
    title = f"Main loop: {counts} in a k-tile of {plan.cta_tile[2]}"
    columns = _columns(slots, plan.atom.instruction)
    states = [*(["registers"] if "ld.global" in columns else []), *(f"stage {stage}" for stage in range(plan.stages))]
    rows = [
        (_name(slot), *_issued(slot, columns), *_passing(number, slots), *_stages(number, stays, plan.stages))
        for number, slot in enumerate(slots)
    ]
    table = {
        "spec": plan.spec.name,
        "stages": plan.stages,
        "k_blocks": plan.k_blocks,
        "slots": [_slot_table(slot) for slot in slots],
    }
    note = NOTE.format(", ".join(COLUMNS[name][1] for name in columns))
    return View((titled(title, rows, header=("k-tile.block", *columns, *states)), wrapped(note)), table)


def _columns(slots: Sequence[Slot], multiplies: str) -> list[str]:
    """The instructions of the loop, `multiplies` among them; a barrier that follows a wait is in the wait's column."""
    present = {step.action for slot in slots for step in slot.steps} - {Action.BARRIER}
    if any(slot.step(Action.BARRIER) and not slot.step(Action.WAIT) for slot in slots):
        present.add(Action.BARRIER)
    return [
        name
        for name, (action, _) in COLUMNS.items()
        if action in present and (action is not Action.MULTIPLY or multiplies.startswith(name))
    ]


def _name(slot: Slot) -> str:
    if slot.k_tile is None:
        return "prologue"
    return f"{slot.k_tile}" if slot.k_block is None else f"{slot.k_tile}.{slot.k_block}"


def _issued(slot: Slot, columns: Sequence[str]) -> Iterator[str]:
    for name in columns:
        action, _ = COLUMNS[name]
        step = slot.step(action)
        if step is None or (action is Action.BARRIER and slot.step(Action.WAIT)):
            yield ""
        elif action is Action.WAIT:
            yield f"{step.pending}"
        elif action is Action.BARRIER:
            yield "*"
        else:
            yield f"{step.k_tile}" if step.k_block is None else f"{step.k_tile}.{step.k_block}"


def _passing(number: int, slots: Sequence[Slot]) -> list[str]:
    """The k-tile in registers at the end of a slot, where plain copies bring any."""
    held = [(k_tile, first, last) for k_tile, first, last in passages(slots)]
    if not held:
        return []
    now = [f"<{k_tile}" for k_tile, first, last in held if first <= number and (last is None or number < last)]
    return ["".join(now)]


def _stages(number: int, stays: list[Residence], stages: int) -> list[str]:
    """What each stage holds at the end of a slot."""
    held = [""] * stages
    for stay in stays:
        if stay.fetched <= number and (stay.last_read is None or number <= stay.last_read):
            in_flight = stay.landed is None or number < stay.landed
            held[stay.stage] = f"<{stay.k_tile}" if in_flight else f"{stay.k_tile}"
    return held


def _slot_table(slot: Slot) -> dict[str, Any]:
    steps = [
        {"action": str(step.action), "k_tile": step.k_tile, "k_block": step.k_block, "pending": step.pending}
        for step in slot.steps
    ]
    return {"k_tile": slot.k_tile, "k_block": slot.k_block, "steps": steps}
