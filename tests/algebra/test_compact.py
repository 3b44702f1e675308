"""tile_to_shape, ordered layouts and fragments: CuTe's results on known cases, bijectivity on random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutegen.algebra import (
    ComposedLayout,
    Dyn,
    Layout,
    Swizzle,
    cosize,
    format_layout,
    inner_layout,
    offsets,
    offsets_2d,
    parse_layout,
    tile_to_shape,
)
from cutegen.algebra.layout import fragment_like, ordered_layout

powers_of_two = st.sampled_from([1, 2, 4, 8, 16, 32, 64])
counts = st.integers(1, 6)
orders = st.permutations([0, 1, 2])


def is_injective(layout: Layout | ComposedLayout) -> bool:
    table = offsets(layout)
    return len(np.unique(table)) == len(table)


@given(
    rows=counts,
    columns=st.integers(10, 40),
    pad=st.integers(0, 9),
    repeats=st.tuples(counts, counts, counts),
    order=orders,
)
def test_padded_atoms_tile_without_overlap(
    rows: int, columns: int, pad: int, repeats: tuple[int, int, int], order: list[int]
) -> None:
    atom = Layout((rows, columns), (columns + pad, 1))
    tiled = tile_to_shape(atom, (rows * repeats[0], columns * repeats[1], repeats[2]), order)
    assert is_injective(tiled)
    # Each copy of the atom takes its whole span, padding included; the last row's padding is the only part not reached.
    span = rows * (columns + pad) if rows > 1 else columns
    copies = repeats[0] * repeats[1] * repeats[2]
    assert cosize(tiled) == (copies - 1) * span + (rows - 1) * (columns + pad) + columns


@given(
    rows=powers_of_two,
    columns=powers_of_two,
    row_major=st.booleans(),
    swizzle=st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)),
    repeats=st.tuples(powers_of_two, powers_of_two, st.sampled_from([1, 2, 4])),
    order=orders,
)
def test_swizzled_atoms_fill_their_tile_exactly(
    rows: int,
    columns: int,
    row_major: bool,
    swizzle: tuple[int, int, int],
    repeats: tuple[int, int, int],
    order: list[int],
) -> None:
    bits, base, beyond = swizzle
    window = 1 << (base + 2 * bits + beyond)  # all bits that the swizzle touches
    inner = Layout((rows, columns), (columns, 1) if row_major else (1, rows))
    atom = ComposedLayout(Swizzle(bits, base, bits + beyond), inner)
    shape = (min(rows * repeats[0], 128), min(columns * repeats[1], 128), repeats[2])
    tiled = tile_to_shape(atom, shape, order)
    table = np.sort(offsets(tiled))
    assert is_injective(tiled)
    elems = shape[0] * shape[1] * shape[2]
    if elems % window == 0:
        assert np.array_equal(table, np.arange(elems))


@given(rows=counts, columns=st.integers(4, 9), repeats=st.tuples(counts, counts))
def test_each_copy_of_the_atom_keeps_its_inner_offsets(rows: int, columns: int, repeats: tuple[int, int]) -> None:
    atom = Layout((rows, columns), (columns + 3, 1))
    tiled = offsets_2d(tile_to_shape(atom, (rows * repeats[0], columns * repeats[1])))
    for i in range(repeats[0]):
        for j in range(repeats[1]):
            block = tiled[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            assert np.array_equal(block - block[0, 0], offsets_2d(atom))


@pytest.mark.parametrize(
    ("atom", "shape", "order", "expected"),
    [
        ("(8,32):(40,1)", (128, 32), None, "((_8,_16),(_32,_1)):((_40,_320),(_1,_0))"),
        ("(8,32):(32,1)", (128, 64), (0, 1), "((_8,_16),(_32,_2)):((_32,_256),(_1,_4096))"),
        ("(8,32):(32,1)", (128, 64), (1, 0), "((_8,_16),(_32,_2)):((_32,_512),(_1,_256))"),
        ("(8,32):(32,1)", (128, 64, 3), (2, 0, 1), "((_8,_16),(_32,_2),(_1,_3)):((_32,_1536),(_1,_256),(_0,_512))"),
        ("(4,2):(2,16)", (8, 4), None, "((_4,_2),(_2,_2)):((_2,_1),(_16,_8))"),
    ],
)
def test_block_strides(atom: str, shape: tuple[int, ...], order: tuple[int, ...] | None, expected: str) -> None:
    assert format_layout(tile_to_shape(parse_layout(atom), shape, order)) == expected


def test_swizzle_passes_through() -> None:
    tiled = tile_to_shape(parse_layout("Sw<3,3,3> o (8,64):(64,1)"), (128, 64))
    assert isinstance(tiled, ComposedLayout)
    assert tiled.outer == Swizzle(3, 3, 3)
    assert format_layout(inner_layout(tiled)) == "((_8,_16),(_64,_1)):((_64,_512),(_1,_0))"


@pytest.mark.parametrize("shape", [(100, 32), (128, 48), (128,)])
def test_atom_must_divide_the_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"an atom of shape \(8, 32\) does not divide a tile of shape"):
        tile_to_shape(Layout((8, 32), (32, 1)), shape)


@given(
    st.lists(counts, min_size=1, max_size=4).flatmap(
        lambda s: st.tuples(st.just(tuple(s)), st.permutations(range(len(s))))
    )
)
def test_ordered_layouts_are_compact_and_vary_in_order(case: tuple[tuple[int, ...], list[int]]) -> None:
    shape, order = case
    layout = ordered_layout(shape, order)
    assert np.array_equal(np.sort(offsets(layout)), np.arange(np.prod(shape)))
    by_order = [layout.stride[i] for i in sorted(range(len(shape)), key=order.__getitem__) if shape[i] > 1]
    assert by_order == sorted(by_order)


def test_run_time_strides_come_last_in_a_fragment() -> None:
    partition = Layout(((2, 2), 4, (2, 4)), ((Dyn(5120), 8), Dyn(7), (64, Dyn(9))))
    assert format_layout(fragment_like(partition)) == "((_2,_2),_4,(_2,_4)):((_1,_2),_8,(_4,_32))"
