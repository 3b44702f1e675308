"""Compact tables and layouts for pages that draw them again.

A table of which thread touches what is nearly always a sum: a start for each instruction, warp or lane, plus the same
steps for each. Only the addends are stored; a table that is not a sum is stored as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import ComposedLayout, LayoutExpr, inner_layout, leaves, modes


def packed(table: NDArray[np.int64]) -> Any:
    """Pack a table of any rank: a list for one axis, else `by` for its first axis and one shared `of`, or `each`.

    >>> packed(np.array([[0, 1, 2], [8, 9, 10]])), packed(np.array([[0, 1], [5, 3]]))
    ({'by': [0, 8], 'of': [0, 1, 2]}, {'each': [[0, 1], [5, 3]]})
    """
    if table.ndim == 1:
        return table.tolist()
    begins = table.reshape(len(table), -1)[:, 0]
    moved = begins - begins[0]
    if np.array_equal(table, table[:1] + moved.reshape(-1, *[1] * (table.ndim - 1))):
        return {"by": moved.tolist(), "of": packed(table[0])}
    return {"each": [packed(part) for part in table]}


def packed_layout(layout: LayoutExpr) -> dict[str, Any]:
    """Return a layout's modes as lists of (extent, stride), its swizzle as (bits, base, shift) and the offset after it.

    >>> from cutegen.algebra import Layout
    >>> packed_layout(Layout((8, (2, 4)), (8, (1, 64))))
    {'modes': [[[8, 8]], [[2, 1], [4, 64]]], 'swizzle': None, 'offset': 0}
    """
    swizzle, offset = (layout.outer, layout.offset) if isinstance(layout, ComposedLayout) else (None, 0)
    return {
        "modes": [
            [[int(n), int(d)] for n, d in leaves(part.shape, part.stride)] for part in modes(inner_layout(layout))
        ],
        "swizzle": [swizzle.bits, swizzle.base, swizzle.shift] if swizzle is not None else None,
        "offset": int(offset),
    }
