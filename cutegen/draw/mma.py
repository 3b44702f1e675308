"""The tiled MMA as CuTe's print_latex lays it out: A to the left of C, B above it, each element with who holds it."""

from __future__ import annotations

import numpy as np

from cutegen.algebra import OperandName, offsets_2d
from cutegen.algebra.tiled_mma import OPERAND_MODES
from cutegen.draw.grid import Blocks, Cell, cell_size, grid
from cutegen.draw.picture import Picture, above, beside, captioned, titled
from cutegen.draw.threads import holder, warp_legend
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.support.words import extents

MODES = "mnk"
MAX_EXTENT = 64


def mma(plan: GemmPlan, thread: int) -> Picture:
    """A, B and C of the tiled MMA's tile; `thread`'s elements are marked, the atoms' tiles outlined."""
    a, b, c = (operand(plan, op, thread) for op in OPERAND_MODES)
    corner = Picture(a.width, b.height, ())
    tiled = plan.tiled_mma
    facts = [
        plan.atom.ptx,
        f"{plan.atoms_are} {extents(plan.atoms_mnk)} along M, N, K; tile {extents(tiled.tile_mnk)}; "
        f"outlined: atoms of {extents(plan.atom.shape_mnk)}",
    ]
    tiles = above(beside(corner, b), beside(a, c))
    return titled(f"{plan.atom.name}: who holds which element", facts, tiles, mma_legend(plan, thread))


def operand(plan: GemmPlan, op: OperandName, thread: int) -> Picture:
    """One operand of the tiled MMA's tile; B lies with N to the right, so that its columns are C's."""
    cells, shape = _cells(plan, op, thread), plan.tiled_mma.tile_of(op)
    turned = op == "B"
    x, y = OPERAND_MODES[op]
    atom = plan.atom.shape_mnk[x], plan.atom.shape_mnk[y]
    rows, columns = (min(extent, MAX_EXTENT) for extent in (shape[::-1] if turned else shape))
    picture = grid(
        [[cells[(j, i) if turned else (i, j)] for j in range(columns)] for i in range(rows)],
        rows=[str(i) for i in range(rows)],
        columns=[str(j) for j in range(columns)],
        corner=f"{MODES[y]}\\{MODES[x]}" if turned else f"{MODES[x]}\\{MODES[y]}",
        blocks=Blocks(rows=atom[turned], columns=atom[not turned]),
        size=_cell_size(plan),
    )
    shown = "" if (rows, columns) in (shape, shape[::-1]) else f", the first {rows} x {columns}"
    return captioned([f"{op}, {shape[0]} x {shape[1]}{shown}", _also_held(plan, op)], picture)


def mma_legend(plan: GemmPlan, thread: int) -> Picture:
    """What the colours of `operand` mean."""
    return warp_legend(range(plan.tiled_mma.threads // WARP), thread, "T thread, V its value; four shades: lane mod 4")


def _cells(plan: GemmPlan, op: OperandName, thread: int) -> dict[tuple[int, int], Cell]:
    """Each element with the lowest thread that holds it, or with `thread`."""
    coords, rows = offsets_2d(plan.tiled_mma.tv_layout(op)), plan.tiled_mma.tile_of(op)[0]
    cells: dict[tuple[int, int], Cell] = {}
    for t in (*reversed(range(plan.tiled_mma.threads)), thread):
        for value, coord in enumerate(coords[t].tolist()):
            cells[coord % rows, coord // rows] = holder(t, f"{value}", t % 4, marked=t == thread)
    return cells


def _also_held(plan: GemmPlan, op: OperandName) -> str:
    """How far apart the threads are that hold the same element."""
    coords = offsets_2d(plan.tiled_mma.tv_layout(op))
    first = np.flatnonzero((coords == coords[0, 0]).any(axis=1))
    if len(first) == 1:
        return "each element is held by one thread"
    others = " and ".join(f"T+{t - first[0]}" for t in first[1:])
    return f"each element is held by T and {others}; named is the first, or the marked one"


def _cell_size(plan: GemmPlan) -> tuple[float, float]:
    """One for all operands, so that rows and columns of neighbours are in line."""
    values = max(plan.tiled_mma.values(op) for op in OPERAND_MODES)
    return cell_size([(f"T{plan.tiled_mma.threads - 1}", f"V{values - 1}")])
