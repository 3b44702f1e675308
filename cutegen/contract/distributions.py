"""Named distributions of rows over groups, as routers spread them: to measure, and to predict."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np

_TOP = 8
"""Groups that a token is routed to, as mixtures of many experts have."""
_PREFERENCE = 0.7
"""Standard deviation of the logarithm of how often a router prefers a group."""
_MOST_SCORES = 1 << 20
"""Scores of tokens for groups that are drawn: more tokens follow the shares of these."""

_Weights = np.ndarray[Any, np.dtype[np.float64]]


class Distribution(StrEnum):
    """A distribution of rows over groups.

    All the same; factors of U(0.7, 1.3); choices of the top 8 groups by each token, with mild preferences; shares of
    1/1, 1/2, 1/3, ...; half of all rows in one group.
    """

    UNIFORM = "uniform"
    SPREAD = "spread"
    ROUTED = "routed"
    ZIPF = "zipf"
    HOT = "hot"

    def sizes(self, rows: int, groups: int, seed: int = 0) -> tuple[int, ...]:
        """Return the size of each group; their sum is `rows`.

        >>> Distribution.UNIFORM.sizes(10, 4), Distribution.ZIPF.sizes(11, 3), Distribution.HOT.sizes(12, 4)
        ((2, 3, 3, 2), (6, 3, 2), (2, 6, 2, 2))
        """
        ends = np.cumsum(self._weights(rows, groups, np.random.default_rng(seed)))
        return tuple(np.diff(np.rint(rows * (ends / ends[-1])).astype(np.int64), prepend=0).tolist())

    def _weights(self, rows: int, groups: int, random: np.random.Generator) -> _Weights:
        match self:
            case Distribution.UNIFORM:
                return np.ones(groups)
            case Distribution.SPREAD:
                return random.uniform(0.7, 1.3, groups)
            case Distribution.ROUTED:
                return _routed(rows, groups, random)
            case Distribution.ZIPF:
                return 1 / np.arange(1, groups + 1)
            case Distribution.HOT:
                weights = np.ones(groups)
                weights[groups // 3] = max(1, groups - 1)
                return weights


def _routed(rows: int, groups: int, random: np.random.Generator) -> _Weights:
    """Return how many tokens choose each group: those with the best scores, which are preferences and Gumbel noise."""
    top = min(_TOP, groups)
    tokens = max(1, min(-(-rows // top), _MOST_SCORES // groups))
    scores = random.normal(0, _PREFERENCE, groups) + random.gumbel(size=(tokens, groups))
    chosen = np.argpartition(scores, groups - top, axis=1)[:, groups - top :]
    return np.bincount(chosen.ravel(), minlength=groups).astype(np.float64)
