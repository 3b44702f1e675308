"""`show SPEC g2s`: the copies from global to shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.algebra import format_layout, offsets, spec_notation
from cutegen.cli.views.bulk import bulk_facts, bulk_table
from cutegen.cli.views.view import Table, View, named_layouts, phase_header, phase_rows, tile_corner, titled
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan, Sectors, Wavefronts
from cutegen.plan.explain import ways
from cutegen.plan.geometry.access import by_warp, vectors
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.values.gemm_plan import OperandPlan
from cutegen.support.words import plural


def g2s(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
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
        boxes=lambda copy: [titled(title, [*bulk_facts(copy, operand.smem, along), *cost])],
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
        titled(title, facts),
        named_layouts("Thread and value to column-major coordinate in the copy's tile", _tv_layouts(copy)),
        [
            f"Thread that copies each 8 neighbours of {x}",
            *tile_corner(_copier(coords), operand.tile, operand.major_mode, operand.modes),
        ],
        titled(
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
