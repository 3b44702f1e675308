"""Multiplication of a k-tile by a CTA: the atom, and the threads over which it is tiled."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import MmaAtom
from cutegen.plan.kernel.accumulator import Accumulator
from cutegen.plan.kernel.role import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPlan:
    """Multiplication of a k-tile by a CTA: the atom, and the threads over which it is tiled.

    Its sums are in `accumulator`. The threads of `role` multiply: those of one tiled MMA, or groups with a tiled MMA
    and a tile each. The CTAs of a `cluster` along M and N share copies, and those along K add the sums of as many
    slices.
    """

    cta_tile: Extents
    atom: MmaAtom
    tiled_mma: TiledMma
    role: Role
    accumulator: Accumulator
    rounds_to_tf32: bool = False
    cluster: Extents = (1, 1, 1)

    @property
    def threads(self) -> int:
        """Threads of a CTA that multiply."""
        return self.role.threads

    @property
    def shares_copies(self) -> bool:
        """True if a copy of A or B is for several CTAs of a cluster."""
        return self.cluster[:2] != (1, 1)

    @property
    def k_blocks(self) -> int:
        """Steps of the tiled MMA along K in a k-tile."""
        return self.cta_tile[2] // self.tiled_mma.tile_mnk[2]
