"""Vector copies between global and shared memory: the thread grid that covers a tile, and the TiledCopy made of it."""

from __future__ import annotations

import numpy as np

from cutegen.algebra import Layout, TiledCopy, modes, offsets_2d, parse_layout, size
from cutegen.hardware import UNIVERSAL_BITS, CopyAtom, CpAsyncAtom
from cutegen.hardware.units import WARP
from cutegen.plan.geometry.smem_candidates import rows_of
from cutegen.plan.values.copies import VectorCopy
from cutegen.support.words import plural


def widths_bits(element_bits: int) -> tuple[int, ...]:
    """Return the widths of copies that hold at least one element, widest first."""
    return tuple(bits for bits in reversed(UNIVERSAL_BITS) if bits >= element_bits)


def as_threads(text: str) -> Layout:
    """Return a thread layout of the spec, which allows no swizzle there."""
    layout = parse_layout(text)
    assert isinstance(layout, Layout)
    return layout


def span(grid: Layout, major_mode: int, vector_elems: int) -> tuple[int, int]:
    """Return what the threads of `grid` cover at once if each copies a vector along the contiguous mode."""
    rows, columns = map(size, modes(grid))
    return (rows * vector_elems, columns) if major_mode == 0 else (rows, columns * vector_elems)


def contiguous(grid: Layout, major_mode: int, vector_bytes: int) -> str:
    """Return what adjacent threads copy of the contiguous mode at once, for a reason.

    >>> contiguous(Layout((16, 8), (8, 1)), 1, 16)
    '8 threads x 16 bytes = 128 contiguous bytes of global memory'
    >>> contiguous(Layout((16, 8), (1, 16)), 1, 16)
    '2 threads of a warp x 16 bytes = 32 contiguous bytes of global memory'
    """
    along = size(modes(grid)[major_mode])
    together = _side_by_side(grid, major_mode)
    of_all = together in (along, WARP)
    threads = plural(along, "thread") if of_all else f"{plural(together, 'thread')} of a warp"
    contiguous_bytes = (along if of_all else together) * vector_bytes
    return f"{threads} x {vector_bytes} bytes = {contiguous_bytes} contiguous bytes of global memory"


def _side_by_side(grid: Layout, major_mode: int) -> int:
    """Return how many threads of the first warp copy one run of adjacent vectors, the shortest such run."""
    numbers = offsets_2d(grid)  # thread by (row, column)
    lines = numbers if major_mode == 1 else numbers.T  # adjacent vectors in a line
    runs = []
    for line in lines < WARP:
        ends = np.flatnonzero(np.diff(np.concatenate(([False], line, [False]))))  # where runs begin and end
        runs += (ends[1::2] - ends[::2]).tolist()
    return int(min(runs))


def thread_grid(tile: tuple[int, int], major_mode: int, vector_elems: int, threads: int) -> Layout | None:
    """Return the exact grid, one vector per thread, with the most threads along the contiguous mode, or None.

    >>> thread_grid((128, 64), 1, 8, 128)
    Layout((16, 8), (8, 1))
    """
    along_major = [
        count
        for count in range(1, threads + 1)
        if threads % count == 0
        and tile[major_mode] % (count * vector_elems) == 0
        and tile[1 - major_mode] % (threads // count) == 0
    ]
    if not along_major:
        return None
    return rows_of(threads // along_major[-1], along_major[-1], major_mode)


def vector_copy(
    atom: CpAsyncAtom | CopyAtom, bits: int, grid: Layout, major_mode: int, element_bits: int
) -> VectorCopy:
    """The TiledCopy in which each thread of `grid` moves one vector of `bits` along the contiguous mode."""
    vector = bits // element_bits
    values = Layout((1, vector)) if major_mode == 1 else Layout((vector, 1))
    tiled_copy = TiledCopy.from_thr_val(atom, grid, values, element_bits)
    return VectorCopy(atom=atom, bits=bits, threads=grid, values=values, tiled_copy=tiled_copy)
