"""Shared memory of A and B, coloured by bank."""

from __future__ import annotations

from cutegen.algebra import format_layout, offsets
from cutegen.draw.banks import Table, bank_legend, bank_tile, word_elems
from cutegen.draw.picture import Picture, captioned, titled
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ways
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.gemm_plan import OperandPlan, SmemTile
from cutegen.support.words import extents

SHOWN_ROWS, SHOWN_BYTES = 16, 128


def smem(plan: GemmPlan, thread: int) -> Picture:
    """The first rows of one stage of A and of B, and what the layouts cost."""
    tiles = [_operand(plan, operand) for operand in (plan.a, plan.b)]
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


def _operand(plan: GemmPlan, operand: OperandPlan) -> Picture:
    x, found = operand.name, plan.predictions.wavefronts
    element_bytes = operand.dtype.bytes
    caption = [
        f"{x.upper()}, {operand.dtype.name}, {part_of(operand.tile, element_bytes, operand.major_mode)}: "
        f"{operand.smem.chosen.name}, writes {ways(found[AccessKey.g2s(x)].ways)}, "
        f"reads {ways(found[AccessKey.s2r(x)].ways)}",
        format_layout(operand.smem.layout),
    ]
    return captioned(caption, shared_tile(operand.smem, operand.tile, operand.major_mode, element_bytes, operand.modes))
