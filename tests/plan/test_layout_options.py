"""The layouts that are compared for a tile in shared memory, counted by their definition."""

from __future__ import annotations

from itertools import product

import pytest

from cutegen.algebra import ComposedLayout, Layout, inner_layout, offsets, size
from cutegen.plan.smem_layouts import LayoutOption, all_options


def swizzles(options: list[LayoutOption], atom_elems: int) -> set[tuple[int, int, int]]:
    return {
        (option.swizzle.bits, option.swizzle.base, option.swizzle.shift)
        for option in options
        if option.swizzle is not None and size(inner_layout(option.atom)) == atom_elems
    }


def fitting(vector_base: int, atom_bits: int) -> set[tuple[int, int, int]]:
    """(B, M, S) that keep 1 or 2 vectors together, whose bits do not overlap, and whose period fits the atom."""
    found = product(range(1, 10), (vector_base, vector_base + 1), range(1, 10))
    return {(b, m, s) for b, m, s in found if b <= s and b + m + s <= atom_bits}


@pytest.mark.parametrize(("element_bytes", "vector_base"), [(1, 4), (2, 3), (4, 2)])
@pytest.mark.parametrize("major_mode", [0, 1])
def test_every_swizzle_of_the_widest_atom_is_listed(element_bytes: int, vector_base: int, major_mode: int) -> None:
    """The widest atom has 8 rows of 128 bytes."""
    options = list(all_options((128, 128), major_mode, element_bytes))
    atom_bits = 10 - (element_bytes.bit_length() - 1)
    assert swizzles(options, 2**atom_bits) == fitting(vector_base, atom_bits)


def test_of_narrower_atoms_only_the_swizzles_of_cute_are_listed() -> None:
    """Rows of 64 and 32 bytes: Swizzle<2,3,3> and <1,3,3>, and what of them fits the narrower atom."""
    options = list(all_options((128, 128), 1, 2))
    assert swizzles(options, 8 * 32) == {(1, 3, 3), (2, 3, 3)}
    assert swizzles(options, 8 * 16) == {(1, 3, 3)}


@pytest.mark.parametrize(("element_bytes", "vector_bytes", "vector_elems"), [(2, 16, 8), (2, 4, 2), (4, 16, 4)])
def test_pads_are_whole_vectors_and_the_plain_tile_has_none(
    element_bytes: int, vector_bytes: int, vector_elems: int
) -> None:
    options = [x for x in all_options((64, 32), 1, element_bytes, vector_bytes) if x.swizzle is None]
    assert options[0].atom == Layout((64, 32), (32, 1))
    assert all(x.atom == Layout((64, 32), (32 + x.pad_elems, 1)) for x in options)
    assert min(x.pad_elems for x in options[1:]) == vector_elems
    assert all(x.pad_elems % vector_elems == 0 for x in options)


def test_a_tile_without_whole_atoms_is_only_padded() -> None:
    assert all(option.swizzle is None for option in all_options((12, 64), 1, 2)), (
        "12 rows are not a multiple of an atom of 8"
    )


def test_every_listed_layout_has_a_place_of_its_own_for_each_element() -> None:
    for option in all_options((64, 64), 0, 2, turned=True):
        table = offsets(option.atom)
        assert len(set(table.tolist())) == len(table), option
        assert not isinstance(option.atom, ComposedLayout) or option.swizzle is not None
