"""State that a warp holds to run an entry.

Rows of 32 lanes in one register file for each width, and typed views of them.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.grid import in_cta
from cutegen.ptx.machine.special import Place, special_value

_FILE_DTYPES = {
    1: np.dtype(bool),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
    128: np.dtype("V16"),
}
POISON_BYTE = 0xFF
Origins: TypeAlias = npt.NDArray[np.int32]
"""Sources of the undefined values of a register's lanes.

0: the lane is defined; the number of an instruction plus 1: it was the first to read the value, or gave it; `NEVER`:
the lane has not been written, and nothing has read it.
"""
NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Cell:
    """Row `row` of the file of `bits`, viewed as `dtype` (its low bytes if the dtype is narrower)."""

    bits: int
    row: int
    dtype: np.dtype[Any]


@dataclass(slots=True)
class Frame:
    """Rows of each file, the rows that hold constants and special registers, and the cells that steps use."""

    rows: dict[int, int]
    cells: list[Cell] = field(default_factory=list)
    constants: dict[tuple[int, int], int] = field(default_factory=dict)
    specials: dict[str, tuple[int, int]] = field(default_factory=dict)
    shared_addresses: dict[tuple[int, int], int] = field(default_factory=dict)
    """Rows of addresses in shared memory, by width and by the address in the CTA of rank 0."""
    watched: frozenset[tuple[int, int]] = frozenset()
    """Registers that may have undefined values where they are read."""
    unwritten: frozenset[tuple[int, int]] = frozenset()
    """Those of them that may be read before they are written."""
    exits: frozenset[int] = frozenset()
    """Blocks that do nothing but exit."""
    held_rows: set[int] = field(default_factory=set)
    """Rows of the 32-bit file that `wgmma` uses as accumulators, or as A."""
    filled_rows: set[int] = field(default_factory=set)
    """Rows of the 32-bit file that `tcgen05.ld` fills after its issue, and those to which they are moved."""

    def allocate(self, place: Place) -> dict[int, npt.NDArray[Any]]:
        """The register files of one warp: poison (NaN in every format), constants and special registers filled in."""
        files = {bits: np.zeros((self.rows[bits], 32), dtype) for bits, dtype in _FILE_DTYPES.items()}
        for file in files.values():
            if file.dtype != bool:
                file.view(np.uint8).fill(POISON_BYTE)
        for (bits, value), row in self.constants.items():
            files[bits][row] = value
        rank = place.shape.grid.rank(place.cta)
        for (bits, address), row in self.shared_addresses.items():
            files[bits][row] = in_cta(rank, address)
        for name, (bits, row) in self.specials.items():
            files[bits][row] = special_value(name, place)
        return files

    def undefined(self, alive: npt.NDArray[np.bool_]) -> dict[tuple[int, int], Origins]:
        """The undefined registers of a warp that has written nothing."""
        return {key: np.where(alive, NEVER, 0).astype(np.int32) for key in self.unwritten}

    def views(self, files: dict[int, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """The cells of one warp."""
        return [_view(files[cell.bits][cell.row], cell.dtype) for cell in self.cells]


def _view(row: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return row.view(dtype)[:: row.dtype.itemsize // dtype.itemsize]
