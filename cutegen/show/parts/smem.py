"""Shared memory of A and B: layouts, how the alternatives rank, offsets and banks."""

from __future__ import annotations

from typing import Any

from cutegen.algebra import format_layout, offsets
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import BANK_BYTES, BANKS
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ranking, ranking_lines, ways
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.gemm_plan import OperandPlan, SmemTile
from cutegen.show.canvas.banks import Table, bank_legend, bank_tile, word_elems
from cutegen.show.canvas.picture import Picture, captioned, titled
from cutegen.show.view import View, section, tile_corner
from cutegen.support.words import extents, plural


def view(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
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
        section(f"{x} in shared memory: ({operand.modes[0]}, {operand.modes[1]}, stage) to element", facts),
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


SHOWN_ROWS, SHOWN_BYTES = 16, 128


def picture(plan: GemmPlan, thread: int) -> Picture:
    """The first rows of one stage of A and of B, and what the layouts cost."""
    tiles = [_drawn(plan, operand) for operand in (plan.a, plan.b)]
    return titled("A and B in shared memory, by bank", [cell_meaning()], *tiles, bank_legend())


def cell_meaning() -> str:
    """What the cells of `shared_tile` say."""
    return "Each cell: its bank, and under it the offset of its first element"


def shared_tile(
    tile: SmemTile, shape: tuple[int, int], major_mode: int, element_bytes: int, modes: tuple[str, str]
) -> Picture:
    """The first rows of a tile in one stage; the contiguous mode lies to the right."""
    table = offsets(tile.layout)[: shape[0] * shape[1]].reshape(shape[1], shape[0])
    by_row: Table = table.T if major_mode == 1 else table
    shown = by_row[:SHOWN_ROWS, : SHOWN_BYTES // element_bytes]
    names = modes[1 - major_mode], modes[major_mode]
    return bank_tile(shown, element_bytes, names, cell_elems=word_elems(shown, element_bytes))


def part_of(shape: tuple[int, int], element_bytes: int, major_mode: int) -> str:
    """How much of a tile `shared_tile` shows."""
    rows, columns = shape[1 - major_mode], shape[major_mode]
    shown = min(rows, SHOWN_ROWS), min(columns, SHOWN_BYTES // element_bytes)
    return f"{extents(shown)} of {extents((rows, columns))}"


def _drawn(plan: GemmPlan, operand: OperandPlan) -> Picture:
    x, found = operand.name, plan.predictions.wavefronts
    element_bytes = operand.dtype.bytes
    caption = [
        f"{x.upper()}, {operand.dtype.name}, {part_of(operand.tile, element_bytes, operand.major_mode)}: "
        f"{operand.smem.chosen.name}, writes {ways(found[AccessKey.g2s(x)].ways)}, "
        f"reads {ways(found[AccessKey.s2r(x)].ways)}",
        format_layout(operand.smem.layout),
    ]
    return captioned(caption, shared_tile(operand.smem, operand.tile, operand.major_mode, element_bytes, operand.modes))
