"""The expected result of a kernel that quantizes C: values and factors in float64, with bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.contract.quantized import FLOOR, MOST, QUANTIZED_BLOCK, FactorsOfC
from cutegen.verify.error_bounds import UNIT, Bounded

_ROUNDINGS = 3
"""Roundings of a value to float32 before that to its type: of the factor, of its inverse, and of their product."""


def quantized(x: Bounded, element: str, scale: FactorsOfC) -> tuple[Bounded, Bounded]:
    """Return the values of C before they are rounded to `element`, and the factors of its blocks.

    Where the error of a largest magnitude includes a power of two, so do the errors of such a factor and of its block.
    """
    with np.errstate(all="ignore"):  # an unbounded error makes that of its block unbounded
        value, error = _numpy(x.value), _numpy(x.error + 0.0 * x.value)
        largest = [_largest(abs(value) + sign * error) * (1 + sign * 2 * UNIT) for sign in (-1, 1)]
        low, high = (_factors(each, MOST[element], scale) for each in largest)
        own = _factors(_largest(abs(value)), MOST[element], scale)
        off = np.maximum(high - own, own - low)
        s, s_off = (_spread(each, value.shape[-1]) for each in (own, off))
        share = s_off / np.maximum(s - s_off, 0.25 * s) + _ROUNDINGS * UNIT
        values = Bounded(value / s, error / s + abs(value) / s * share)
    return _like(x.value, values), _like(x.value, Bounded(own, off))


def _largest(x: Any) -> Any:
    """Return the largest number of each 128 columns, of which the last may be fewer, and at least 0."""
    width = QUANTIZED_BLOCK[1]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % width)])
    return padded.reshape(*x.shape[:-1], padded.shape[-1] // width, width).max(-1).clip(min=0.0)


def _factors(largest: Any, most: float, scale: FactorsOfC) -> Any:
    """Return the factors for the largest magnitudes of blocks."""
    factors = np.maximum(largest, float(np.float32(FLOOR))) / most
    return factors if scale == "f32" else np.exp2(np.ceil(np.log2(factors)))


def _spread(factors: Any, columns: int) -> Any:
    return factors.repeat(QUANTIZED_BLOCK[1], -1)[..., :columns]


def _numpy(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.cpu().numpy()


def _like(example: Any, made: Bounded) -> Bounded:
    """Return NumPy's arrays as those of the example's framework and device."""
    if isinstance(example, np.ndarray):
        return made
    import torch

    return Bounded(*(torch.from_numpy(each).to(example.device) for each in (made.value, made.error)))
