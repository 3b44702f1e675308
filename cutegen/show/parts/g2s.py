"""A and B from global to shared memory: the thread of each vector, the costs, and the banks."""

from functools import partial
from typing import Any

from cutegen.algebra import size, spec_notation
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan, Sectors, Wavefronts
from cutegen.plan.gemm_plan import ways
from cutegen.plan.values.copies import AccessKey, BulkTensorCopy, VectorCopy
from cutegen.plan.values.path import OperandPath
from cutegen.show.canvas.banks import bank_legend, phase_legend
from cutegen.show.canvas.drawing import Picture, above, arranged, beside, captioned, titled
from cutegen.show.parts import copies
from cutegen.show.parts.copies import Requests, bulk_facts
from cutegen.show.parts.tile import Tile, corner_lines, shown_part, tile_picture
from cutegen.show.view import View, section
from cutegen.support.words import extents, plural


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show thread grid, thread-value layouts, wavefronts and sectors of A and B, and the first copy of a warp."""
    blocks: list[list[str]] = []
    for operand in plan.operands:
        blocks += _blocks(plan, operand, thread // WARP, everything=everything)
    return View(tuple(blocks), {"spec": plan.spec.name, **{x.name: _table(plan, x) for x in plan.operands}})


def _blocks(plan: GemmPlan, operand: OperandPath, warp: int, *, everything: bool) -> list[list[str]]:
    x = operand.name.upper()
    shared, sectors = _predicted(plan, operand)
    cost = [
        ("wavefronts", f"{shared.predicted:,} of at least {shared.ideal:,}, {ways(shared.ways)}"),
        ("sectors", f"{sectors.predicted:,} of at least {sectors.ideal:,}"),
    ]
    title = f"{x} from global to shared memory, per k-tile"
    along = operand.major, operand.modes[1 - operand.major_mode]
    return operand.g2s.by_kind(
        vectors=lambda copy: _vector_blocks(
            plan, copy, operand, title, cost, _copying(copy, warp), everything=everything
        ),
        boxes=lambda copy: [section(title, [*bulk_facts(copy, operand.smem, along), *cost])],
    )


def _vector_blocks(
    plan: GemmPlan,
    copy: VectorCopy,
    operand: OperandPath,
    title: str,
    cost: list[tuple[str, str]],
    warp: int,
    *,
    everything: bool,
) -> list[list[str]]:
    tile = Tile.of_operand(operand)
    requests, together = Requests.of(copy, tile), _accesses(plan, copy, operand)[0]
    joined = f": {len(together)} vectors of a thread at once" if len(together) > 1 else ""
    facts = [
        ("atom", f"{copy.atom.name}, {copy.bits} bits"),
        ("threads", f"{spec_notation(copy.threads)}, {plural(copies.steps_of(copy, tile), 'vector')} each"),
        *cost,
        ("requests", requests.summary),
    ]
    return [
        section(title, facts),
        section(
            "Thread and value to column-major coordinate in the copy's tile",
            [*copies.tv_layouts(copy.tiled_copy).items()],
        ),
        [
            f"Thread that copies each 8 neighbors of {tile.name}: {tile.orientation}",
            *corner_lines(tile, copies.copier(copy, tile), everything=everything),
        ],
        requests.lines(f"{requests.caption(warp, warp)}, row by row of the matrix", warp),
        copies.first_access(copy, tile, warp, together).lines(f"First copy of warp {warp} into shared memory{joined}"),
    ]


def _copying(copy: VectorCopy, warp: int) -> int:
    """Return a warp of those that copy, counted among them: this one, or the first if it does not copy."""
    return warp if warp < size(copy.threads) // WARP else 0


def _accesses(plan: GemmPlan, copy: VectorCopy, operand: OperandPath) -> tuple[tuple[int, ...], ...]:
    return copy.accesses(operand.landing(plan.tiled_mma, plan.target))


def _vector_table(copy: VectorCopy) -> dict[str, Any]:
    threads = spec_notation(copy.threads)
    return {
        "atom": copy.atom.name,
        "bits": copy.bits,
        "threads": threads,
        "layouts": copies.tv_layouts(copy.tiled_copy),
    }


def _predicted(plan: GemmPlan, operand: OperandPath) -> tuple[Wavefronts, Sectors]:
    key = AccessKey.g2s(operand.name)
    return plan.predictions.wavefronts[key], plan.predictions.sectors[key]


def _table(plan: GemmPlan, operand: OperandPath) -> dict[str, Any]:
    shared, sectors = _predicted(plan, operand)
    return {
        **operand.g2s.by_kind(vectors=_vector_table, boxes=lambda copy: {"atom": copy.atom.name, **copy.to_json()}),
        "wavefronts": {"ideal": shared.ideal, "predicted": shared.predicted},
        "sectors": {"ideal": sectors.ideal, "predicted": sectors.predicted},
    }


def picture(plan: GemmPlan, thread: int) -> Picture:
    """Draw for A and B the thread that copies each vector in one step, and the banks of a warp's vectors."""
    parts = [_drawn(plan, operand, thread) for operand in plan.operands]
    notes = plan.a.g2s.by_kind(
        vectors=lambda _: (copies.copy_legend(plan, thread), phase_legend()), boxes=lambda _: (bank_legend(),)
    )
    return titled("A and B from global to shared memory", [], arranged(*parts), *notes)


def _drawn(plan: GemmPlan, operand: OperandPath, thread: int) -> Picture:
    return operand.g2s.by_kind(
        vectors=lambda copy: _drawn_vectors(plan, copy, operand, thread), boxes=lambda copy: _drawn_boxes(copy, operand)
    )


def _drawn_vectors(plan: GemmPlan, copy: VectorCopy, operand: OperandPath, thread: int) -> Picture:
    """Draw the thread of each vector, and the banks that it is written to."""
    tile, warp = Tile.of_operand(operand), _copying(copy, thread // WARP)
    found = plan.predictions.wavefronts[tile.write]
    who = captioned(
        [
            f"{tile.name}: threads {spec_notation(copy.threads)}",
            f"step 1 of {copies.steps_of(copy, tile)} over {extents(tile.extents)}",
        ],
        copies.copy_grid(copy, tile, thread),
    )
    banks = captioned(
        [f"{copy.atom.name}: writes of warp {warp}, {ways(found.ways)}", operand.smem.chosen.name],
        copies.first_access(copy, tile, warp, _accesses(plan, copy, operand)[0]).picture(),
    )
    requests = Requests.of(copy, tile)
    read = captioned([requests.caption(warp, warp), requests.summary], requests.picture(warp))
    return beside(above(who, read), banks)


def _drawn_boxes(copy: BulkTensorCopy, operand: OperandPath) -> Picture:
    """Draw the place of a box's first rows in shared memory: a box is copied as a unit, not by threads."""
    count = "one box" if copy.boxes == 1 else f"{copy.boxes} boxes"
    rows = operand.modes[1 - operand.major_mode]
    caption = [
        f"{operand.name.upper()}: {copy.atom.name}, {count} of {extents(copy.box)} along {operand.major} and {rows}",
        f"{operand.smem.chosen.name}: bank, and under it the offset of each element; drawn: "
        f"{shown_part(Tile.of_operand(operand))}",
    ]
    return captioned(caption, tile_picture(Tile.of_operand(operand)))


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: the thread that copies each element of A and B and the vectors of each access, or the box."""
    found = {}
    for x in plan.operands:
        sectors = plan.predictions.sectors[AccessKey.g2s(x.name)]
        found[x.name] = {
            **copies.copy_page(x.g2s, Tile.of_operand(x)),
            **x.g2s.by_kind(vectors=partial(_access_page, plan, x), boxes=lambda _: {}),
            "sectors": [sectors.predicted, sectors.ideal],
        }
    return found


def _access_page(plan: GemmPlan, operand: OperandPath, copy: VectorCopy) -> dict[str, Any]:
    return {"accesses": [list(each) for each in _accesses(plan, copy, operand)]}
