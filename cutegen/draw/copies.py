"""Copies between global and shared memory, and from there to registers: who moves what, and which banks are met."""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.algebra import LayoutExpr, offsets, spec_notation
from cutegen.draw.banks import Table, bank_legend, phase_charts, phase_legend
from cutegen.draw.colours import BANKS_PER_HUE, hue
from cutegen.draw.grid import Cell, sparse_grid
from cutegen.draw.picture import Picture, arranged, beside, captioned, titled
from cutegen.draw.smem import shared_tile
from cutegen.draw.threads import holder, span, warp_legend
from cutegen.hardware.units import BANK_BYTES, BANKS, WARP
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ways
from cutegen.plan.geometry.access import by_warp, vectors
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.plan.values.gemm_plan import OperandPlan
from cutegen.plan.values.warp_load import WarpLoad, first_fragment_load
from cutegen.support.words import extents, plural

Tile = tuple[int, int]
Modes = tuple[str, str]


def g2s(plan: GemmPlan, thread: int) -> Picture:
    """For A and B: the thread that copies each vector in one step, and where a warp's vectors land."""
    parts = [_g2s_operand(plan, operand, thread) for operand in (plan.a, plan.b)]
    notes = plan.a.g2s.by_kind(
        vectors=lambda _: (copy_legend(plan, thread), phase_legend()), boxes=lambda _: (bank_legend(),)
    )
    return titled("A and B from global to shared memory", [], arranged(*parts), *notes)


def s2r(plan: GemmPlan, thread: int) -> Picture:
    """For A and B: what the lanes of a warp address and receive in its first load, and the banks of each phase."""
    warp = thread // WARP
    loads = [first_fragment_load(plan.tiled_mma, operand, warp) for operand in (plan.a, plan.b)]
    parts = [_s2r_operand(plan, x, load, thread) for x, load in zip((plan.a, plan.b), loads, strict=True)]
    notes = warp_legend([warp], thread, "T thread, V its value; four shades: lane mod 4")
    title = f"A and B from shared memory to registers: warp {warp}"
    return titled(title, [], arranged(*parts), notes, phase_legend())


def copy_grid(copy: VectorCopy, tile: Tile, major_mode: int, modes: Modes, thread: int) -> Picture:
    """The thread that moves each vector in the copy's first step; the contiguous mode lies to the right."""
    first = vectors(copy.threads, copy.values, tile)[0]
    values = span(0, first.shape[1])
    cells = {
        _place(coord, tile, major_mode): holder(t, values, t // 8, marked=t == thread)
        for t, coord in enumerate(first[:, 0].tolist())
    }
    return sparse_grid(cells, _corner(modes, major_mode))


def copy_legend(plan: GemmPlan, thread: int) -> Picture:
    """What the colours of `copy_grid` mean."""
    return warp_legend(
        range(plan.tiled_mma.threads // WARP), thread, "T thread, V its values; four shades: 8 lanes each"
    )


def copy_phases(
    layout: LayoutExpr, copy: VectorCopy, tile: Tile, element_bytes: int, modes: Modes, warp: int
) -> Picture:
    """The banks that a warp's first vectors meet in shared memory."""
    first = by_warp(vectors(copy.threads, copy.values, tile)[..., 0])[0, warp]
    return phase_charts(offsets(layout)[first] * element_bytes, copy.bits // 8, _places(first, tile, modes))


def _g2s_operand(plan: GemmPlan, operand: OperandPlan, thread: int) -> Picture:
    return operand.g2s.by_kind(
        vectors=lambda copy: _vectors(plan, copy, operand, thread), boxes=lambda copy: _boxes(copy, operand)
    )


def _vectors(plan: GemmPlan, copy: VectorCopy, operand: OperandPlan, thread: int) -> Picture:
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


def _boxes(copy: BulkTensorCopy, operand: OperandPlan) -> Picture:
    """Where the first rows of a box lie in shared memory: a box is copied as a whole, by no thread."""
    count = "one box" if copy.boxes == 1 else f"{copy.boxes} boxes"
    rows = operand.modes[1 - operand.major_mode]
    caption = [
        f"{operand.name.upper()}: {copy.atom.name}, {count} of {extents(copy.box)} along {operand.major} and {rows}",
        f"{operand.smem.chosen.name}: bank, and under it the offset of each element",
    ]
    tile = shared_tile(operand.smem, operand.tile, operand.major_mode, operand.dtype.bytes, operand.modes)
    return captioned(caption, tile)


def _s2r_operand(plan: GemmPlan, operand: OperandPlan, load: WarpLoad, thread: int) -> Picture:
    x, elems = operand.name.upper(), load.access_bytes // operand.dtype.bytes
    reads = ways(plan.predictions.wavefronts[AccessKey.s2r(operand.name)].ways)
    placed = offsets(operand.smem.layout_of_one_stage)[load.addressed] * operand.dtype.bytes
    charts = phase_charts(placed, load.access_bytes, _places(load.addressed, operand.tile, operand.modes))
    return beside(
        captioned([f"{x}: {operand.fragment_copy.atom.name}, reads {reads}", operand.smem.chosen.name], charts),
        captioned(
            [f"{x}: lane that", "addresses", plural(elems, "element"), *_of_several(load.addressed)],
            _addressed(operand, load, placed, thread),
        ),
        captioned(
            [f"{x}: thread that receives each element,", "and as which value", *_of_several(load.received)],
            _received(operand, load, thread),
        ),
    )


def _of_several(coords: Table) -> list[str]:
    """What is said where lanes have an element in common, as those of a warp do whose loads are broadcast."""
    return ["first or marked of several"] if len(set(coords.ravel().tolist())) < coords.size else []


def _addressed(operand: OperandPlan, load: WarpLoad, placed: Table, thread: int) -> Picture:
    """Each addressed piece of the tile with its lane, in the colour of its first bank."""
    banks = placed // BANK_BYTES % BANKS
    cells: dict[tuple[int, int], Cell] = {}
    for lane in _last_is_named(len(banks), thread):
        place = _place(int(load.addressed[lane]), operand.tile, operand.major_mode)
        cells[place] = Cell((f"L{lane}",), hue(int(banks[lane]) // BANKS_PER_HUE))
    return sparse_grid(cells, _corner(operand.modes, operand.major_mode))


def _received(operand: OperandPlan, load: WarpLoad, thread: int) -> Picture:
    """Each element that the load brings, with the thread of `thread`'s warp whose register it comes to."""
    first = thread // WARP * WARP
    cells: dict[tuple[int, int], Cell] = {}
    for lane in _last_is_named(len(load.received), thread):
        t = first + lane
        for value, coord in enumerate(load.received[lane].tolist()):
            place = _place(coord, operand.tile, operand.major_mode)
            cells[place] = holder(t, f"{value}", t % 4, marked=t == thread)
    return sparse_grid(cells, _corner(operand.modes, operand.major_mode))


def _last_is_named(lanes: int, thread: int) -> Iterator[int]:
    """The lanes in the order in which cells take their names: the first comes after others, `thread`'s after all."""
    yield from reversed(range(lanes))
    if thread % WARP < lanes:
        yield thread % WARP


def _corner(modes: Modes, major_mode: int) -> str:
    return f"{modes[1 - major_mode]}\\{modes[major_mode]}"


def _place(coord: int, tile: Tile, major_mode: int) -> tuple[int, int]:
    """(row, column) of a column-major tile coordinate, the contiguous mode to the right."""
    x, y = coord % tile[0], coord // tile[0]
    return (x, y) if major_mode == 1 else (y, x)


def _places(coords: Table, tile: Tile, modes: Modes) -> list[str]:
    return [f"{modes[0]} {coord % tile[0]}, {modes[1]} {coord // tile[0]}" for coord in coords.tolist()]
