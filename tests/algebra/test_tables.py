"""Tables against the definition of a layout, one coordinate at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cutegen.algebra import ComposedLayout, Layout, offsets, offsets_2d, parse_layout
from cutegen.algebra.layout import MOST_KEPT

LAYOUTS = [
    "6",
    "(4,3):(3,1)",
    "((2,2),(3,2)):((1,8),(2,16))",
    "Sw<2,1,3> o 5 o ((4,4),(2,8)):((1,64),(4,8))",
    "(3,4):(0,2)",
]


def xor_swizzle(value: int, bits: int, base: int, shift: int) -> int:
    """Bits [base+shift, base+shift+bits) of the value, XORed into bits [base, base+bits)."""
    return value ^ (((value >> (base + shift)) % (1 << bits)) << base)


def flat(tree: object) -> list[int]:
    return [leaf for part in tree for leaf in flat(part)] if isinstance(tree, tuple) else [int(tree)]  # type: ignore[call-overload]


@pytest.mark.parametrize("text", LAYOUTS)
def test_offsets_are_the_inner_products_of_all_coordinates(text: str) -> None:
    layout = parse_layout(text)
    inner = layout.inner if isinstance(layout, ComposedLayout) else layout
    extents, strides = flat(inner.shape), flat(inner.stride)
    # itertools.product varies the last factor fastest; colexicographic order varies the first.
    coordinates = [c[::-1] for c in product(*(range(extent) for extent in reversed(extents)))]
    expected = [sum(i * d for i, d in zip(c, strides, strict=True)) for c in coordinates]
    if isinstance(layout, ComposedLayout):
        swizzle = layout.outer
        expected = [
            xor_swizzle(layout.offset + offset, swizzle.bits, swizzle.base, swizzle.shift) for offset in expected
        ]
    assert offsets(layout).tolist() == expected


def test_offsets_2d_is_indexed_by_the_two_modes() -> None:
    table = offsets_2d(parse_layout("((2,2),3):((1,8),2)"))
    assert table.shape == (4, 3)
    assert np.array_equal(table, [[0, 2, 4], [1, 3, 5], [8, 10, 12], [9, 11, 13]])


@pytest.mark.parametrize("rows", [8, 2 * MOST_KEPT])
def test_a_table_cannot_be_changed_for_who_asks_next(rows: int) -> None:
    """Small ones are kept."""
    layout = Layout((rows, 2), (3, 1))
    table = offsets(layout)
    with pytest.raises(ValueError, match="read-only"):
        table += 1
    assert np.array_equal(offsets(layout), (np.arange(rows) * 3 + np.arange(2)[:, None]).ravel())
    assert (offsets(Layout((rows, 2), (3, 1))) is table) == (rows < MOST_KEPT)
