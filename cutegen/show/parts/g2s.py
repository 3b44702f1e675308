"""A and B from global to shared memory: who copies which vector, what it costs, and the banks it meets."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.algebra import format_layout, offsets, spec_notation
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan, Sectors, Wavefronts
from cutegen.plan.explain import ways
from cutegen.plan.geometry.access import by_warp, vectors
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.plan.values.gemm_plan import OperandPlan
from cutegen.show.canvas.banks import bank_legend, phase_legend
from cutegen.show.canvas.picture import Picture, arranged, beside, captioned, titled
from cutegen.show.parts.bulk import bulk_facts, bulk_table
from cutegen.show.parts.smem import shared_tile
from cutegen.show.parts.vector_copies import copy_grid, copy_legend, copy_phases
from cutegen.show.view import Table, View, named_layouts, phase_header, phase_rows, section, tile_corner
from cutegen.support.words import extents, plural


def view(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
    """Thread grid, thread-value layouts, wavefronts and sectors of A and B, and the first copy of the thread's warp."""
    blocks: list[list[str]] = []
    for operand in (plan.a, plan.b):
        blocks += _blocks(plan, operand, thread // WARP)
    return View(tuple(blocks), {"spec": plan.spec.name, **{x.name: _table(plan, x) for x in (plan.a, plan.b)}})


def _blocks(plan: GemmPlan, operand: OperandPlan, warp: int) -> list[list[str]]:
    x = operand.name.upper()
    shared, sectors = _predicted(plan, operand)
    cost = [
        ("wavefronts", f"{shared.predicted:,} of at least {shared.ideal:,}, {ways(shared.ways)}"),
        ("sectors", f"{sectors.predicted:,} of at least {sectors.ideal:,}"),
    ]
    title = f"{x} from global to shared memory, each k-tile"
    along = operand.major, operand.modes[1 - operand.major_mode]
    return operand.g2s.by_kind(
        vectors=lambda copy: _vector_blocks(copy, operand, title, cost, warp),
        boxes=lambda copy: [section(title, [*bulk_facts(copy, operand.smem, along), *cost])],
    )


def _vector_blocks(
    copy: VectorCopy, operand: OperandPlan, title: str, cost: list[tuple[str, str]], warp: int
) -> list[list[str]]:
    x = operand.name.upper()
    coords = vectors(copy.threads, copy.values, operand.tile)
    facts = [
        ("atom", f"{copy.atom.name}, {copy.bits} bits"),
        ("threads", f"{spec_notation(copy.threads)}, {plural(len(coords), 'vector')} each"),
        *cost,
    ]
    return [
        section(title, facts),
        named_layouts("Thread and value to column-major coordinate in the copy's tile", _tv_layouts(copy)),
        [
            f"Thread that copies each 8 neighbours of {x}",
            *tile_corner(_copier(coords), operand.tile, operand.major_mode, operand.modes),
        ],
        section(
            f"First copy of warp {warp} into shared memory",
            _phases(operand, copy, coords, warp),
            header=phase_header(operand.modes),
            right={1},
        ),
    ]


def _vector_table(copy: VectorCopy) -> dict[str, Any]:
    threads = spec_notation(copy.threads)
    return {"atom": copy.atom.name, "bits": copy.bits, "threads": threads, "layouts": _tv_layouts(copy)}


def _predicted(plan: GemmPlan, operand: OperandPlan) -> tuple[Wavefronts, Sectors]:
    key = AccessKey.g2s(operand.name)
    return plan.predictions.wavefronts[key], plan.predictions.sectors[key]


def _tv_layouts(copy: VectorCopy) -> dict[str, str]:
    tiled_copy = copy.tiled_copy
    return {
        "get_layoutS_TV()": format_layout(tiled_copy.layout_src_tv),
        "get_layoutD_TV()": format_layout(tiled_copy.layout_dst_tv),
    }


def _copier(coords: Table) -> Table:
    """The thread that copies each element of the tile."""
    copier: Table = np.empty(coords.size, np.int64)
    copier[coords] = np.arange(coords.shape[1])[None, :, None]
    return copier


def _phases(operand: OperandPlan, copy: VectorCopy, coords: Table, warp: int) -> list[tuple[str, ...]]:
    first = by_warp(coords[..., 0])[0, warp]
    placed = offsets(operand.smem.layout_of_one_stage)[first] * operand.dtype.bytes
    return phase_rows(placed, first, operand.tile[0], copy.bits // 8)


def _table(plan: GemmPlan, operand: OperandPlan) -> dict[str, Any]:
    shared, sectors = _predicted(plan, operand)
    return {
        **operand.g2s.by_kind(vectors=_vector_table, boxes=bulk_table),
        "wavefronts": {"ideal": shared.ideal, "predicted": shared.predicted},
        "sectors": {"ideal": sectors.ideal, "predicted": sectors.predicted},
    }


def picture(plan: GemmPlan, thread: int) -> Picture:
    """For A and B: the thread that copies each vector in one step, and where a warp's vectors land."""
    parts = [_drawn(plan, operand, thread) for operand in (plan.a, plan.b)]
    notes = plan.a.g2s.by_kind(
        vectors=lambda _: (copy_legend(plan, thread), phase_legend()), boxes=lambda _: (bank_legend(),)
    )
    return titled("A and B from global to shared memory", [], arranged(*parts), *notes)


def _drawn(plan: GemmPlan, operand: OperandPlan, thread: int) -> Picture:
    return operand.g2s.by_kind(
        vectors=lambda copy: _drawn_vectors(plan, copy, operand, thread), boxes=lambda copy: _drawn_boxes(copy, operand)
    )


def _drawn_vectors(plan: GemmPlan, copy: VectorCopy, operand: OperandPlan, thread: int) -> Picture:
    """Who copies which vector, and the banks where they land."""
    x, warp = operand.name.upper(), thread // WARP
    found = plan.predictions.wavefronts[AccessKey.g2s(operand.name)]
    steps = len(vectors(copy.threads, copy.values, operand.tile))
    who = captioned(
        [f"{x}: threads {spec_notation(copy.threads)}", f"step 1 of {steps} over {extents(operand.tile)}"],
        copy_grid(copy, operand.tile, operand.major_mode, operand.modes, thread),
    )
    layout = operand.smem.layout_of_one_stage
    banks = captioned(
        [f"{copy.atom.name}: writes of warp {warp}, {ways(found.ways)}", operand.smem.chosen.name],
        copy_phases(layout, copy, operand.tile, operand.dtype.bytes, operand.modes, warp),
    )
    return beside(who, banks)


def _drawn_boxes(copy: BulkTensorCopy, operand: OperandPlan) -> Picture:
    """Where the first rows of a box lie in shared memory: a box is copied as a whole, by no thread."""
    count = "one box" if copy.boxes == 1 else f"{copy.boxes} boxes"
    rows = operand.modes[1 - operand.major_mode]
    caption = [
        f"{operand.name.upper()}: {copy.atom.name}, {count} of {extents(copy.box)} along {operand.major} and {rows}",
        f"{operand.smem.chosen.name}: bank, and under it the offset of each element",
    ]
    tile = shared_tile(operand.smem, operand.tile, operand.major_mode, operand.dtype.bytes, operand.modes)
    return captioned(caption, tile)
