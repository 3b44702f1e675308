"""`show SPEC pipeline`: the main loop in program order, and what each stage holds meanwhile."""

from __future__ import annotations

from typing import Any

from cutegen.cli.views.view import View, titled
from cutegen.plan import GemmPlan
from cutegen.plan.columns import wrapped
from cutegen.plan.main_loop import Action, Residence, Slot, residences
from cutegen.plan.partitions import Problem
from cutegen.plan.text import plural

HEADER = ("k-tile.block", "wait", "load", "cp.async", "mma")
NOTE = (
    "In a line, instructions are issued from left to right: cp.async.wait_group n and bar.sync, the load of a k-tile's "
    "block to registers, cp.async for a k-tile, mma of a k-tile's block. Then what each stage holds: the k-tile that "
    "is read, or after < the one that is on its way."
)


def pipeline(plan: GemmPlan, thread: int, problem: Problem) -> View:
    """Prologue and first k-tiles, one line for each k-block."""
    slots = plan.main_loop
    stays = list(residences(slots, plan.stages))
    title = f"Main loop: {plan.stages} stages, {plural(plan.k_blocks, 'k-block')} in a k-tile of {plan.cta_tile[2]}"
    states = [f"stage {stage}" for stage in range(plan.stages)]
    rows = [(*_issued(slot), *_stages(number, stays, plan.stages)) for number, slot in enumerate(slots)]
    table = {
        "spec": plan.spec.name,
        "stages": plan.stages,
        "k_blocks": plan.k_blocks,
        "slots": [_slot_table(slot) for slot in slots],
    }
    return View((titled(title, rows, header=(*HEADER, *states)), wrapped(NOTE)), table)


def _issued(slot: Slot) -> tuple[str, ...]:
    name = "prologue" if slot.k_tile is None else f"{slot.k_tile}.{slot.k_block}"
    wait, load, fetch, multiply = map(slot.step, (Action.WAIT, Action.LOAD, Action.FETCH, Action.MULTIPLY))
    return (
        name,
        f"{wait.pending}" if wait else "",
        f"{load.k_tile}.{load.k_block}" if load else "",
        f"{fetch.k_tile}" if fetch else "",
        f"{multiply.k_tile}.{multiply.k_block}" if multiply else "",
    )


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
