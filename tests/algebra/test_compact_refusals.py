"""Layouts that cannot be repeated over a tile, and orders that say nothing."""

from __future__ import annotations

import pytest

from cutegen.algebra import Dyn, Layout, tile_to_shape
from cutegen.algebra.layout import ordered_layout


@pytest.mark.parametrize("atom", [Layout((2, 2), (1, 4)), Layout((2, 2), (2, 2))])
def test_an_atom_whose_holes_hold_no_odd_number_of_copies_is_refused(atom: Layout) -> None:
    """Holes are filled first: two copies lie between each other, and a third would lie within them."""
    with pytest.raises(ValueError, match=r"3 copies of .* do not fit into its holes"):
        tile_to_shape(atom, (6, 2))
    assert tile_to_shape(atom, (4, 2)).shape == ((2, 2), (2, 1))


def test_run_time_numbers_come_after_all_static_ones() -> None:
    assert ordered_layout((4, 8, 2), (Dyn(0), 5, 7)).stride == (16, 1, 8)
