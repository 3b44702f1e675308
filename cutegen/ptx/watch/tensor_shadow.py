"""Shadow of a CTA's tensor memory: for each word who allocated it, who wrote it last, and who has read it since.

A word holds the number of an access; what orders two of them is in `tensor_order`. Words that nobody has written since
their allocation are undefined.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.tensor_order import TensorAccess, TensorOrder
from cutegen.ptx.watch.tensor_region import COLUMNS, LANES, Region
from cutegen.ptx.watch.violations import ViolationKind

Numbers = npt.NDArray[np.int32]


class TensorShadow:
    """The shadow of one CTA's tensor memory."""

    def __init__(self, order: TensorOrder) -> None:
        self._order = order
        self._accesses: list[TensorAccess] = []
        self._owners = np.zeros(COLUMNS, np.int32)
        """Per column the number of the `tcgen05.alloc`, or 0."""
        self._freed_by_peer = np.zeros(COLUMNS, np.int32)
        """Per column the number of the `tcgen05.dealloc` of the other CTA of the pair, or 0."""
        self._writers = np.zeros((LANES, COLUMNS), np.int32)
        self._readers: dict[int, Numbers] = {}

    def allocate(self, access: TensorAccess, columns: slice) -> None:
        """The columns belong to the CTA now, undefined."""
        self._owners[columns] = self._number(access)

    def free(self, access: TensorAccess, columns: slice) -> None:
        """The columns are given back: no access to them may be under way."""
        self._check_free(access, columns)
        self._owners[columns] = self._freed_by_peer[columns] = 0
        self._writers[:, columns] = 0
        for numbers in self._readers.values():
            numbers[:, columns] = 0

    def free_by_peer(self, access: TensorAccess, columns: slice) -> None:
        """The other CTA of the pair gives its columns back: no access to this CTA's may be under way, or follow."""
        self._check_free(access, columns)
        self._freed_by_peer[columns] = self._number(access)

    def _check_free(self, access: TensorAccess, columns: slice) -> None:
        region = Region(slice(0, LANES), columns)
        self._check_writers(access, region, "frees")
        self._check_readers(access, region, "frees")

    def read(self, access: TensorAccess, region: Region, *, also_written: bool = False) -> None:
        """Checks and records a read; `also_written`: the access also writes the words, which counts for both."""
        if not self._check_owned(access, region):
            return
        if int(self._writers[region.index].min()) == 0:
            position = np.unravel_index(int(np.argmin(self._writers[region.index])), self._writers[region.index].shape)
            message = f"{access.way.value} reads tensor memory that was never written since its allocation"
            self._report(ViolationKind.UNINITIALIZED, access, region, tuple(map(int, position)), message)
        self._check_writers(access, region, "reads")
        if not also_written:
            self._readers_of(access.agent)[region.index] = self._number(access)

    def write(self, access: TensorAccess, region: Region) -> None:
        """Checks and records a write."""
        if not self._check_owned(access, region):
            return
        self._check_writers(access, region, "overwrites")
        self._check_readers(access, region, "overwrites")
        self._writers[region.index] = self._number(access)
        for numbers in self._readers.values():
            numbers[region.index] = 0

    def _number(self, access: TensorAccess) -> int:
        if not self._accesses or self._accesses[-1] is not access:
            self._accesses.append(access)
        return len(self._accesses)

    def _readers_of(self, agent: int) -> Numbers:
        if agent not in self._readers:
            self._readers[agent] = np.zeros((LANES, COLUMNS), np.int32)
        return self._readers[agent]

    def _check_owned(self, access: TensorAccess, region: Region) -> bool:
        first, last = region.column_range()
        owners = self._owners[first:last]
        if not owners.all():
            column = first + int(np.argmin(owners))
            message = f"{access.way.value} accesses columns {first} to {last - 1} of tensor memory; column {column}"
            access.warp.cta.fault(
                ViolationKind.OUT_OF_BOUNDS, access.site, access.thread, f"{message} is not allocated", column
            )
            return False
        freed = int(self._freed_by_peer[first:last].max())
        if freed:
            earlier = self._accesses[freed - 1]
            message = f"{access.way.value} accesses columns that the other CTA of its pair has freed"
            message += f" ({earlier.warp.cta.describe(earlier.site)}): the pair frees them together"
            access.warp.cta.fault(ViolationKind.TENSOR_MEMORY, access.site, access.thread, message, first)
        for number in np.unique(owners).tolist():
            # The CTAs of a pair allocate together: the columns of the other one are there if one's own are.
            if self._accesses[number - 1].warp.cta is access.warp.cta:
                self._compare(number, access, "accesses", region, (0, 0))
        return True

    def _check_writers(self, access: TensorAccess, region: Region, verb: str) -> None:
        self._check(self._writers[region.index], access, region, verb)

    def _check_readers(self, access: TensorAccess, region: Region, verb: str) -> None:
        for numbers in self._readers.values():
            self._check(numbers[region.index], access, region, verb)

    def _check(self, numbers: Numbers, access: TensorAccess, region: Region, verb: str) -> None:
        last = int(numbers.max())
        if last == 0:
            return
        found = [last] if int(numbers.min()) == last else np.unique(numbers[numbers > 0]).tolist()
        for number in reversed(found):
            position = tuple(int(i) for i in np.argwhere(numbers == number)[0]) if len(found) > 1 else (0,) * 2
            if self._compare(number, access, verb, region, position):
                return

    def _compare(self, number: int, access: TensorAccess, verb: str, region: Region, position: tuple[int, ...]) -> bool:
        """Reports an access that is not ordered after access `number`; True if there was one."""
        earlier = self._accesses[number - 1]
        if earlier is access:
            return False
        conflict = self._order.conflict(earlier, access, verb)
        if conflict is not None:
            self._report(conflict[0], access, region, position, conflict[1])
        return conflict is not None

    def _report(
        self, kind: ViolationKind, access: TensorAccess, region: Region, position: tuple[int, ...], message: str
    ) -> None:
        lane, column = region.place_of(position)
        access.warp.cta.fault(kind, access.site, access.thread, message, lane << 16 | column)
