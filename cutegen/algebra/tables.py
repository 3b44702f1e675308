"""Layouts as numpy tables: every offset at once, so that counting and proving need no Python loop."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra.layout import ComposedLayout, LayoutExpr, inner_layout, leaves, mode, size

MOST_KEPT = 1 << 14
"""Maximum elements of a cached table: 128 KiB."""


def offsets(layout: LayoutExpr) -> NDArray[np.int64]:
    """Return the offset of each coordinate in colexicographic order, swizzle included: int64[size], read-only.

    >>> from cutegen.algebra import Layout
    >>> offsets(Layout((2, 3), (10, 1)))
    array([ 0, 10,  1, 11,  2, 12])
    """
    return _kept_offsets(layout) if size(inner_layout(layout)) <= MOST_KEPT else _offsets(layout)


def _offsets(layout: LayoutExpr) -> NDArray[np.int64]:
    inner = inner_layout(layout)
    table = np.zeros(1, np.int64)
    for extent, stride in leaves(inner.shape, inner.stride):
        table = (np.arange(extent, dtype=np.int64)[:, None] * int(stride) + table).ravel()
    if isinstance(layout, ComposedLayout):
        table = layout.outer(table + layout.offset)
    table.flags.writeable = False
    return table


# Ranking shared memory layouts requests each one three or four times.
_kept_offsets = lru_cache(maxsize=256)(_offsets)


def offsets_2d(layout: LayoutExpr) -> NDArray[np.int64]:
    """Return the offsets of a layout of rank 2, indexed by its two modes: int64[size<0>, size<1>]."""
    inner = inner_layout(layout)
    return offsets(layout).reshape(size(mode(inner, 1)), size(mode(inner, 0))).T


def offsets_by_row(layout: LayoutExpr) -> NDArray[np.int64]:
    """Return a layout's offsets, of any rank, as a table: mode 0 downwards, the others to the right; rank 1 is one row.

    int64[size<0>, size of the rest], columns in colexicographic order.

    >>> from cutegen.algebra import Layout
    >>> offsets_by_row(Layout((2, (2, 2)), (1, (10, 100)))).tolist()
    [[0, 10, 100, 110], [1, 11, 101, 111]]
    """
    inner = inner_layout(layout)
    rows = size(mode(inner, 0)) if isinstance(inner.shape, tuple) and len(inner.shape) > 1 else 1
    return offsets(layout).reshape(-1, rows).T
