"""The problems: a suite of sizes from large and small models, and a random sample."""

from __future__ import annotations

import numpy as np

from cutegen.contract.problem import ProblemShape

SUITE = tuple(
    ProblemShape(*extents)
    for extents in (
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (8192, 4096, 14336),
        (512, 8192, 8192),
        (64, 8192, 8192),
        (16, 4096, 4096),
        (1, 8192, 8192),
        (128, 4096, 14336),
        (256, 256, 65536),
        (3000, 3000, 3000),
    )
)
"""Squares from launch-bound to power-bound, layers of large models at large and small batch, long K, odd extents."""
SQUARES = tuple(ProblemShape(extent, extent, extent) for extent in (2048, 4096, 8192))
LADDER = ProblemShape(4096, 4096, 4096)
ENERGY = ProblemShape(8192, 8192, 8192)

SAMPLE_SEED = 5
SAMPLE_SIZE = 60
SHORTEST, LONGEST, MULTIPLE = 16, 8192, 8


def sample() -> tuple[ProblemShape, ...]:
    """Return problems whose M, N and K are log-uniform from 16 to 8192, rounded to multiples of 8."""
    logarithms = np.random.default_rng(SAMPLE_SEED).uniform(np.log(SHORTEST), np.log(LONGEST), (SAMPLE_SIZE, 3))
    sides = MULTIPLE * np.rint(np.exp(logarithms) / MULTIPLE).astype(int)
    return tuple(ProblemShape(*map(int, row)) for row in sides)
