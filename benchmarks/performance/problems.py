"""What is multiplied: sizes of large models and small ones, and a sample of everything."""

from __future__ import annotations

import numpy as np

from cutegen.tune.suites import Extents

LARGE = (Extents(4096, 4096, 4096), Extents(8192, 8192, 8192), Extents(8192, 4096, 14336))
SMALL = (Extents(1024, 1024, 1024), Extents(512, 8192, 8192), Extents(64, 8192, 8192), Extents(16, 4096, 4096))

SAMPLE_SEED = 5
SAMPLE_SIZE = 60
SHORTEST, LONGEST, MULTIPLE = 16, 8192, 8


def sample() -> tuple[Extents, ...]:
    """Problems whose M, N and K are log-uniform from 16 to 8192, rounded to multiples of 8."""
    logarithms = np.random.default_rng(SAMPLE_SEED).uniform(np.log(SHORTEST), np.log(LONGEST), (SAMPLE_SIZE, 3))
    sides = MULTIPLE * np.rint(np.exp(logarithms) / MULTIPLE).astype(int)
    return tuple(Extents(*map(int, row)) for row in sides)
