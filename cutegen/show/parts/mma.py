"""The tiled MMA: the atom, its tiling by warps and permutation, and which thread holds which element."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cutegen.algebra import Layout, OperandName, TiledMma, format_layout, offsets_2d, size
from cutegen.algebra.tiled import OPERAND_MODES
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Issuer, MmaAtom, OperandSource
from cutegen.hardware.units import REGISTER_BITS, WARP
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.accumulator import Accumulator
from cutegen.show.canvas import drawing
from cutegen.show.view import View, folded_table, packed, section
from cutegen.support.words import aligned, extents, plural, span

LETTERS = "mnk"
WIDEST = 16
MAX_EXTENT = 64  # of a picture


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show the tiled MMA, the table of one atom, and the elements of `thread` in the tiled MMA's tile."""
    tiled = plan.tiled_mma
    layouts = {f"get_layout{op}_TV()": format_layout(tiled.tv_layout(op)) for op in OPERAND_MODES}
    lanes = plural(size(plan.atom.thr_id), "thread")
    sums = plan.mma.accumulator
    held = {op: _held(plan, op, thread) for op in _in_registers(plan)}
    if sums.drain is not None:
        held["C"] = _received(sums, thread)
    facts = [
        ("atom", plan.atom.name),
        ("instruction", plan.atom.ptx),
        ("atom tile", f"{extents(plan.atom.shape_mnk)}, {plan.atom.flops:,} operations by {lanes}"),
        (plan.atoms_are, f"{extents(plan.atoms_mnk)} along M, N, K: {_issuers(plan)}"),
        ("tiled MMA's tile", f"{extents(tiled.tile_mnk)}{'' if plan.by_thread else ', the permutation'}"),
        *_permuted(tiled),
        ("thr_layout_vmnk", format_layout(tiled.thr_layout_vmnk)),
    ]
    blocks = [
        section("Tiled MMA", facts),
        section("Thread and value to column-major coordinate in the tiled MMA's tile", [*layouts.items()]),
        *(_atom_table(plan, op, everything=everything) for op in OPERAND_MODES),
        *((_warps(plan), _held_by(plan, thread, held)) if _in_registers(plan) else ()),
        *((_drained(sums, thread),) if sums.drain is not None else ()),
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


def _issuers(plan: GemmPlan) -> str:
    threads = plural(plan.tiled_mma.threads, "thread")
    return f"one of {threads} issues it" if plan.atom.multiply.issued_by is Issuer.ELECTED else threads


def _held_by(plan: GemmPlan, thread: int, held: dict[OperandName, list[tuple[int, int]]]) -> list[str]:
    rows = [
        (f"{op} ({', '.join(_letters(op))})", " ".join(f"({i},{j})" for i, j in held[op])) for op in _in_registers(plan)
    ]
    return section(f"Held by thread {thread} of the tiled MMA's tile, in the order of its values", rows)


def _drained(sums: Accumulator, thread: int) -> list[str]:
    """Show which sums of the CTA's tile the threads that drain tensor memory receive, and one of them."""
    assert sums.drain is not None
    places = _received(sums, thread)
    shown = " ".join(f"({i},{j})" for i, j in places[:WIDEST])
    rows = [
        ("buffers", f"{sums.buffers}, each of a tile: one is multiplied into while the other is drained"),
        (
            "loaded by",
            f"tcgen05.ld.{sums.drain.shape}: {plural(sums.threads, 'thread')} receive {sums.values} sums each",
        ),
        ("thread and value", f"{format_layout(sums.layout)}: to the column-major coordinate in the CTA's tile"),
        (f"thread {thread % sums.threads} (m, n)", shown + (" ..." if len(places) > WIDEST else "")),
    ]
    return section("Sums in tensor memory", rows)


def _received(sums: Accumulator, thread: int) -> list[tuple[int, int]]:
    rows = sums.tile[0]
    return [(int(at) % rows, int(at) // rows) for at in sums.table[thread % sums.threads]]


def _in_registers(plan: GemmPlan) -> list[OperandName]:
    """Return the operands that threads hold: others are in shared memory or in tensor memory."""
    return [op for op in OPERAND_MODES if plan.atom.source(op) is OperandSource.RMEM]


def _letters(op: OperandName) -> tuple[str, str]:
    x, y = OPERAND_MODES[op]
    return LETTERS[x], LETTERS[y]


def _permuted(tiled: TiledMma) -> Iterator[tuple[str, str]]:
    """Return the layouts of modes of the tile whose warps do not alternate atom by atom."""
    for letter, part in zip("MN", tiled.permutation, strict=False):
        if isinstance(part, Layout):
            yield (
                f"{letter} of the tile",
                f"{format_layout(part)}: (place in the atom, warp, repetition) -> {letter.lower()}",
            )


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

    For an operand in shared or tensor memory there is no table: every thread names all of it. For wgmma's sums the
    first columns show the pattern of the others.
    """
    atom = plan.atom
    if atom.source(op) is not OperandSource.RMEM:
        return [f"{op} of one atom: {_elsewhere(atom, op)}"]
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


def _elsewhere(atom: MmaAtom, op: OperandName) -> str:
    """Describe where an operand is that no thread holds."""
    if atom.source(op) is OperandSource.TMEM:
        return "in tensor memory, by the address of its first column"
    return f"in shared memory, by one matrix descriptor for all {atom.threads} threads"


def picture(plan: GemmPlan, thread: int) -> drawing.Picture:
    """Draw A, B and C of the tiled MMA's tile; `thread`'s elements are marked, the atoms' tiles outlined."""
    a, b, c = (operand(plan, op, thread) for op in OPERAND_MODES)
    corner = drawing.Picture(a.width, b.height, ())
    tiled = plan.tiled_mma
    facts = [
        plan.atom.ptx,
        f"{plan.atoms_are} {extents(plan.atoms_mnk)} along M, N, K; tile {extents(tiled.tile_mnk)}; "
        f"outlined: atoms of {extents(plan.atom.shape_mnk)}",
    ]
    tiles = drawing.above(drawing.beside(corner, b), drawing.beside(a, c))
    return drawing.titled(f"{plan.atom.name}: elements of each thread", facts, tiles, mma_legend(plan, thread))


def operand(plan: GemmPlan, op: OperandName, thread: int) -> drawing.Picture:
    """Draw one operand of the tiled MMA's tile; B has N to the right, so that its columns are C's."""
    cells, shape = _cells(plan, op, thread), plan.tiled_mma.tile_of(op)
    turned = op == "B"
    x, y = OPERAND_MODES[op]
    atom = plan.atom.shape_mnk[x], plan.atom.shape_mnk[y]
    rows, columns = (min(extent, MAX_EXTENT) for extent in (shape[::-1] if turned else shape))
    drawn = drawing.grid(
        [[cells[(j, i) if turned else (i, j)] for j in range(columns)] for i in range(rows)],
        rows=[str(i) for i in range(rows)],
        columns=[str(j) for j in range(columns)],
        corner="\\".join(_letters(op)[::-1] if turned else _letters(op)),
        blocks=drawing.Blocks(rows=atom[turned], columns=atom[not turned]),
        size=_cell_size(plan),
    )
    shown = "" if (rows, columns) in (shape, shape[::-1]) else f", the first {rows} x {columns}"
    return drawing.captioned([f"{op}, {shape[0]} x {shape[1]}{shown}", _also_held(plan, op)], drawn)


def mma_legend(plan: GemmPlan, thread: int) -> drawing.Picture:
    """Explain the colors of `operand`."""
    return drawing.warp_legend(
        range(plan.tiled_mma.threads // WARP), thread, "T thread, V its value; four shades: lane mod 4"
    )


def _cells(plan: GemmPlan, op: OperandName, thread: int) -> dict[tuple[int, int], drawing.Cell]:
    """Return each element with the lowest thread that holds it, or with `thread`; empty if no thread holds any."""
    if plan.atom.source(op) is not OperandSource.RMEM:
        return {place: drawing.Cell((), drawing.PALE) for place in np.ndindex(plan.tiled_mma.tile_of(op))}
    coords, rows = offsets_2d(plan.tiled_mma.tv_layout(op)), plan.tiled_mma.tile_of(op)[0]
    cells: dict[tuple[int, int], drawing.Cell] = {}
    for t in (*reversed(range(plan.tiled_mma.threads)), thread):
        for value, coord in enumerate(coords[t].tolist()):
            cells[coord % rows, coord // rows] = drawing.holder(t, f"{value}", t % 4, marked=t == thread)
    return cells


def _also_held(plan: GemmPlan, op: OperandName) -> str:
    """Return the distance of the threads that hold the same element."""
    if plan.atom.source(op) is not OperandSource.RMEM:
        return f"{_elsewhere(plan.atom, op)}{' of an atom' if plan.atom.source(op) is OperandSource.SMEM else ''}"
    coords = offsets_2d(plan.tiled_mma.tv_layout(op))
    first = np.flatnonzero((coords == coords[0, 0]).any(axis=1))
    if len(first) == 1:
        return "each element is held by one thread"
    others = " and ".join(f"T+{t - first[0]}" for t in first[1:])
    return f"each element is held by T and {others}; shown: the first, or the marked one"


def _cell_size(plan: GemmPlan) -> tuple[float, float]:
    """Return one cell size for all operands, so that neighboring rows and columns align."""
    values = max((plan.tiled_mma.values(op) for op in _in_registers(plan)), default=1)
    return drawing.cell_size([(f"T{plan.tiled_mma.threads - 1}", f"V{values - 1}")])


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: the tiled MMA, and coordinates in C's tile of each thread's accumulators, [thread, value]."""
    tiled, sums = plan.tiled_mma, plan.mma.accumulator
    return {
        "atom": plan.atom.name,
        "instruction": plan.atom.ptx,
        "shape": list(plan.atom.shape_mnk),
        "atoms": list(plan.atoms_mnk),
        "atoms_are": plan.atoms_are,
        "tile": list(tiled.tile_mnk),
        "threads": sums.threads,
        "bits": sums.dtype.bits,
        "accumulators": packed(sums.table),
        "extents": list(sums.extents),
    }
