"""A and B from shared memory to registers: the instruction, the addressing lanes, and the elements of a thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from cutegen.algebra import TiledMma, offsets
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.gmma import BLOCK_K_BYTES, operand_descriptors
from cutegen.hardware.units import BANK_BYTES, BANKS, REGISTER_BITS, WARP
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import ways
from cutegen.plan.geometry import Coordinates
from cutegen.plan.values.copies import AccessKey
from cutegen.plan.values.fragments import ByDescriptor, FragmentCopy
from cutegen.plan.values.path import FragmentTable, OperandPath, fragment_table
from cutegen.show.canvas import drawing
from cutegen.show.canvas.banks import bank_legend, phase_legend
from cutegen.show.parts.copies import WarpAccess, tv_layouts
from cutegen.show.parts.tile import CELL_MEANING, Tile, tile_picture
from cutegen.show.view import View, packed, section
from cutegen.support.words import plural

SHOWN_ROWS = 16
"""Atoms of a thread's fragment that are listed unless all are asked for."""
SHOWN_ELEMENTS = 2
"""Elements of a register that are named one by one."""


def view(plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Show the chosen and rejected instructions, thread-value layouts, addresses, and what `thread` receives."""
    blocks: list[list[str]] = []
    table: dict[str, Any] = {"spec": plan.spec.name, "thread": thread}
    for operand in plan.operands:
        more, table[operand.name] = _shown(plan, operand, thread, everything=everything)
        blocks += more
    return View(tuple(blocks), table)


def _shown(
    plan: GemmPlan, operand: OperandPath, thread: int, *, everything: bool
) -> tuple[list[list[str]], dict[str, Any]]:
    """Return blocks and table of an operand."""
    return operand.s2r.by_source(
        copied=lambda _: _copied(plan, operand, thread, everything=everything),
        described=lambda found: _described(operand, found),
        read=lambda found: ([section(f"{operand.name} by {found.words} of each thread", [])], found.to_json()),
        to_tmem=lambda found: (
            [section(f"{operand.name} by {found.words}: {found.columns} columns for a k-tile", [])],
            found.to_json(),
        ),
    )


def _copied(
    plan: GemmPlan, operand: OperandPath, thread: int, *, everything: bool
) -> tuple[list[list[str]], dict[str, Any]]:
    """Return blocks and table of an operand with fragments in registers."""
    fragment = fragment_table(plan.tiled_mma, operand)
    blocks = [
        *_blocks(plan, operand, thread // WARP, everything=everything),
        register_lines(fragment, operand.modes, thread, everything=everything),
    ]
    return blocks, {**_table(plan, operand), "holds": holds(fragment, thread)}


def _described(operand: OperandPath, described: ByDescriptor) -> tuple[list[list[str]], dict[str, Any]]:
    """Return blocks and table of an operand that stays in shared memory."""
    facts = [("layout", described.layout.name), *_descriptor(described)]
    title = f"{operand.name.upper()} in shared memory, by matrix descriptor: no thread loads fragments"
    return [section(title, facts)], described.to_json()


def _descriptor(described: ByDescriptor) -> list[tuple[str, str]]:
    """Return the fields of the descriptor, and how often the operand is read."""
    first = described.first
    return [
        ("descriptor", f"{first.encode():#018x} at address 0"),
        ("leading offset", f"{first.lbo_bytes} bytes"),
        ("stride offset", f"{first.sbo_bytes} bytes"),
        ("read", f"{plural(described.times, 'time')} per k-tile, in place"),
    ]


def _blocks(plan: GemmPlan, operand: OperandPath, warp: int, *, everything: bool) -> list[list[str]]:
    x, copy = operand.name.upper(), operand.fragment_copy
    found = plan.predictions.wavefronts[AccessKey.s2r(operand.name)]
    facts = [
        ("atom", copy.atom.name),
        ("instruction", copy.instruction),
        ("wavefronts", f"{found.predicted:,} of at least {found.ideal:,}, {ways(found.ways)}"),
        *(("rejected", f"{rejected.what}: {rejected.why}") for rejected in copy.rejected),
    ]
    return [
        section(f"{x} from shared memory to registers, per k-tile", facts),
        section(
            "Thread and value to column-major coordinate in the tiled MMA's tile",
            [*tv_layouts(copy.tiled_copy).items()],
        ),
        *_loads(plan.tiled_mma, operand, warp, everything=everything),
    ]


def _loads(tiled_mma: TiledMma, operand: OperandPath, warp: int, *, everything: bool) -> list[list[str]]:
    """Write the addresses of a warp's lanes in its first load of a k-tile, or in each load."""
    loads = fragment_loads(tiled_mma, operand, warp)
    return [
        load.access.lines(
            f"Load {i} of 0 to {len(loads) - 1} of warp {warp}: what its lanes address, phase by phase"
            + ("" if everything or len(loads) == 1 else " (see --all)")
        )
        for i, load in enumerate(loads if everything else loads[:1])
    ]


def _table(plan: GemmPlan, operand: OperandPath) -> dict[str, Any]:
    found = plan.predictions.wavefronts[AccessKey.s2r(operand.name)]
    return {
        **operand.s2r.to_json(),
        "layouts": tv_layouts(operand.fragment_copy.tiled_copy),
        "wavefronts": asdict(found),
    }


def picture(plan: GemmPlan, thread: int) -> drawing.Picture:
    """Draw for A and B the addresses and results of a warp's first load, and the banks of each phase.

    An operand that is multiplied in place is shown there, by its banks.
    """
    parts = [_part(plan, operand, thread) for operand in plan.operands]
    copied, in_place = (any(x.s2r.in_registers is held for x in plan.operands) for held in (True, False))
    if not copied:
        title = "A and B in shared memory, multiplied in place"
        return drawing.titled(title, [CELL_MEANING], drawing.arranged(*parts), bank_legend())
    lanes = drawing.warp_legend([thread // WARP], thread, "T thread, V its value; four shades: lane mod 4")
    notes = [lanes, phase_legend(), *([bank_legend()] if in_place else [])]
    title = f"A and B from shared memory to registers: warp {thread // WARP}"
    return drawing.titled(title, [CELL_MEANING] if in_place else [], drawing.arranged(*parts), *notes)


def _part(plan: GemmPlan, operand: OperandPath, thread: int) -> drawing.Picture:
    return operand.s2r.by_source(
        copied=lambda _: _drawn(plan, operand, thread),
        described=lambda found: _drawn_in_place(plan, operand, found),
        read=lambda _: drawing.arranged(),
        to_tmem=lambda _: drawing.arranged(),
    )


def _drawn(plan: GemmPlan, operand: OperandPath, thread: int) -> drawing.Picture:
    load = fragment_loads(plan.tiled_mma, operand, thread // WARP)[0]
    x, elems = operand.name.upper(), load.access.access_bytes // operand.dtype.bytes
    reads = ways(plan.predictions.wavefronts[load.access.tile.read].ways)
    return drawing.beside(
        drawing.captioned(
            [f"{x}: {operand.fragment_copy.atom.name}, reads {reads}", operand.smem.chosen.name],
            load.access.picture(),
        ),
        drawing.captioned(
            [f"{x}: lane that", "addresses", plural(elems, "element"), *_of_several(load.access.coords)],
            _addressed(load.access, thread),
        ),
        drawing.captioned(
            [f"{x}: thread that receives each element,", "and its value", *_of_several(load.received)],
            _received(load, thread),
        ),
    )


def _drawn_in_place(plan: GemmPlan, operand: OperandPath, described: ByDescriptor) -> drawing.Picture:
    """Draw the first rows of the tile, and the descriptor's fields."""
    tile = Tile.of_operand(operand)
    reads = ways(plan.predictions.wavefronts[tile.read].ways)
    caption = [
        f"{tile.name}: {described.layout.name}, read by {plan.atom.instruction} in place, {reads}",
        *(f"{name} {said}" for name, said in _descriptor(described)),
    ]
    return drawing.captioned(caption, tile_picture(tile))


def _of_several(coords: Coordinates) -> list[str]:
    """Return a remark if lanes share an element, as with broadcast loads."""
    return ["first or marked of several"] if len(set(coords.ravel().tolist())) < coords.size else []


def _addressed(access: WarpAccess, thread: int) -> drawing.Picture:
    """Draw each addressed piece of the tile with its lane, in the color of its first bank."""
    banks = access.byte_offsets // BANK_BYTES % BANKS
    cells = {
        access.tile.place(int(access.coords[lane])): drawing.Cell(
            (f"L{lane}",), drawing.hue(int(banks[lane]) // drawing.BANKS_PER_HUE)
        )
        for lane in _last_is_named(len(banks), thread)
    }
    return drawing.sparse_grid(cells, access.tile.corner)


def _received(load: WarpLoad, thread: int) -> drawing.Picture:
    """Draw each element of the load with the receiving thread of `thread`'s warp."""
    first, tile = thread // WARP * WARP, load.access.tile
    cells = {
        tile.place(coord): drawing.holder(first + lane, f"{value}", lane % 4, marked=first + lane == thread)
        for lane in _last_is_named(len(load.received), thread)
        for value, coord in enumerate(load.received[lane].tolist())
    }
    return drawing.sparse_grid(cells, tile.corner)


def _last_is_named(lanes: int, thread: int) -> Iterator[int]:
    """Return the lanes in the order of drawing: the first overwrites others, `thread`'s overwrites all."""
    yield from reversed(range(lanes))
    if thread % WARP < lanes:
        yield thread % WARP


@dataclass(frozen=True, slots=True, eq=False)
class WarpLoad:
    """One load of fragments by one warp: the addresses of the lanes that address something, and the results.

    `received` [lane, value] is the coordinate that arrives in each register.
    """

    access: WarpAccess
    received: Coordinates


def fragment_loads(tiled_mma: TiledMma, operand: OperandPath, warp: int) -> list[WarpLoad]:
    """Return every `ldmatrix`, or plain load, that fills fragments of `warp` in one k-tile, k-block by k-block."""
    tile = Tile.of_operand(operand)
    loads = operand.fragment_copy.table(operand.operand, operand.tile, operand.dtype, tiled_mma)
    return [
        WarpLoad(WarpAccess(tile, addressed, loads.access_bytes), received)
        for addressed, received in zip(loads.addressed[:, warp], loads.received[:, warp], strict=True)
    ]


def page(plan: GemmPlan) -> dict[str, Any]:
    """Return page data: every load of the fragments of A and B, or the descriptors that read them in place."""
    return {x.name: _page_of(plan, x) for x in plan.operands}


def _page_of(plan: GemmPlan, operand: OperandPath) -> dict[str, Any]:
    return operand.s2r.by_source(
        copied=lambda copy: _copied_page(plan, operand, copy),
        described=lambda _: _described_page(plan, operand),
        read=lambda found: {"kind": "read", "instruction": found.instruction},
        to_tmem=lambda found: {"kind": "read", "instruction": found.instruction},
    )


def _copied_page(plan: GemmPlan, operand: OperandPath, copy: FragmentCopy) -> dict[str, Any]:
    """Pack coordinates: `addressed` [load, warp, lane], `received` [load, warp, lane, value], and `held`."""
    loads = copy.table(operand.operand, operand.tile, operand.dtype, plan.tiled_mma)
    fragment = fragment_table(plan.tiled_mma, operand)
    return {
        "kind": "copied",
        "atom": copy.atom.name,
        "instruction": copy.instruction,
        "ldmatrix": copy.by_ldmatrix,
        "transpose": bool(copy.transpose),
        "access": loads.access_bytes,
        "addressed": packed(loads.addressed),
        "received": packed(loads.received),
        "held": packed(fragment.coordinates),
        "extents": list(fragment.extents),
    }


def _described_page(plan: GemmPlan, operand: OperandPath) -> dict[str, Any]:
    """Return the descriptor of each block of each stage: the block along M or N first, then along K, then the stage."""
    rows = plan.atom.rows(operand.operand)
    found = operand_descriptors(operand.smem.layout, operand.major_mode, operand.dtype.bytes, rows)
    begins = plan.memory.offset_bytes(operand.name)
    first = found.first.advanced(begins // 16)
    return {
        "kind": "described",
        "instruction": operand.s2r.instruction,
        "rows": rows,
        "k": BLOCK_K_BYTES // operand.dtype.bytes,
        "lbo": found.first.lbo_bytes,
        "sbo": found.first.sbo_bytes,
        "mode": found.first.mode.name,
        "descriptors": [f"{first.advanced(int(step)).encode():#018x}" for step in offsets(found.steps)],
    }


def register_lines(table: FragmentTable, modes: tuple[str, str], thread: int, *, everything: bool) -> list[str]:
    """Write a row per atom of the thread's fragment, a column per register of the atom."""
    x = table.operand
    per_register = REGISTER_BITS // table.bits
    held = holds(table, thread)
    atoms = [held[first : first + table.extents[0]] for first in range(0, len(held), table.extents[0])]
    rows = [
        (
            f"{index % table.extents[1]},{index // table.extents[1]}",
            *(_cell(atom[first : first + per_register]) for first in range(0, len(atom), per_register)),
        )
        for index, atom in enumerate(atoms if everything else atoms[:SHOWN_ROWS])
    ]
    header = (f"MMA_{modes[0].upper()},MMA_K", *(f"register {i}" for i in range(len(rows[0]) - 1)))
    title = f"Thread {thread}: which ({modes[0]},{modes[1]}) of a k-tile each register of tCr{x} holds"
    hidden = len(atoms) - len(rows)
    return [*section(title, rows, header=header), *([f"  and {hidden} more rows (see --all)"] if hidden else [])]


def holds(table: FragmentTable, thread: int) -> list[tuple[int, int]]:
    """Return the (x, k) of each value of a thread, in the order of tCrA or tCrB."""
    return [table.element(coordinate) for coordinate in table.coordinates[thread].tolist()]


def _cell(elements: list[tuple[int, int]]) -> str:
    """Name each element; for more than two, which are neighbors along K, the first and the last k."""
    if len(elements) <= SHOWN_ELEMENTS:
        return " ".join(f"({x},{k})" for x, k in elements)
    return f"({elements[0][0]},{elements[0][1]}..{elements[-1][1]})"
