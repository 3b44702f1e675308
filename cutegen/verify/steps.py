"""The distance of results from float64 in steps of their type: 0 is the nearest value, 1 its neighbor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.hardware import dtype
from cutegen.verify.reference import nearest_bits

BINS = (0, 1, 2, 4, 16, 256)
"""The least number of steps of each bin of a histogram; the last is open."""


def steps(found: NDArray[Any], expected: NDArray[np.float64], element: str) -> NDArray[np.int64]:
    """Return the steps between results, in NumPy's carrier of `element`, and the values nearest to `expected`.

    >>> steps(np.array([1, 1.001], np.float16), np.array([1.0, 1.0]), "f16")
    array([0, 1])
    """
    return steps_between(found, nearest_bits(expected, element), element)


def steps_between(some: NDArray[Any], others: NDArray[Any], element: str) -> NDArray[np.int64]:
    """Return the steps between two results, both in NumPy's carrier of `element`."""
    return abs(_ordered(some, element) - _ordered(others, element))


def histogram(distances: NDArray[np.int64]) -> Mapping[str, int]:
    """Return how many elements are so many steps off, by the range of steps.

    >>> dict(histogram(np.array([0, 0, 1, 3, 300])))
    {'0': 2, '1': 1, '2-3': 1, '4-15': 0, '16-255': 0, '256-': 1}
    """
    ends = (*BINS[1:], None)
    counts = np.histogram(distances, (*BINS, np.iinfo(np.int64).max))[0]
    names = [
        str(first) if end == first + 1 else f"{first}-{'' if end is None else end - 1}"
        for first, end in zip(BINS, ends, strict=True)
    ]
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _ordered(values: NDArray[Any], element: str) -> NDArray[np.int64]:
    """Return numbers that count the values of a type in their order; both zeros are 0."""
    if dtype(element).is_integer:
        return values.astype(np.int64)
    bits = values.view(f"i{values.itemsize}").astype(np.int64)
    sign = -(1 << 8 * values.itemsize - 1)
    return np.where(bits < 0, sign - bits, bits)
