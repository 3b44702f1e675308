"""The tiled MMA: the atom, its tiling by warps and permutation, and which thread holds which element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cutegen.algebra import Layout, OperandName, TiledMma, format_layout, modes, offsets_2d, size
from cutegen.algebra.tiled_mma import OPERAND_MODES
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import OperandSource
from cutegen.hardware.units import REGISTER_BITS, WARP
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import sums_of_tile
from cutegen.show.canvas.colors import PALE
from cutegen.show.canvas.grid import Blocks, Cell, cell_size, grid
from cutegen.show.canvas.picture import Picture, above, beside, captioned, titled
from cutegen.show.canvas.threads import holder, warp_legend
from cutegen.show.packed import packed
from cutegen.show.view import View, folded_table, section, span
from cutegen.support.columns import aligned
from cutegen.support.words import extents, plural

LETTERS = "mnk"
WIDEST = 16
MAX_EXTENT = 64  # of a picture


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show the tiled MMA, the table of one atom, and the elements of `thread` in the tiled MMA's tile."""
    tiled = plan.tiled_mma
    layouts = {f"get_layout{op}_TV()": format_layout(tiled.tv_layout(op)) for op in OPERAND_MODES}
    lanes = plural(size(plan.atom.thr_id), "thread")
    held = {op: _held(plan, op, thread) for op in OPERAND_MODES}
    facts = [
        ("atom", plan.atom.name),
        ("instruction", plan.atom.ptx),
        ("atom tile", f"{extents(plan.atom.shape_mnk)}, {plan.atom.flops:,} operations by {lanes}"),
        (plan.atoms_are, f"{extents(plan.atoms_mnk)} along M, N, K: {plan.tiled_mma.threads} threads"),
        ("tiled MMA's tile", f"{extents(tiled.tile_mnk)}{'' if plan.by_thread else ', the permutation'}"),
        *_columns(tiled),
        ("thr_layout_vmnk", format_layout(tiled.thr_layout_vmnk)),
    ]
    blocks = [
        section("Tiled MMA", facts),
        section("Thread and value to column-major coordinate in the tiled MMA's tile", [*layouts.items()]),
        *(_atom_table(plan, op, everything=everything) for op in OPERAND_MODES),
        _warps(plan),
        section(
            f"Held by thread {thread} of the tiled MMA's tile, in the order of its values",
            [
                (f"{op} ({', '.join(_letters(op))})", " ".join(f"({i},{j})" for i, j in held[op]))
                for op in _in_registers(plan)
            ],
        ),
    ]
    table = {
        "spec": plan.spec.name,
        "atom": plan.atom.name,
        "ptx": plan.atom.ptx,
        "shape_mnk": list(plan.atom.shape_mnk),
        "atom_layout": list(plan.atoms_mnk),
        "permutation": list(tiled.tile_mnk),
        "threads": plan.tiled_mma.threads,
        "thr_layout_vmnk": format_layout(tiled.thr_layout_vmnk),
        "layouts": layouts,
        "thread": thread,
        "holds": held,
    }
    return View(tuple(blocks), table)


def _in_registers(plan: GemmPlan) -> list[OperandName]:
    """Return the operands that threads hold: a matrix descriptor describes the others."""
    return [op for op in OPERAND_MODES if plan.atom.source(op) is not OperandSource.SMEM]


def _letters(op: OperandName) -> tuple[str, str]:
    x, y = OPERAND_MODES[op]
    return LETTERS[x], LETTERS[y]


def _columns(tiled: TiledMma) -> Iterator[tuple[str, str]]:
    """Return the columns of the warps, if they do not alternate atom by atom."""
    columns = tiled.permutation[1]
    if isinstance(columns, Layout):
        yield "N of the tile", f"{format_layout(columns)}: (column of the atom, warp, atom of a pair) -> n"


def _warps(plan: GemmPlan) -> list[str]:
    """Return the elements of every warp in A, B and C of the tiled MMA's tile, along both modes of each."""
    tiled, held = plan.tiled_mma, _in_registers(plan)
    rows = [
        (f"{warp}", f"{warp * WARP}..{warp * WARP + WARP - 1}", *(_share(tiled, op, warp) for op in held))
        for warp in range(tiled.threads // WARP)
    ]
    names = (f"{op} ({'; '.join(_letters(op))})" for op in held)
    title = "Every warp's share of the tiled MMA's tile"
    return [title, *aligned(rows, header=("warp", "threads", *names))]


def _share(tiled: TiledMma, op: OperandName, warp: int) -> str:
    """Return the rows and the columns of an operand that a warp's threads hold, in order."""
    coords, rows = offsets_2d(tiled.tv_layout(op))[warp * WARP : (warp + 1) * WARP], tiled.tile_of(op)[0]
    return f"{span(np.unique(coords % rows))}; {span(np.unique(coords // rows))}"


def _held(plan: GemmPlan, op: OperandName, thread: int) -> list[tuple[int, int]]:
    rows = plan.tiled_mma.tile_of(op)[0]
    coords = offsets_2d(plan.tiled_mma.tv_layout(op))[thread]
    return [(int(c) % rows, int(c) // rows) for c in coords]


def _atom_table(plan: GemmPlan, op: OperandName, *, everything: bool) -> list[str]:
    """Show the thread and value of each element of the atom's tile; for a wide tile, of each register.

    For an operand in shared memory there is no table: every thread names all of it. For wgmma's sums the first columns
    show the pattern of the others.
    """
    atom = plan.atom
    if atom.source(op) is OperandSource.SMEM:
        return [f"{op} of one atom: in shared memory, by one matrix descriptor for all {atom.threads} threads"]
    layout = {"A": atom.a_layout, "B": atom.b_layout, "C": atom.c_layout}[op]
    x, y = OPERAND_MODES[op]
    shape = atom.shape_mnk[x], atom.shape_mnk[y]
    together = 1 if shape[1] <= WIDEST else REGISTER_BITS // atom.a_dtype.bits
    held_by = np.empty(shape[0] * shape[1], object)
    for (thread, value), coord in np.ndenumerate(offsets_2d(layout)):
        held_by[coord] = f"T{thread}V{value}" + (f"-{value + together - 1}" if together > 1 else "")
    cells = held_by.reshape(shape[1], shape[0]).T[:, ::together]
    each = "each element" if together == 1 else f"each {together} neighbors, a register"
    title = f"{op} of one atom: thread and value of {each}"
    columns = range(0, shape[1] if everything or atom.threads <= WARP else min(shape[1], WIDEST), together)
    if len(columns) * together < shape[1]:
        title += f"; {WIDEST} of {shape[1]} columns (see --all)"
    cells = cells[:, : len(columns)]
    return [title, *folded_table(cells.tolist(), range(shape[0]), columns, "\\".join(_letters(op)))]


def picture(plan: GemmPlan, thread: int) -> Picture:
    """Draw A, B and C of the tiled MMA's tile; `thread`'s elements are marked, the atoms' tiles outlined."""
    a, b, c = (operand(plan, op, thread) for op in OPERAND_MODES)
    corner = Picture(a.width, b.height, ())
    tiled = plan.tiled_mma
    facts = [
        plan.atom.ptx,
        f"{plan.atoms_are} {extents(plan.atoms_mnk)} along M, N, K; tile {extents(tiled.tile_mnk)}; "
        f"outlined: atoms of {extents(plan.atom.shape_mnk)}",
    ]
    tiles = above(beside(corner, b), beside(a, c))
    return titled(f"{plan.atom.name}: elements of each thread", facts, tiles, mma_legend(plan, thread))


def operand(plan: GemmPlan, op: OperandName, thread: int) -> Picture:
    """Draw one operand of the tiled MMA's tile; B has N to the right, so that its columns are C's."""
    cells, shape = _cells(plan, op, thread), plan.tiled_mma.tile_of(op)
    turned = op == "B"
    x, y = OPERAND_MODES[op]
    atom = plan.atom.shape_mnk[x], plan.atom.shape_mnk[y]
    rows, columns = (min(extent, MAX_EXTENT) for extent in (shape[::-1] if turned else shape))
    drawn = grid(
        [[cells[(j, i) if turned else (i, j)] for j in range(columns)] for i in range(rows)],
        rows=[str(i) for i in range(rows)],
        columns=[str(j) for j in range(columns)],
        corner="\\".join(_letters(op)[::-1] if turned else _letters(op)),
        blocks=Blocks(rows=atom[turned], columns=atom[not turned]),
        size=_cell_size(plan),
    )
    shown = "" if (rows, columns) in (shape, shape[::-1]) else f", the first {rows} x {columns}"
    return captioned([f"{op}, {shape[0]} x {shape[1]}{shown}", _also_held(plan, op)], drawn)


def mma_legend(plan: GemmPlan, thread: int) -> Picture:
    """Explain the colors of `operand`."""
    return warp_legend(range(plan.tiled_mma.threads // WARP), thread, "T thread, V its value; four shades: lane mod 4")


def _cells(plan: GemmPlan, op: OperandName, thread: int) -> dict[tuple[int, int], Cell]:
    """Return each element with the lowest thread that holds it, or with `thread`; empty if no thread holds any."""
    if plan.atom.source(op) is OperandSource.SMEM:
        return {place: Cell((), PALE) for place in np.ndindex(plan.tiled_mma.tile_of(op))}
    coords, rows = offsets_2d(plan.tiled_mma.tv_layout(op)), plan.tiled_mma.tile_of(op)[0]
    cells: dict[tuple[int, int], Cell] = {}
    for t in (*reversed(range(plan.tiled_mma.threads)), thread):
        for value, coord in enumerate(coords[t].tolist()):
            cells[coord % rows, coord // rows] = holder(t, f"{value}", t % 4, marked=t == thread)
    return cells


def _also_held(plan: GemmPlan, op: OperandName) -> str:
    """Return the distance of the threads that hold the same element."""
    if plan.atom.source(op) is OperandSource.SMEM:
        return f"in shared memory, by one matrix descriptor for all {plan.atom.threads} threads of an atom"
    coords = offsets_2d(plan.tiled_mma.tv_layout(op))
    first = np.flatnonzero((coords == coords[0, 0]).any(axis=1))
    if len(first) == 1:
        return "each element is held by one thread"
    others = " and ".join(f"T+{t - first[0]}" for t in first[1:])
    return f"each element is held by T and {others}; shown: the first, or the marked one"


def _cell_size(plan: GemmPlan) -> tuple[float, float]:
    """Return one cell size for all operands, so that neighboring rows and columns align."""
    values = max(plan.tiled_mma.values(op) for op in _in_registers(plan))
    return cell_size([(f"T{plan.tiled_mma.threads - 1}", f"V{values - 1}")])


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: the tiled MMA, and coordinates in C's tile of each thread's accumulators, [thread, value]."""
    tiled, tile = plan.tiled_mma, plan.cta_tile[:2]
    share = tiled.partition("C", Layout(tile), 0)
    return {
        "atom": plan.atom.name,
        "instruction": plan.atom.ptx,
        "shape": list(plan.atom.shape_mnk),
        "atoms": list(plan.atoms_mnk),
        "atoms_are": plan.atoms_are,
        "tile": list(tiled.tile_mnk),
        "threads": tiled.threads,
        "bits": plan.atom.c_dtype.bits,
        "accumulators": packed(sums_of_tile(tiled, tile)),
        "extents": [int(size(part)) for part in modes(share.layout)],
    }
