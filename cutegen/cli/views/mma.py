"""`show SPEC mma`: the atom, how warps and permutation tile it, and which thread holds which element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutegen.algebra import Layout, OperandName, TiledMma, format_layout, offsets_2d, size
from cutegen.algebra.tiled_mma import OPERAND_MODES
from cutegen.cli.views.view import View, grid, named_layouts, titled
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan import GemmPlan
from cutegen.support.words import extents, plural

LETTERS = "mnk"
WIDEST = 16


def mma(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
    """The tiled MMA, the table of one atom, and what `thread` holds of the tiled MMA's tile."""
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
        titled("Tiled MMA", facts),
        named_layouts("Thread and value to column-major coordinate in the tiled MMA's tile", layouts),
        *(_atom_table(plan, op) for op in OPERAND_MODES),
        titled(
            f"Held by thread {thread} of the tiled MMA's tile, in the order of its values",
            [
                (f"{op} ({LETTERS[x]}, {LETTERS[y]})", " ".join(f"({i},{j})" for i, j in held[op]))
                for op, (x, y) in OPERAND_MODES.items()
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


def _columns(tiled: TiledMma) -> Iterator[tuple[str, str]]:
    """Which columns warps have, where they do not take turns atom by atom."""
    columns = tiled.permutation[1]
    if isinstance(columns, Layout):
        yield "N of the tile", f"{format_layout(columns)}: (column of the atom, warp, atom of a pair) -> n"


def _held(plan: GemmPlan, op: OperandName, thread: int) -> list[tuple[int, int]]:
    rows = plan.tiled_mma.tile_of(op)[0]
    coords = offsets_2d(plan.tiled_mma.tv_layout(op))[thread]
    return [(int(c) % rows, int(c) // rows) for c in coords]


def _atom_table(plan: GemmPlan, op: OperandName) -> list[str]:
    """Which thread holds an element of the atom's tile, in which value; of a wide tile, what each register holds."""
    atom = plan.atom
    layout = {"A": atom.a_layout, "B": atom.b_layout, "C": atom.c_layout}[op]
    x, y = OPERAND_MODES[op]
    shape = atom.shape_mnk[x], atom.shape_mnk[y]
    together = 1 if shape[1] <= WIDEST else REGISTER_BITS // atom.a_dtype.bits
    holder = np.empty(shape[0] * shape[1], object)
    for (thread, value), coord in np.ndenumerate(offsets_2d(layout)):
        holder[coord] = f"T{thread}V{value}" + (f"-{value + together - 1}" if together > 1 else "")
    cells = holder.reshape(shape[1], shape[0]).T[:, ::together]
    each = "each element" if together == 1 else f"each {together} neighbours, a register"
    title = f"{op} of one atom: thread and value of {each}"
    columns = range(0, shape[1], together)
    return [title, *grid(cells.tolist(), range(shape[0]), columns, f"{LETTERS[x]}\\{LETTERS[y]}")]
