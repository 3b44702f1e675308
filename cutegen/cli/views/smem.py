"""`show SPEC smem`: where each operand lies in shared memory, and how the alternatives rank."""

from __future__ import annotations

from typing import Any

from cutegen.algebra import format_layout, offsets
from cutegen.cli.views.view import View, tile_corner, titled
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import BANK_BYTES, BANKS
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ranking, ranking_lines
from cutegen.plan.values.gemm_plan import OperandPlan, SmemTile
from cutegen.support.words import extents, plural


def smem(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
    """Layout, ranking, swizzled offsets and banks of A and B."""
    blocks: list[list[str]] = []
    for operand in (plan.a, plan.b):
        blocks += _blocks(operand, plan.stages)
    table = {"spec": plan.spec.name, "smem_bytes": plan.smem_bytes, **{x.name: _table(x) for x in (plan.a, plan.b)}}
    return View(tuple(blocks), table)


def _blocks(operand: OperandPlan, stages: int) -> list[list[str]]:
    shared = operand.smem
    x = operand.name.upper()
    facts = [
        ("layout", format_layout(shared.layout)),
        ("atom", format_layout(shared.chosen.atom)),
        ("tile", f"{extents(operand.tile)} {operand.dtype.name}, contiguous along {operand.major}"),
        ("bytes", f"{shared.bytes:,}: {plural(stages, 'stage')} of {shared.chosen.tile_bytes:,}"),
    ]
    return [
        titled(f"{x} in shared memory: ({operand.modes[0]}, {operand.modes[1]}, stage) to element", facts),
        ranking_lines(
            f"Layouts of {x}, best first, * in use: wavefronts of one tile written once and read once", ranking(shared)
        ),
        *corner_blocks(x, shared, operand.tile, operand.major_mode, operand.modes, operand.dtype.bytes),
    ]


def corner_blocks(
    name: str, shared: SmemTile, tile: tuple[int, int], major_mode: int, modes: tuple[str, str], element_bytes: int
) -> list[list[str]]:
    """The element offset, and the first bank, of each 8 neighbours in the tile's first rows."""
    table = offsets(shared.layout)[: tile[0] * tile[1]]
    banks = table * element_bytes // BANK_BYTES % BANKS
    return [
        [f"Element offset of each 8 neighbours of {name}", *tile_corner(table, tile, major_mode, modes)],
        [f"First bank of each 8 neighbours of {name}", *tile_corner(banks, tile, major_mode, modes)],
    ]


def _table(operand: OperandPlan) -> dict[str, Any]:
    shared = operand.smem
    table = offsets(shared.layout)[: operand.tile[0] * operand.tile[1]]
    return {
        "layout": format_layout(shared.layout),
        "atom": format_layout(shared.chosen.atom),
        "tile": list(operand.tile),
        "bytes": shared.bytes,
        "ranking": shared.ranking_table(),
        "offsets": table.reshape(operand.tile[1], operand.tile[0]).T.tolist(),
    }
