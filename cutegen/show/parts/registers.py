"""The registers of one thread before an MMA, and which elements of a k-tile they hold."""

from __future__ import annotations

from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan.values.fragment_table import FragmentTable
from cutegen.show.view import section

SHOWN_ROWS = 16
SHOWN_ELEMENTS = 2


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
