"""GMMA layouts: which fill a tile, that each is what a bulk tensor copy writes, and the order of preference."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cutegen.algebra import offsets_2d
from cutegen.hardware.gmma import GMMA_LAYOUTS, GmmaLayout, gmma_layouts

BITS = (8, 16, 32)


@pytest.mark.parametrize(("layout", "bits"), [*product(GMMA_LAYOUTS.values(), BITS)])
def test_a_tile_is_boxes_of_rows_whose_vectors_are_xored_by_row(layout: GmmaLayout, bits: int) -> None:
    """CUDA Driver API, CU_TENSOR_MAP_SWIZZLE_128B and its like: 16-byte vector v of row r lies where v ^ r belongs.

    Of rows of 64 and 32 bytes, two and four share 128 bytes, and r counts those.
    """
    tile = (128, 128)
    element_bytes, row_bytes = bits // 8, layout.mode.row_bytes
    x, y = np.indices(tile)
    along, across = (y, x) if layout.major_mode == 1 else (x, y)
    rows = tile[1 - layout.major_mode]
    box, byte = np.divmod(along * element_bytes, row_bytes)
    vector = byte // 16 ^ across * row_bytes // 128 % (row_bytes // 16)
    expected = box * rows * row_bytes + across * row_bytes + vector * 16 + byte % 16
    assert np.array_equal(offsets_2d(layout.tile(tile, bits)) * element_bytes, expected)


@pytest.mark.parametrize(
    ("tile", "major_mode", "bits", "names"),
    [
        ((128, 64), 1, 16, ["K_SW128", "K_SW64", "K_SW32", "K_INTER"]),
        ((128, 64), 1, 8, ["K_SW64", "K_SW32", "K_INTER"]),
        ((96, 64), 0, 16, ["MN_SW64", "MN_SW32", "MN_INTER"]),
        ((24, 16), 0, 16, ["MN_INTER"]),
        ((24, 48), 1, 16, ["K_SW32", "K_INTER"]),
        ((12, 64), 1, 16, []),
        ((64, 4), 0, 16, []),
    ],
)
def test_those_that_fill_a_tile_widest_first(
    tile: tuple[int, int], major_mode: int, bits: int, names: list[str]
) -> None:
    assert [layout.name for layout in gmma_layouts(tile, major_mode, bits)] == [f"Layout_{name}_Atom" for name in names]
    for layout in GMMA_LAYOUTS.values():
        if layout.major_mode == major_mode and layout not in gmma_layouts(tile, major_mode, bits):
            with pytest.raises(ValueError, match="does not divide"):
                layout.tile(tile, bits)
