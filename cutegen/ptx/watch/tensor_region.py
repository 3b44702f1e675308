"""Words of tensor memory that an access concerns.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Tensor Memory Addressing".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

LANES, COLUMNS = 128, 512
Index: TypeAlias = slice | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Words of tensor memory, as an index of lanes and one of columns, which go together."""

    lanes: Index
    columns: Index

    @property
    def index(self) -> tuple[Index, Index]:
        """The index of an array (128, 512)."""
        return self.lanes, self.columns

    def column_range(self) -> tuple[int, int]:
        """The first column, and the one after the last."""
        if isinstance(self.columns, slice):
            return self.columns.start, self.columns.stop
        return int(self.columns.min()), int(self.columns.max()) + 1

    def place_of(self, position: tuple[int, ...]) -> tuple[int, int]:
        """The lane and the column of an element of what the index gives."""
        if isinstance(self.lanes, slice) and isinstance(self.columns, slice):
            return self.lanes.start + position[0], self.columns.start + position[1]
        if isinstance(self.lanes, slice) or isinstance(self.columns, slice):
            row = self.lanes.start + position[0] if isinstance(self.lanes, slice) else int(self.lanes[position[0]])
            column = self.columns
            return row, column.start + position[1] if isinstance(column, slice) else int(column[position[1]])
        lanes, columns = np.broadcast_arrays(self.lanes, self.columns)
        return int(lanes[position]), int(columns[position])
