"""Multiplication of a k-tile by a CTA: the atom, and the threads over which it is tiled."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import MmaAtom
from cutegen.plan.values.decision import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPlan:
    """Multiplication of a k-tile by a CTA: the atom, and the threads over which it is tiled.

    After each `promote_k` of K the tensor core's sums are added to others in registers; never, where that is 0. They
    take `promoted_sets` of registers in turn; where that is `staggered`, the second of two warpgroups that share a tile
    is a k-tile behind the first. With `pingpong` two warpgroups have the tiled MMA and a tile each, and take turns;
    where a tile `ends_in_turns` two share it, and take turns with its last k-tiles. The CTAs of a `cluster`, so many
    along M and along N, share what they copy, and those along K add the sums of as many slices.
    """

    cta_tile: Extents
    atom: MmaAtom
    tiled_mma: TiledMma
    rounds_to_tf32: bool = False
    promote_k: int = 0
    promoted_sets: int = 1
    staggered: bool = False
    pingpong: bool = False
    ends_in_turns: bool = False
    cluster: Extents = (1, 1, 1)
    decisions: tuple[Decision, ...]

    @property
    def threads(self) -> int:
        """Threads of a CTA that multiply."""
        return self.tiled_mma.threads * (2 if self.pingpong else 1)

    @property
    def takes_turns(self) -> bool:
        """True where two warpgroups wait for each other: with tiles, or with the last k-tiles of one."""
        return self.pingpong or self.ends_in_turns

    @property
    def shares_copies(self) -> bool:
        """True where a copy of A or B is for several CTAs of a cluster."""
        return self.cluster[:2] != (1, 1)

    @property
    def k_blocks(self) -> int:
        """Steps of the tiled MMA along K in a k-tile."""
        return self.cta_tile[2] // self.tiled_mma.tile_mnk[2]
