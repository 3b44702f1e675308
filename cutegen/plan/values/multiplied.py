"""How a CTA multiplies a k-tile, once its atom and its threads are chosen."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import TiledMma
from cutegen.hardware import MmaAtom
from cutegen.plan.values.decision import Decision

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplied:
    """How a CTA multiplies a k-tile: the atom, and the threads over which it is tiled."""

    cta_tile: Extents
    atom: MmaAtom
    tiled_mma: TiledMma
    rounds_to_tf32: bool = False
    decisions: tuple[Decision, ...]

    @property
    def k_blocks(self) -> int:
        """Steps of the tiled MMA along K in a k-tile."""
        return self.cta_tile[2] // self.tiled_mma.tile_mnk[2]
