"""One matrix of `ldmatrix` on the page: which lane receives which element, without and with `.trans`."""

from typing import Any

import numpy as np

from cutegen.algebra import offsets_2d
from cutegen.algebra.layout import upcast
from cutegen.hardware import LdmatrixAtom
from cutegen.hardware.copy_atoms import ldmatrix_atoms
from cutegen.hardware.ldmatrix import ROW_BYTES
from cutegen.plan import GemmPlan
from cutegen.plan.values.path import OperandPath


def page(plan: GemmPlan) -> dict[str, Any] | None:
    """Return page data of both forms, for the operands that `ldmatrix` loads; None if there are none."""
    found = {x.name: _forms(x) for x in plan.operands if x.s2r.by_ldmatrix}
    return found or None


def _forms(operand: OperandPath) -> list[dict[str, Any]]:
    """Return the form in use, and the other if the hardware has it for elements of this size."""
    bits, used = operand.dtype.bits, bool(operand.fragment_copy.transpose)
    found = []
    for transpose in (False, True):
        # The form without transposition moves whole 32-bit registers, of any element type; the other needs its own.
        wide = bits if transpose and bits == 8 else 16
        if transpose and bits not in (8, 16):
            continue
        atom = min(ldmatrix_atoms(transpose=transpose, element_bits=wide), key=lambda row: row.matrices)
        found.append({"name": atom.ptx, "transpose": transpose, "used": transpose is used, **_received(atom, bits)})
    return found


def _received(atom: LdmatrixAtom, bits: int) -> dict[str, Any]:
    """Return `holder` [row, element]: lane and value that receive it, as lane * values + value."""
    placed = offsets_2d(upcast(atom.dst_layout_bits, bits))
    sources = offsets_2d(upcast(atom.src_layout_bits, bits))
    values = placed.shape[1]
    holder = np.empty(placed.size, np.int64)
    holder[placed.ravel()] = np.arange(placed.size)
    rows = sources[: atom.rows]
    return {"rows": atom.rows, "columns": 8 * ROW_BYTES // bits, "values": values, "holder": holder[rows].tolist()}
