"""Like instructions that follow one another, done at once: what they cost is the calls of numpy, not the numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.warp import Warp

Rows: TypeAlias = npt.NDArray[np.intp]
MOST = 32
"""Instructions done at once: half a MiB of products, of 16 x 8 x 16 each."""


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Step for one or more instructions of the same `words`: the opcode and all that follows it but the operands.

    `act` does them; `targets` and each of `sources` are rows of the 32-bit file, int[instruction, register].
    """

    words: tuple[str, ...]
    act: Callable[[Warp, Alike], None]
    sites: tuple[int, ...]
    targets: Rows
    sources: tuple[Rows, ...]

    def __call__(self, warp: Warp) -> None:
        self.act(warp, self)

    def joined(self, later: Alike) -> Alike | None:
        """Both at once; None where they are unlike, or `later` has registers that these write."""
        if later.words != self.words or len(self.sites) + len(later.sites) > MOST:
            return None
        if np.isin((*later.targets.flat, *(row for rows in later.sources for row in rows.flat)), self.targets).any():
            return None
        return replace(
            self,
            sites=self.sites + later.sites,
            targets=np.concatenate((self.targets, later.targets)),
            sources=tuple(map(np.concatenate, zip(self.sources, later.sources, strict=True))),
        )
