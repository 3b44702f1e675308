"""Any layout as a thread-value layout: (thread, value) -> column-major coordinate in a tile."""

from collections.abc import Mapping

from cutegen.algebra import LayoutExpr, format_layout, offsets_by_row
from cutegen.errors import RequestError
from cutegen.hardware.units import WARP
from cutegen.show.canvas.drawing import PALE, Cell, Picture, grid, holder, titled, warp_legend
from cutegen.show.parts.layout import MAX_EXTENT, SHOWN_ROWS
from cutegen.show.view import View, cell_table, folded_table, section
from cutegen.support.words import extents, plural, text_width

Holders = Mapping[tuple[int, int], list[tuple[int, int]]]


def view(layout: LayoutExpr, tile: tuple[int, int], *, everything: bool = False) -> View:
    """Show the tile's elements with their thread and value; rows downwards, column by column."""
    threads, values, held = _held(layout, tile)
    several = sum(len(found) > 1 for found in held.values())
    empty = tile[0] * tile[1] - len(held)
    facts = [
        ("threads", f"{threads:,}, {plural(values, 'value')} each"),
        ("tile", f"{extents(tile)}, column-major: coordinate = row + {tile[0]} * column"),
        ("held", _coverage(several, empty)),
    ]
    cells = [[_name(held, (row, column)) for column in range(tile[1])] for row in range(tile[0])]
    content = {
        "layout": format_layout(layout),
        "tile": list(tile),
        "threads": threads,
        "values": values,
        "holders": [[held.get((row, column), []) for column in range(tile[1])] for row in range(tile[0])],
    }
    title = "Thread and value of each element" + (", the first of several" if several else "")
    return View((section(format_layout(layout), facts), [title, *_table(cells, tile, everything=everything)]), content)


def picture(layout: LayoutExpr, tile: tuple[int, int], thread: int) -> Picture:
    """Draw the tile, each element in the color of its warp, those of `thread` dark. Raises RequestError."""
    threads, values, held = _held(layout, tile)
    if not 0 <= thread < threads:
        raise RequestError(f"--thread: found {thread}; expected 0 to {threads - 1}, a thread of the layout")
    rows, columns = min(tile[0], MAX_EXTENT), min(tile[1], MAX_EXTENT)
    cells = [[_cell(held.get((i, j), []), thread) for j in range(columns)] for i in range(rows)]
    drawn = grid(
        cells, rows=[f"{i}" for i in range(rows)], columns=[f"{j}" for j in range(columns)], corner="row\\column"
    )
    facts = [
        f"{plural(threads, 'thread')}, {plural(values, 'value')} each, in a tile of {extents(tile)}; "
        f"shown: {extents((rows, columns))}",
        _coverage(sum(len(found) > 1 for found in held.values()), tile[0] * tile[1] - len(held)),
    ]
    legend = warp_legend(range(-(-threads // WARP)), thread, "T thread, V its value; four shades: lane mod 4")
    return titled(format_layout(layout), facts, drawn, legend)


def _held(layout: LayoutExpr, tile: tuple[int, int]) -> tuple[int, int, Holders]:
    """Return (threads, values, (row, column) -> each (thread, value)). Raises RequestError if the tile is too small."""
    table = offsets_by_row(layout)
    most, elems = int(table.max()), tile[0] * tile[1]
    if most >= elems or int(table.min()) < 0:
        raise RequestError(
            f"--tv: found a tile of {extents(tile)}, {elems} elements; expected room for coordinates "
            f"{int(table.min())} to {most}"
        )
    held: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for thread, line in enumerate(table.tolist()):
        for value, coord in enumerate(line):
            held.setdefault((coord % tile[0], coord // tile[0]), []).append((thread, value))
    return table.shape[0], table.shape[1], held


def _coverage(several: int, empty: int) -> str:
    if not several and not empty:
        return "each element once"
    said = [f"{plural(several, 'element')} by several"] * bool(several) + [
        f"{plural(empty, 'element')} by none"
    ] * bool(empty)
    return ", ".join(said)


def _name(held: Holders, place: tuple[int, int]) -> str:
    found = held.get(place)
    return f"T{found[0][0]}V{found[0][1]}" if found else "."


def _cell(found: list[tuple[int, int]], marked: int) -> Cell:
    """Return the first holder, or the marked thread if it is one of several."""
    if not found:
        return Cell((), PALE)
    thread, value = next((pair for pair in found if pair[0] == marked), found[0])
    return holder(thread, f"{value}", thread % 4, marked=thread == marked)


def _table(cells: list[list[str]], tile: tuple[int, int], *, everything: bool) -> list[str]:
    """Return the part that fits, and its size; all of it with `everything`."""
    widest = max(len(cell) for line in cells for cell in line)
    room = max(1, (text_width() - len(f"{tile[0]}") - 5) // (max(widest, len(f"{tile[1]}")) + 1))
    if everything:
        return folded_table(cells, range(tile[0]), range(tile[1]), "row\\column")
    rows, columns = min(tile[0], SHOWN_ROWS), min(tile[1], room)
    lines = cell_table([line[:columns] for line in cells[:rows]], range(rows), range(columns), "row\\column")
    cut = f"  ... {extents((rows, columns))} of {extents(tile)} (see --all)"
    return [*lines, cut] if (rows, columns) != tile else lines
