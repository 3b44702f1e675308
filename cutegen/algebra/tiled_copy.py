"""TiledCopy: a copy atom tiled over threads and values, and what each thread reads, writes and holds.

A port of CUTLASS `cute/atom/copy_atom.hpp` (struct TiledCopy, struct ThrCopy).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from cutegen.algebra.layout import (
    Layout,
    LayoutExpr,
    coalesce,
    compose,
    divide,
    inner_layout,
    logical_product,
    make_layout,
    mode,
    modes,
    right_inverse,
    size,
    upcast,
    with_inner,
    zipped_divide,
)
from cutegen.algebra.partition import Partition, slice_thread
from cutegen.algebra.tiled_mma import OperandName, TiledMma


class CopyAtomLike(Protocol):
    """Properties that TiledCopy needs of a copy atom; layouts map (thread, value) to a bit offset."""

    @property
    def name(self) -> str:
        """The name of the atom, for messages."""

    @property
    def src_layout_bits(self) -> Layout:
        """(T, V) -> bit, as the instruction reads."""

    @property
    def dst_layout_bits(self) -> Layout:
        """(T, V) -> bit, as the instruction writes."""

    @property
    def ref_layout_bits(self) -> Layout:
        """The one of the two in which a thread-value layout is given."""


def reordered(layout_tv: Layout, order: Layout) -> Layout:
    """Renumber the values of a (thread, value) layout: `order` maps a new number to the old one.

    >>> reordered(Layout((4, 4), (4, 1)), Layout((2, 2), (2, 1)))
    Layout((4, (2, 2)), (4, (2, 1)))
    """
    return make_layout(mode(layout_tv, 0), compose(mode(layout_tv, 1), order))


@dataclass(frozen=True, slots=True)
class TiledCopy:
    """`atom` over `layout_tv`: (thread, value) -> column-major coordinate in a tile of extents `tiler`.

    Elements have `bits` bits. Raises ValueError, in CuTe's words, if the atom needs more threads or values than
    `layout_tv` has.
    """

    atom: CopyAtomLike
    layout_tv: Layout
    tiler: tuple[int, ...]
    bits: int

    def __post_init__(self) -> None:
        ref_threads, ref_values = map(size, modes(self._ref))
        threads, values = map(size, modes(self.layout_tv))
        if threads % ref_threads:
            raise ValueError(
                f"TiledCopy uses too few thrs for selected CopyAtom: {self.atom.name} takes {ref_threads} threads, "
                f"{threads} is not a multiple"
            )
        if values % ref_values:
            raise ValueError(
                f"TiledCopy uses too few vals for selected CopyAtom: {self.atom.name} moves {ref_values} values per "
                f"thread, {values} is not a multiple"
            )

    @classmethod
    def from_thr_val(cls, atom: CopyAtomLike, thr: Layout, val: Layout, bits: int) -> TiledCopy:
        """Make a copy from layouts of equal rank, (m,n) -> thread and (m,n) -> value (make_tiled_copy).

        Raises ValueError if the thread layout omits or repeats thread indices.
        """
        threads = size(thr)
        val_thr = [  # the raked product: values innermost, thread indices fastest
            make_layout(compose(Layout(size(val) * threads, threads), v), t)
            for v, t in zip(modes(val), modes(thr), strict=True)
        ]
        inverse = right_inverse(make_layout(*val_thr))
        if size(inverse) != threads * size(val):
            raise ValueError(f"thread layout {thr} does not number {threads} threads from 0 without gaps")
        return cls(atom, compose(inverse, Layout((threads, size(val)))), tuple(map(size, val_thr)), bits)

    @classmethod
    def for_mma(
        cls, atom: CopyAtomLike, mma: TiledMma, op: OperandName, bits: int, order: Layout | None = None
    ) -> TiledCopy:
        """Return the copy whose threads receive what `mma` needs of an operand (make_tiled_copy_A and so on).

        It fills a thread's values in sequence, or by `order`: number in the copy -> number in the MMA's tile.
        """
        tv = mma.tv_layout(op)
        return cls(atom, tv if order is None else reordered(tv, order), mma.tile_of(op), bits)

    @property
    def threads(self) -> int:
        """The threads that take part."""
        return int(size(mode(self.layout_tv, 0)))

    @property
    def layout_src_tv(self) -> Layout:
        """(thread, value) -> tile coordinate, as the source is read (get_layoutS_TV)."""
        thr_frg = self._thrfrg(self._src, Layout(self.tiler))
        return make_layout(mode(thr_frg, 0), mode(thr_frg, 1))

    @property
    def layout_dst_tv(self) -> Layout:
        """(thread, value) -> tile coordinate, as the destination is written (get_layoutD_TV)."""
        thr_frg = self._thrfrg(self._dst, Layout(self.tiler))
        return make_layout(mode(thr_frg, 0), mode(thr_frg, 1))

    def partition_s(self, layout: LayoutExpr, thread: int) -> Partition:
        """Return ((FrgV, FrgX), RestM, RestN, ...): the thread's reads. Raises ValueError for an invalid thread."""
        return self._partition(self._src, layout, thread)

    def partition_d(self, layout: LayoutExpr, thread: int) -> Partition:
        """Return ((FrgV, FrgX), RestM, RestN, ...): the thread's writes. Raises ValueError for an invalid thread."""
        return self._partition(self._dst, layout, thread)

    def shared_out(self, layout: Layout) -> Layout | None:
        """Return (Thr, (FrgV, FrgX), (RestM, RestN, ...)) -> offset in a tensor that is written.

        None if blocks of the tensor end within those of the threads, so that threads have unequal shares.
        """
        return _shared_out(self, layout)

    def retile(self, fragment: Layout) -> Layout:
        """View a fragment (V, RestM, RestN, ...) of an MMA as this copy fills it: ((FrgV, FrgX), RestM, RestN, ...)."""
        frg_v = size(mode(fragment, 0))
        inverse = compose(right_inverse(self.layout_tv), Layout(self.tiler))
        frg_mn = upcast(inverse, self.threads * frg_v)  # (m,n) -> value index, counted in fragments of frg_v
        order = divide(logical_product(Layout(frg_v), right_inverse(frg_mn)), size(mode(self._ref, 1)))
        tile, rest = zipped_divide(fragment, [frg_v, *map(size, modes(frg_mn))])
        return make_layout(compose(tile, order), *modes(rest)[1:])

    @property
    def _src(self) -> Layout:
        return upcast(self.atom.src_layout_bits, self.bits)

    @property
    def _dst(self) -> Layout:
        return upcast(self.atom.dst_layout_bits, self.bits)

    @property
    def _ref(self) -> Layout:
        return upcast(self.atom.ref_layout_bits, self.bits)

    def _partition(self, side: Layout, layout: LayoutExpr, thread: int) -> Partition:
        if not 0 <= thread < self.threads:
            raise ValueError(f"thread {thread} is not one of the {self.threads} threads of the tiled copy")
        thr_frg = self._thrfrg(side, inner_layout(layout))
        flat = make_layout(mode(thr_frg, 0), mode(thr_frg, 1), *modes(mode(thr_frg, 2)))
        return slice_thread(with_inner(layout, flat), thread)

    def _thrfrg(self, side: Layout, layout: Layout) -> Layout:
        """Return (Thr, (FrgV, FrgX), (RestM, RestN, ...)) of an affine tensor layout (tidfrg_S and tidfrg_D)."""
        tile, rest = zipped_divide(layout, self.tiler)
        thr, val = _atom_tv(self, side)
        return make_layout(compose(tile, thr), compose(tile, val), rest)


@lru_cache(maxsize=64)  # the same for every thread, requested for one after the other
def _atom_tv(copy: TiledCopy, side: Layout) -> tuple[Layout, Layout]:
    """Return thread and value of one side -> tile coordinate (the first half of tile2thrfrg)."""
    ref_threads, ref_values = map(size, modes(copy._ref))
    thr, val = divide(mode(copy.layout_tv, 0), ref_threads), divide(mode(copy.layout_tv, 1), ref_values)
    ref_to_side = compose(right_inverse(copy._ref), side)
    atom_tv = compose(make_layout(mode(thr, 0), mode(val, 0)), ref_to_side)
    threads = coalesce(make_layout(coalesce(mode(atom_tv, 0)), coalesce(mode(thr, 1))))
    return threads, make_layout(coalesce(mode(atom_tv, 1)), coalesce(mode(val, 1)))


@lru_cache(maxsize=2048)
def _shared_out(copy: TiledCopy, layout: Layout) -> Layout | None:
    try:
        return copy._thrfrg(copy._dst, layout)
    except ValueError:
        return None
