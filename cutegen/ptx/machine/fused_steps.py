"""Consecutive instructions of the same kind, executed at once: calls into numpy dominate their cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.warp import Warp

Rows: TypeAlias = npt.NDArray[np.intp]
MOST = 32
"""Instructions executed at once: half a MiB of products, 16 x 8 x 16 each."""


@dataclass(frozen=True, slots=True, eq=False)
class FusedStep:
    """Step for one or more instructions of the same `words`: the opcode and everything after it except the operands.

    `act` executes them; `targets` and each of `sources` are rows of the 32-bit file, int[instruction, register].
    """

    words: tuple[str, ...]
    act: Callable[[Warp, FusedStep], None]
    sites: tuple[int, ...]
    targets: Rows
    sources: tuple[Rows, ...]

    def __call__(self, warp: Warp) -> None:
        self.act(warp, self)

    def joined(self, later: FusedStep) -> FusedStep | None:
        """Both steps merged; None if they differ in kind, or if `later` uses registers that these write."""
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
