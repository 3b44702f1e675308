"""Tensor memory: the columns and lanes of the buffers of sums and of the factors, and who loads from them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import format_layout, offsets_2d
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.tcgen05 import COLUMNS, LANES, columns_allocated, places_of_sums
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.values.gemm_plan import SUMS, Columns
from cutegen.show.canvas import drawing
from cutegen.show.view import View, section
from cutegen.support.words import extents, plural, span

COLUMN_PX, LANE_PX = 2.0, 3.0
MARK_PX = 5.0
_LEFT_PX, _TOP_PX, _GAP_PX = 150.0, 24.0, 6.0
_TICKS = 64
_NONE = "No tensor memory: the threads that multiply have the sums in registers"


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show the columns and what they hold, the load of a sub-tile, and the places that `thread` loads."""
    used = plan.tensor_memory
    table: dict[str, Any] = {"spec": plan.spec.name, "columns": [], "allocated": 0, "load": None, "thread": thread}
    if not used:
        return View(([_NONE],), {**table, "places": []})
    sums, places = plan.mma.accumulator, _loaded(plan, thread)
    rows = [(_span(each), _title(each), span(_lanes(plan, each))) for each in used]
    free = columns_allocated(used[-1].end) - used[-1].end
    lead = (
        f"Tensor memory of a CTA: {used[-1].end} of {COLUMNS} columns in use, {used[-1].end + free} allocated, "
        f"{LANES} lanes of 32 bits"
    )
    load = {
        "opcode": _opcode(plan),
        "columns": plan.columns_of_load,
        "layout": format_layout(sums.of_load(_values(plan))),
        "threads": sums.threads,
    }
    facts = [
        (
            "instruction",
            f"{load['opcode']}: of {plural(plan.columns_of_load, 'column')}, by each of {sums.threads} threads",
        ),
        ("thread and value", f"{load['layout']}: to the column-major coordinate in the sub-tile's rows"),
        (
            f"thread {thread}",
            f"lanes {span(places % LANES)}, columns {span(places // LANES)} of a buffer, in this order",
        ),
    ]
    table |= {
        "columns": [
            {"holds": each.holds, "number": each.number, "first": each.first, "count": each.count} for each in used
        ],
        "allocated": used[-1].end + free,
        "load": load,
        "places": [[int(place) % LANES, int(place) // LANES] for place in places],
    }
    return View(
        (section(lead, rows, header=("columns", "hold", "on lanes")), section("A sub-tile's load", facts)), table
    )


def picture(plan: GemmPlan, thread: int) -> drawing.Picture:
    """Draw the columns to the right and the lanes downwards; what `thread` loads of the first buffer is dark."""
    used = plan.tensor_memory
    if not used:
        return drawing.titled("Tensor memory", [_NONE], drawing.Picture(1, 1, ()))
    sums = plan.mma.accumulator
    entries = [
        drawing.Cell((name,), _color(plan, Columns(name, 0, 0, 0))) for name in dict.fromkeys(x.holds for x in used)
    ]
    facts = [
        f"{_opcode(plan)}: each of {sums.threads} threads loads {plural(_values(plan), 'sum')} at a time",
        f"{extents((COLUMNS, LANES))} columns and lanes of 32 bits; {used[-1].end} columns in use",
    ]
    key = drawing.legend(
        [*entries, drawing.Cell(("free",), drawing.PALE), drawing.Cell((f"thread {thread}",), drawing.MARK)],
        "shades: buffers of sums, and stages",
    )
    return drawing.titled("Tensor memory of a CTA", facts, drawing.Picture(*_size(), tuple(_items(plan, thread))), key)


def page(plan: GemmPlan) -> dict[str, Any] | None:
    """Return page data: columns and what they hold, and the lane and column of each thread's sums; None without any."""
    used = plan.tensor_memory
    if not used:
        return None
    sums = plan.mma.accumulator
    return {
        "columns": COLUMNS,
        "lanes": LANES,
        "warp_lanes": WARP,
        "load": _opcode(plan),
        "threads": sums.threads,
        "used": [
            {
                "title": _title(each),
                "sums": each.holds == SUMS,
                "number": each.number,
                "first": each.first,
                "count": each.count,
                "lanes": _runs(_lanes(plan, each)),
                "hue": _hue(plan, each),
            }
            for each in used
        ],
        # Of one buffer; a place is lane + lanes * column.
        "places": offsets_2d(_places(plan)).tolist(),
    }


def _places(plan: GemmPlan) -> Any:
    rows, columns = plan.mma.accumulator.tile
    return places_of_sums(rows, columns, plan.atom.ctas)


def _size() -> tuple[float, float]:
    return _LEFT_PX + COLUMNS * COLUMN_PX, _TOP_PX + LANES * LANE_PX + LANES // WARP * _GAP_PX


def _items(plan: GemmPlan, thread: int) -> Iterator[drawing.Item]:
    for quarter in range(LANES // WARP):
        y = _y(quarter * WARP)
        yield drawing.Box(x=_x(0), y=y, width=COLUMNS * COLUMN_PX, height=WARP * LANE_PX, fill=drawing.PALE)
        first = quarter * WARP
        name = f"lanes {first} to {first + WARP - 1}"
        yield drawing.Text(x=_LEFT_PX - 8, y=y + WARP * LANE_PX / 2, text=name, align="end", size_px=drawing.TEXT_PX)
    for column in range(0, COLUMNS + 1, _TICKS):
        yield drawing.Text(x=_x(column), y=_TOP_PX / 2, text=str(column), align="middle", size_px=drawing.CELL_PX)
    for each in plan.tensor_memory:
        for lane, count in _quarters(_lanes(plan, each)):
            label = (_title(each),) if each.count * COLUMN_PX > 8 * len(_title(each)) else ()
            yield drawing.Box(
                x=_x(each.first),
                y=_y(lane),
                width=each.count * COLUMN_PX,
                height=count * LANE_PX,
                fill=_color(plan, each),
                lines=label,
            )
    for lane, first, count in _marked(_loaded(plan, thread)):
        middle = _y(lane) + LANE_PX / 2
        yield drawing.Box(
            x=_x(first), y=middle - MARK_PX / 2, width=count * COLUMN_PX, height=MARK_PX, fill=drawing.MARK
        )
    yield drawing.Outline(x=_x(0), y=_y(0), width=COLUMNS * COLUMN_PX, height=_size()[1] - _TOP_PX - _GAP_PX)


def _x(column: int) -> float:
    return _LEFT_PX + column * COLUMN_PX


def _y(lane: int) -> float:
    return _TOP_PX + lane * LANE_PX + lane // WARP * _GAP_PX


def _title(each: Columns) -> str:
    return f"{each.holds}, {'buffer' if each.holds == SUMS else 'stage'} {each.number}"


def _span(each: Columns) -> str:
    return f"{each.first}..{each.end - 1}"


def _hue(plan: GemmPlan, each: Columns) -> int:
    names = list(dict.fromkeys(x.holds for x in plan.tensor_memory))
    return names.index(each.holds)


def _color(plan: GemmPlan, each: Columns) -> str:
    return drawing.hue(_hue(plan, each), each.number % 2, 2) if plan.tensor_memory else drawing.GRAY


def _lanes(plan: GemmPlan, each: Columns) -> NDArray[np.int64]:
    """Return the lanes of some columns that hold something: each quarter has a copy of factors."""
    if each.holds != SUMS:
        return np.arange(LANES)
    return np.unique(offsets_2d(_places(plan)) % LANES)


def _runs(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return runs of consecutive numbers: the first, and how many."""
    ends = np.flatnonzero(np.diff(numbers) != 1)
    pieces = np.split(numbers, ends + 1)
    return [(int(piece[0]), len(piece)) for piece in pieces]


def _quarters(lanes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the runs of lanes within the quarters that a warp reaches."""
    return [run for q in range(LANES // WARP) for run in _runs(lanes[lanes // WARP == q]) if (lanes // WARP == q).any()]


def _loaded(plan: GemmPlan, thread: int) -> NDArray[np.int64]:
    """Return the places of a buffer that a thread loads, in the order of its values."""
    sums = plan.mma.accumulator
    found: NDArray[np.int64] = sums.places[thread % sums.threads]
    return found


def _marked(places: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of columns in each lane: lane, first column, count."""
    for lane in np.unique(places % LANES):
        columns = np.sort(places[places % LANES == lane] // LANES)
        yield from ((int(lane), first, count) for first, count in _runs(columns))


def _opcode(plan: GemmPlan) -> str:
    drain = plan.mma.accumulator.drain
    assert drain is not None
    return drain.opcode(plan.columns_of_load)


def _values(plan: GemmPlan) -> int:
    """Return the sums of a sub-tile that each thread of a group has."""
    assert plan.epilogue.part is not None
    return plan.epilogue.part[0] * plan.columns_of_load // plan.mma.accumulator.group_threads
