"""Rows of packed groups, and where the factors of 8 bits of each are: a group's begin an atom of 128 rows.

Ends are read on their device: nothing here waits for it.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from cutegen.contract.problem import Groups
from cutegen.hardware.factor_atoms import ATOM_ROWS


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The `group` of each row, (R,), or `groups` for a row of none; and its `place` among the rows of atoms."""

    group: Tensor
    place: Tensor
    groups: int

    @classmethod
    def of(cls, ends: Tensor, rows: int) -> Self:
        """Return the rows of groups with any ends, which are limited as kernels limit them.

        >>> PackedRows.of(torch.tensor([2, 2, 9]), 4).place.tolist()
        [0, 1, 128, 129]
        """
        stops = cls.stops(ends, rows)
        begins = torch.cat((stops.new_zeros(1), stops))[:-1]
        blocks = (stops - begins + ATOM_ROWS - 1) // ATOM_ROWS
        offset = (blocks.cumsum(0) - blocks) * ATOM_ROWS - begins
        row = torch.arange(rows, device=ends.device)
        group = torch.searchsorted(stops, row, right=True)
        return cls(group, row + torch.cat((offset, offset.new_zeros(1)))[group], len(ends))

    @staticmethod
    def stops(ends: Tensor, room: int) -> Tensor:
        """Return the ends of groups, limited as kernels limit them: to the room there is, and to the end before.

        >>> PackedRows.stops(torch.tensor([2, 1, 9]), 4).tolist()
        [2, 2, 4]
        """
        stops = ends.to(torch.int64).clamp(0, room)
        return stops.cummax(0).values if len(stops) else stops

    @property
    def room(self) -> int:
        """The rows of the atoms that any ends need."""
        return Groups("m").most_tiles(len(self.group), self.groups, ATOM_ROWS) * ATOM_ROWS

    @property
    def inside(self) -> Tensor:
        """True for each row that has a group, (R,)."""
        return self.group < self.groups

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest of the values (R, F) of each group, none of which is negative; 0 for one without rows."""
        found = values.new_zeros(self.groups + 1)
        return found.scatter_reduce_(0, self.group, values.amax(-1), "amax")[:-1]

    def of_rows(self, of_groups: Tensor) -> Tensor:
        """Return the number of each row's group, (R, 1); 1 for a row of none."""
        return torch.cat((of_groups, of_groups.new_ones(1)))[self.group][:, None]

    def placed(self, factors: Tensor) -> Tensor:
        """Return factors (R, F) at their places, (room, F), and zeros elsewhere."""
        codes = factors.view(torch.uint8)
        found = codes.new_zeros((self.room + 1, codes.shape[1]))
        place = self.place.where(self.inside, self.room)
        return found.index_copy_(0, place, codes)[:-1].view(factors.dtype)

    def taken(self, placed: Tensor) -> Tensor:
        """Return the factors of each row from those at their places; zeros for a row of no group."""
        codes = placed.view(torch.uint8)
        codes = torch.cat((codes, codes.new_zeros((1, codes.shape[1]))))
        return codes[self.place.where(self.inside, len(placed))].view(placed.dtype)
