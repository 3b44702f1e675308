"""A tile of A, B or C in shared memory for display: the offset and bank of each element."""

from dataclasses import dataclass
from typing import Any, Self

from cutegen.algebra import LayoutExpr, format_layout, offsets, tile_to_shape
from cutegen.hardware import DType
from cutegen.hardware.units import BANK_BYTES, BANKS
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import hidden_lines, ranking, ranking_lines, ways
from cutegen.plan.values.copies import AccessKey
from cutegen.plan.values.operand import SmemCandidate, SmemTile, Wavefronts
from cutegen.plan.values.path import OperandPath
from cutegen.show.canvas.banks import Table, bank_tile, word_elems
from cutegen.show.canvas.drawing import Picture, captioned
from cutegen.show.view import cell_table, folded_table, packed_layout
from cutegen.support.words import extents, plural

LINE_ROWS, LINE_COLUMNS, VECTOR_ELEMS = 8, 16, 8
DRAWN_ROWS, DRAWN_BYTES = 16, 128
CELL_MEANING = "Each cell: bank, below it the offset of its first element"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """An (X, Y) tile, `modes` its letters; `major_mode` is contiguous and drawn to the right. Coordinates: X first.

    `write` and `read` are the accesses that fill and drain it.
    """

    name: str
    dtype: DType
    modes: tuple[str, str]
    major_mode: int
    extents: tuple[int, int]
    smem: SmemTile
    write: str
    read: str

    @classmethod
    def of_operand(cls, operand: OperandPath) -> Self:
        """Return one stage of A or of B."""
        return cls(
            name=operand.name.upper(),
            dtype=operand.dtype,
            modes=operand.modes,
            major_mode=operand.major_mode,
            extents=operand.tile,
            smem=operand.smem,
            write=AccessKey.g2s(operand.name),
            read=operand.read_key,
        )

    @classmethod
    def of_result(cls, plan: GemmPlan, smem: SmemTile) -> Self:
        """Return the CTA's tile of C, or the part of it that is stored at once."""
        c = plan.epilogue
        return cls(
            name="C",
            dtype=c.dtype,
            modes=("m", "n"),
            major_mode=c.major_mode,
            extents=c.part or tile_of_c(plan),
            smem=smem,
            write=AccessKey.EPILOGUE_WRITE,
            read=AccessKey.EPILOGUE_READ,
        )

    @property
    def corner(self) -> str:
        """The corner of its table: the mode that goes down, and the mode that goes to the right."""
        return f"{self.modes[1 - self.major_mode]}\\{self.modes[self.major_mode]}"

    @property
    def orientation(self) -> str:
        """Say which mode goes where in its tables: the contiguous one always to the right."""
        return f"{self.modes[1 - self.major_mode]} downwards, {self.modes[self.major_mode]} to the right"

    @property
    def offsets(self) -> Table:
        """The element offset of each coordinate."""
        return offsets(self.smem.layout)[: self.extents[0] * self.extents[1]]

    @property
    def banks(self) -> Table:
        """The bank of each coordinate's first byte."""
        banks: Table = self.offsets * self.dtype.bytes // BANK_BYTES % BANKS
        return banks

    def place(self, coord: int) -> tuple[int, int]:
        """Return (row, column) of a coordinate."""
        x, y = coord % self.extents[0], coord // self.extents[0]
        return (x, y) if self.major_mode == 1 else (y, x)

    def by_row(self, table: Table) -> Table:
        """[coordinate] as [row, column]."""
        turned = table.reshape(self.extents[1], self.extents[0])
        return turned.T if self.major_mode == 1 else turned


def tile_of_c(plan: GemmPlan) -> tuple[int, int]:
    """Return the extents of the CTA's tile of C: with pairs half of the columns of its sums."""
    m, n, _ = plan.cta_tile
    return plan.epilogue.fusion.tile_of_c((m, n))


def corner_lines(tile: Tile, table: Table, *, everything: bool) -> list[str]:
    """Return a table by coordinate, one cell per 8 neighbors along the contiguous mode: its first rows, or all."""
    whole = tile.by_row(table)[:, ::VECTOR_ELEMS]
    corner = whole if everything else whole[:LINE_ROWS, :LINE_COLUMNS]
    columns = range(0, corner.shape[1] * VECTOR_ELEMS, VECTOR_ELEMS)
    table_of = folded_table if everything else cell_table
    lines = table_of(corner.tolist(), range(corner.shape[0]), columns, tile.corner)
    return [*lines, *cut_line(corner.shape, whole.shape)]


def cut_line(shown: tuple[int, ...], whole: tuple[int, ...]) -> list[str]:
    """Say what a table leaves out, and how to get it; nothing if it is complete.

    >>> cut_line((8, 8), (128, 8)), cut_line((8, 8), (8, 8))
    (['  and 120 more rows (see --all)'], [])
    """
    rows, columns = (there - here for here, there in zip(shown, whole, strict=True))
    left = [plural(count, f"more {word}") for count, word in ((rows, "row"), (columns, "column")) if count]
    return [f"  and {' and '.join(left)} (see --all)"] if left else []


def corner_blocks(tile: Tile, *, everything: bool) -> list[list[str]]:
    """Show the element offset and the first bank of each 8 neighbors in the tile's first rows."""
    offset, bank = (corner_lines(tile, table, everything=everything) for table in (tile.offsets, tile.banks))
    return [
        [f"Offset, in elements, of each 8 neighbors of {tile.name}: {tile.orientation}", *offset],
        [f"First bank of each 8 neighbors of {tile.name}: {tile.orientation}", *bank],
    ]


def ranked(title: str, smem: SmemTile, *, everything: bool) -> list[str]:
    """Show the ranking of layouts: the best and the plain one, and how many more there are."""
    rows, whole = ranking(smem, everything=everything), ranking(smem, everything=True)
    return [*ranking_lines(title, rows), *hidden_lines(len(whole) - len(rows))]


def tile_picture(tile: Tile) -> Picture:
    """Draw the first rows: each cell has its bank, and below it the offset of its first element."""
    shown = tile.by_row(tile.offsets)[:DRAWN_ROWS, : DRAWN_BYTES // tile.dtype.bytes]
    names = tile.modes[1 - tile.major_mode], tile.modes[tile.major_mode]
    return bank_tile(shown, tile.dtype.bytes, names, cell_elems=word_elems(shown, tile.dtype.bytes))


def costed_tile(tile: Tile, plan: GemmPlan) -> Picture:
    """Draw `tile_picture` under its layout and the bank conflicts of writing and reading it."""
    found = plan.predictions.wavefronts
    conflicts = f"writes {ways(found[tile.write].ways)}, reads {ways(found[tile.read].ways)}"
    caption = [
        f"{tile.name}, {tile.dtype.name}, {shown_part(tile)}: {tile.smem.chosen.name}, {conflicts}",
        format_layout(tile.smem.layout),
    ]
    return captioned(caption, tile_picture(tile))


def shown_part(tile: Tile) -> str:
    """Say how much of the tile `tile_picture` shows."""
    rows, columns = tile.extents[1 - tile.major_mode], tile.extents[tile.major_mode]
    shown = min(rows, DRAWN_ROWS), min(columns, DRAWN_BYTES // tile.dtype.bytes)
    return f"{extents(shown)} of {extents((rows, columns))}"


def tile_page(tile: Tile) -> dict[str, Any]:
    """Return the tile and every candidate layout, the one in use first; wavefronts as in the ranking."""
    shared = tile.smem
    others = [row for row in shared.ranking if row != shared.chosen]
    return {
        "name": tile.name,
        "dtype": tile.dtype.name,
        "bits": tile.dtype.bits,
        "tile": list(tile.extents),
        "modes": list(tile.modes),
        "major": tile.major_mode,
        "layouts": [
            _layout_page(shared.chosen, shared.layout_of_one_stage, tile),
            *(_layout_page(row, tile_to_shape(row.atom, tile.extents), tile) for row in others),
        ],
    }


def _layout_page(row: SmemCandidate, layout: LayoutExpr, tile: Tile) -> dict[str, Any]:
    def pair(found: Wavefronts | None) -> list[int] | None:
        return None if found is None else [found.predicted, found.ideal]

    return {
        "name": row.name,
        "kind": "swizzle" if row.swizzle is not None else "pad" if row.pad_elems else "plain",
        "text": format_layout(layout),
        "bytes": row.tile_bytes,
        "write": pair(row.write),
        "lines": pair(row.lines),
        "read": pair(row.read),
        "stage": row.tile_bytes // tile.dtype.bytes,
        **packed_layout(layout),
    }
