"""Tensor memory of a CTA: its words, and which columns are allocated.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Tensor Memory", `tcgen05.alloc`, `tcgen05.dealloc`,
`tcgen05.relinquish_alloc_permit`. A CTA has all 512 columns of its SM here. A kernel must not depend on the columns
that it receives: the policy chooses among the aligned ones. Allocation waits until enough columns are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import POISON_BYTE
from cutegen.ptx.machine.policy import Schedule
from cutegen.ptx.watch.tensor_order import TensorAccess, TensorOrder
from cutegen.ptx.watch.tensor_region import COLUMNS, LANES
from cutegen.ptx.watch.tensor_shadow import TensorShadow

LEAST_COLUMNS = 32
LANE_SHIFT = 16
_POISON = POISON_BYTE * 0x01010101


class TensorMemory:
    """The tensor memory of one CTA; `phase` counts what may end another warp's wait for columns."""

    def __init__(self, order: TensorOrder) -> None:
        self.words: npt.NDArray[np.uint32] = np.full((LANES, COLUMNS), _POISON, np.uint32)
        self.shadow = TensorShadow(order)
        self.phase = 0
        self.allocations: dict[int, tuple[int, TensorAccess]] = {}
        """Number of columns and the `tcgen05.alloc`, by first column."""
        self.has_relinquished = False

    def awaited(self) -> str:
        """Name of the object, for messages."""
        taken = ", ".join(f"{first} to {first + n - 1}" for first, (n, _) in sorted(self.allocations.items()))
        return f"columns of tensor memory (allocated: {taken or 'none'})"

    def allocate(self, access: TensorAccess, first: int, count: int) -> None:
        """The columns from `first` on belong to the CTA; their contents are undefined."""
        columns = slice(first, first + count)
        self.allocations[first] = count, access
        self.words[:, columns] = _POISON
        self.shadow.allocate(access, columns)
        self.phase += 1

    def free(self, access: TensorAccess, first: int, count: int) -> None:
        """The columns are given back."""
        del self.allocations[first]
        self.shadow.free(access, slice(first, first + count))
        self.phase += 1

    def free_by_peer(self, access: TensorAccess, first: int, count: int) -> None:
        """The other CTA of the pair gives its columns back, and this one has not yet."""
        if first in self.allocations:
            self.shadow.free_by_peer(access, slice(first, first + count))

    def is_free(self, first: int, count: int) -> bool:
        """Return whether no column of a range is allocated."""
        return all(first + count <= start or start + n <= first for start, (n, _) in self.allocations.items())


def choose_columns(memories: Sequence[TensorMemory], count: int, schedule: Schedule) -> int | None:
    """The first of `count` columns that are free in all `memories`, or None if there are none."""
    places = [first for first in range(0, COLUMNS, count) if all(each.is_free(first, count) for each in memories)]
    return schedule.order(places)[0] if places else None


def halves_of(words: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """The float16 in the low half of each word."""
    return words.astype(np.uint16).view(np.float16)
