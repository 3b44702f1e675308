"""What is multiplied: sizes of large models and small ones, and a sample of everything."""

from __future__ import annotations

import numpy as np

from cutegen.contract.problem import ProblemShape

LARGE = (ProblemShape(4096, 4096, 4096), ProblemShape(8192, 8192, 8192), ProblemShape(8192, 4096, 14336))
SMALL = (
    ProblemShape(1024, 1024, 1024),
    ProblemShape(512, 8192, 8192),
    ProblemShape(64, 8192, 8192),
    ProblemShape(16, 4096, 4096),
)

SAMPLE_SEED = 5
SAMPLE_SIZE = 60
SHORTEST, LONGEST, MULTIPLE = 16, 8192, 8


def sample() -> tuple[ProblemShape, ...]:
    """Problems whose M, N and K are log-uniform from 16 to 8192, rounded to multiples of 8."""
    logarithms = np.random.default_rng(SAMPLE_SEED).uniform(np.log(SHORTEST), np.log(LONGEST), (SAMPLE_SIZE, 3))
    sides = MULTIPLE * np.rint(np.exp(logarithms) / MULTIPLE).astype(int)
    return tuple(ProblemShape(*map(int, row)) for row in sides)
