"""Small geometry by hand: accesses of threads, sectors, pairs, swizzles, and how accesses are spelled."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.algebra import Layout, Swizzle, TiledMma, offsets
from cutegen.algebra.layout import _unswizzled
from cutegen.hardware import MMA_ATOMS
from cutegen.plan.geometry import held_together, joined, touched_sectors
from cutegen.plan.mma.fma import tiled_fma
from cutegen.plan.operands.shared_memory import Access, _is_even
from cutegen.plan.values.copies import _joined

TWO_BY_TWO = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], Layout((2, 2, 1)), None)


@pytest.mark.parametrize("pitch", [64, 65, 66, 68, 72])
def test_accesses_of_a_thread_bring_its_elements_once_and_aligned(pitch: int) -> None:
    """Threads (8,16) of single elements over 64 x 16: eight each, some of which lie side by side."""
    layout, threads = Layout((64, 16), (1, pitch)), Layout((8, 16), (16, 1))
    for values in (Layout((1, 1)), Layout((2, 1)), Layout((4, 1))):
        coordinates, lengths = joined(threads, values, layout, (64, 16), 16)
        assert sum(lengths) == 64 * 16 // 128
        placed = offsets(layout)[coordinates]
        for row, length in zip(placed, lengths, strict=True):
            assert length == values.shape[0] or not (row % length).any()


@pytest.mark.parametrize(
    ("pitch", "lengths"), [(16, (8, 8)), (24, (8, 8)), (20, (4,) * 4), (18, (2,) * 8), (17, (1,) * 16)]
)
def test_accesses_are_as_long_as_every_thread_is_aligned(pitch: int, lengths: tuple[int, ...]) -> None:
    """Each of 64 threads has a row of 16 elements of 2 bytes; every second row of 20 begins within 16 bytes."""
    _, found = joined(Layout((64, 1), (1, 0)), Layout((1, 1)), Layout((64, 16), (pitch, 1)), (64, 16), 16)
    assert found == lengths


@pytest.mark.parametrize("major_mode", [0, 1])
def test_sectors_are_counted_along_the_contiguous_mode(major_mode: int) -> None:
    """A warp reads 32 neighbors of 2 bytes along mode 0 of 64 x 64: two sectors of 32 bytes, or 32 of them."""
    table = np.arange(32).reshape(1, 32, 1)
    assert touched_sectors(table, (64, 64), major_mode, 2) == (2 if major_mode == 0 else 32)


def test_a_thread_holds_pairs_along_n() -> None:
    assert [held_together(TWO_BY_TWO, mode) for mode in (0, 1)] == [1, 2]
    fma = tiled_fma(Layout((16, 16), (16, 1)))
    assert [held_together(fma, mode) for mode in (0, 1)] == [1, 1]


@pytest.mark.parametrize(("bits", "distance", "base"), [(1, 3, 3), (2, 4, 3), (2, 3, 4), (3, 3, 3)])
def test_a_swizzle_seen_from_zero_moves_single_bits_as_it_does(bits: int, distance: int, base: int) -> None:
    swizzle = Swizzle(bits, base, distance)
    table = offsets(_unswizzled(swizzle, 0, 0, 4096))
    for bit in (1 << i for i in range(12)):
        assert table[bit] == swizzle(bit)


@pytest.mark.parametrize(
    ("bits", "parts", "name"), [(32, 16, "v2.b16"), (64, 16, "v4.b16"), (16, 8, "v2.b8"), (128, 32, "v4.b32")]
)
def test_joined_accesses_are_spelled_as_vectors(bits: int, parts: int, name: str) -> None:
    assert _joined(bits, parts) == name


@pytest.mark.parametrize(
    ("swizzle", "layout", "even"),
    [
        (Swizzle(1, 3, 3), Layout((8, 48), (48, 1)), False),
        (Swizzle(1, 3, 3), Layout((8, 64), (64, 1)), True),
        (Swizzle(2, 3, 3), Layout((8, 48), (48, 1)), False),
        (Swizzle(0, 3, 3), Layout((8, 48), (48, 1)), True),
        (Swizzle(3, 3, 3), Layout((8, 64), (64, 1)), True),
    ],
)
def test_a_mode_ends_with_a_period_or_divides_it(swizzle: Swizzle, layout: Layout, even: bool) -> None:
    assert _is_even(swizzle, layout) is even


def test_lines_are_written_once_at_best() -> None:
    """Two rows of 128 bytes, a lane for each 16 bytes: two lines."""
    coordinates = (np.arange(16) * 8).reshape(1, 1, 16)
    access = Access(coordinates, 16, source_bytes=coordinates * 2)
    found = access.count_by_line(Layout(128), 2)
    assert found is not None
    assert found.ideal == 2
