"""The tiles that are compared for a problem when a spec leaves the tile open: extents, warps, and stages of each.

A list made by hand: every row was the fastest on some problem of `docs/tile_model.md`, or stands in for a row that does
not fit a target's shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CTA tile, its warps along M, N and K, and its stages."""

    cta: tuple[int, int, int]
    atom_layout: tuple[int, int, int]
    stages: int

    def __str__(self) -> str:
        m, n, k = self.cta
        warps_m, warps_n, _ = self.atom_layout
        return f"{m}x{n}x{k}, {warps_m}x{warps_n} warps, {self.stages} stages"


CANDIDATES: tuple[Candidate, ...] = (
    Candidate((256, 128, 64), (4, 2, 1), 3),
    Candidate((128, 256, 64), (2, 4, 1), 3),
    Candidate((128, 128, 64), (2, 2, 1), 3),
    Candidate((128, 128, 32), (2, 2, 1), 4),
    Candidate((64, 256, 64), (1, 4, 1), 3),
    Candidate((256, 64, 64), (4, 1, 1), 3),
    Candidate((128, 64, 64), (2, 2, 1), 4),
    Candidate((64, 128, 64), (2, 2, 1), 4),
    Candidate((64, 64, 64), (2, 2, 1), 4),
    Candidate((64, 32, 64), (2, 2, 1), 6),
    Candidate((32, 64, 64), (2, 2, 1), 6),
    Candidate((32, 128, 64), (1, 4, 1), 4),
    Candidate((128, 32, 64), (4, 1, 1), 4),
    Candidate((16, 128, 64), (1, 4, 1), 4),
    Candidate((128, 16, 64), (4, 1, 1), 4),
    Candidate((16, 64, 128), (1, 4, 1), 4),
    Candidate((64, 16, 128), (4, 1, 1), 4),
    Candidate((64, 64, 128), (2, 2, 1), 3),
    Candidate((32, 64, 128), (2, 2, 1), 4),
    Candidate((16, 32, 128), (1, 4, 1), 6),
)

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of slices of K that are compared."""
