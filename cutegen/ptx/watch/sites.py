"""Properties of an entry's instructions that the watchers of shared and global memory look up.

Source: PTX ISA, "Memory Consistency Model": "Vector Data-types", "Packed Data-types", "Morally Strong Operations".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.agents import Agent


@dataclass(frozen=True, slots=True)
class SiteTable:
    """Columns by instruction: reach of its scope (0: it is weak), bytes of an element, and whether it is `.nc`.

    `agents` of those that access shared memory after their issue.
    """

    reach: npt.NDArray[np.int64]
    element_bytes: npt.NDArray[np.int64]
    expects_constant: npt.NDArray[np.bool_]
    agents: Mapping[int, Agent] = field(default_factory=dict)

    def morally_strong(
        self, site: int, others: npt.NDArray[np.integer], needed: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Mark the instructions `others` that do not race with `site` on the same bytes, ordered or not.

        Both are strong, of elements of one size, and each scope has the reach `needed` to include the other thread.
        """
        if self.reach[site] == 0:
            return np.zeros(others.shape, bool)
        both = np.minimum(self.reach[others], self.reach[site])
        return np.asarray((both >= needed) & (self.element_bytes[others] == self.element_bytes[site]))
