"""Shared memory of A and B: layouts, ranking of the alternatives, offsets and banks."""

from typing import Any

from cutegen.algebra import format_layout
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.values.path import OperandPath
from cutegen.show.canvas.banks import bank_legend
from cutegen.show.canvas.drawing import Picture, titled
from cutegen.show.parts.tile import CELL_MEANING, Tile, corner_blocks, costed_tile, ranked, tile_page
from cutegen.show.view import View, section
from cutegen.support.words import extents, plural


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show layout, ranking, swizzled offsets and banks of A and B."""
    blocks: list[list[str]] = []
    for operand in plan.operands:
        blocks += _blocks(operand, plan.stages, everything=everything)
    table = {"spec": plan.spec.name, "smem_bytes": plan.smem_bytes, **{x.name: _table(x) for x in plan.operands}}
    return View(tuple(blocks), table)


def _blocks(operand: OperandPath, stages: int, *, everything: bool) -> list[list[str]]:
    shared = operand.smem
    x = operand.name.upper()
    facts = [
        ("layout", format_layout(shared.layout)),
        ("atom", format_layout(shared.chosen.atom)),
        ("tile", f"{extents(operand.tile)} {operand.dtype.name}, contiguous along {operand.major}"),
        ("bytes", f"{shared.bytes:,}: {plural(stages, 'stage')} of {shared.chosen.tile_bytes:,}"),
    ]
    return [
        section(f"{x} in shared memory: ({operand.modes[0]}, {operand.modes[1]}, stage) to element", facts),
        ranked(
            f"Layouts of {x}, best first, * in use: wavefronts to write and read one tile once",
            shared,
            everything=everything,
        ),
        *corner_blocks(Tile.of_operand(operand), everything=everything),
    ]


def _table(operand: OperandPath) -> dict[str, Any]:
    shared, tile = operand.smem, operand.tile
    return {
        "layout": format_layout(shared.layout),
        "atom": format_layout(shared.chosen.atom),
        "tile": list(tile),
        "bytes": shared.bytes,
        "ranking": shared.ranking_table(),
        "offsets": Tile.of_operand(operand).offsets.reshape(tile[1], tile[0]).T.tolist(),
    }


def picture(plan: GemmPlan, thread: int) -> Picture:
    """Draw the first rows of one stage of A and of B, and the cost of the layouts."""
    tiles = [costed_tile(Tile.of_operand(operand), plan) for operand in plan.operands]
    return titled("A and B in shared memory, by bank", [CELL_MEANING], *tiles, bank_legend())


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: the offset of each element of A and B, in the layout in use and in all alternatives."""
    return {
        x.name: {
            **tile_page(Tile.of_operand(x)),
            "begins": plan.memory.offset_bytes(x.name),
            "stages": plan.stages,
        }
        for x in plan.operands
    }
