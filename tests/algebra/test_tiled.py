"""Construction of TiledMma and TiledCopy: defaults, refusals, sizes."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.algebra import Layout, TiledCopy, TiledMma, format_layout, offsets_2d, parse_layout
from cutegen.hardware import MMA_ATOMS, cp_async_atom, ldmatrix_atom, universal_atom

ATOM = MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"]


def test_the_smallest_tile_is_the_default() -> None:
    mma = TiledMma(ATOM, (2, 4, 1))
    assert mma.permutation == (32, 32, 16)
    assert mma.tile_mnk == (32, 32, 16)
    assert mma.threads == 256
    assert TiledMma(ATOM, (2, 4, 1), (None, 64, None)).tile_mnk == (32, 64, 16)


def test_values_are_the_tile_over_the_threads_that_share_it() -> None:
    mma = TiledMma(ATOM, (2, 2, 1), (32, 32, 16))
    assert (mma.values("A"), mma.values("B"), mma.values("C")) == (32 * 16 // 64, 32 * 16 // 64, 32 * 32 // 128)
    assert mma.tile_of("B") == (32, 16)


def test_a_permutation_smaller_than_the_warps_is_refused() -> None:
    with pytest.raises(ValueError, match="permutation N=24 is not a multiple of 16, the atoms along N together"):
        TiledMma(ATOM, (2, 2, 1), (32, 24, 16))


def test_equal_parts_make_equal_tiled_mmas() -> None:
    assert TiledMma(ATOM, (2, 2, 1), (32, 32, 16)) == TiledMma(ATOM, Layout((2, 2, 1), (1, 2, 0)), (32, 32, 16))
    assert hash(TiledMma(ATOM, (2, 2, 1))) == hash(TiledMma(ATOM, (2, 2, 1), (32, 16, 16)))
    assert TiledMma(ATOM, (2, 2, 1)) != TiledMma(ATOM, (4, 1, 1))


def test_a_permutation_layout_interleaves_the_warps_rows() -> None:
    """N permuted by (8,2,2):(1,16,8): each warp's two atoms lie next to each other, 16 columns in one run."""
    mma = TiledMma(ATOM, (1, 2, 1), (16, Layout((8, 2, 2), (1, 16, 8)), 16))
    columns = [np.unique(mma.partition("B", Layout((32, 16)), thread).offsets() % 32) for thread in (0, 32)]
    assert columns[0].tolist() == [0, 8]
    assert columns[1].tolist() == [16, 24]


def test_raked_copy_gives_each_thread_its_run() -> None:
    copy = TiledCopy.from_thr_val(cp_async_atom("cp.async.cg", 128), parse_layout("(16,8):(8,1)"), Layout((1, 8)), 16)
    assert (copy.threads, copy.tiler) == (128, (16, 64))
    assert format_layout(copy.layout_tv) == "((_8,_16),_8):((_128,_1),_16)"
    thread, value = np.arange(128)[:, None], np.arange(8)
    row, column = thread // 8, 8 * (thread % 8) + value
    assert np.array_equal(offsets_2d(copy.layout_tv), row + 16 * column)


def test_126_threads_make_a_copy_of_126_threads() -> None:
    copy = TiledCopy.from_thr_val(cp_async_atom("cp.async.cg", 128), parse_layout("(21,6):(6,1)"), Layout((1, 8)), 16)
    assert (copy.threads, copy.tiler) == (126, (21, 48))


def test_a_thread_layout_with_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match="does not number 128 threads from 0 without gaps"):
        TiledCopy.from_thr_val(cp_async_atom("cp.async.cg", 128), parse_layout("(16,8):(16,1)"), Layout((1, 8)), 16)


def test_too_few_values() -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        TiledCopy.for_mma(ldmatrix_atom(4, transpose=False), TiledMma(ATOM, (2, 2, 1)), "B", 16)
    assert str(error.value) == (
        "TiledCopy uses too few vals for selected CopyAtom: SM75_U32x4_LDSM_N moves 8 values per thread, "
        "4 is not a multiple"
    )


def test_too_few_threads() -> None:
    with pytest.raises(ValueError, match=r"uses too few thrs for selected CopyAtom: .* takes 32 threads, 16 is not"):
        TiledCopy(ldmatrix_atom(1, transpose=False), Layout((16, 2)), (16, 2), 16)


def test_a_universal_copy_moves_what_the_mma_wants() -> None:
    mma = TiledMma(ATOM, (2, 2, 1), (32, 32, 16))
    copy = TiledCopy.for_mma(universal_atom(16), mma, "B", 16)
    assert np.array_equal(offsets_2d(copy.layout_src_tv), offsets_2d(mma.tv_layout("B")))
    assert np.array_equal(offsets_2d(copy.layout_dst_tv), offsets_2d(mma.tv_layout("B")))
