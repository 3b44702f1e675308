"""An atom tiled over a CTA: TiledMma and TiledCopy, and which thread holds, reads and writes which element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, Self

import numpy as np

from cutegen.algebra.layout import (
    Layout,
    LayoutExpr,
    Partition,
    coalesce,
    compose,
    divide,
    fragment_like,
    inner_layout,
    logical_product,
    make_layout,
    mode,
    modes,
    offsets,
    ordered_layout,
    right_inverse,
    size,
    slice_thread,
    upcast,
    with_inner,
    zipped_divide,
)

# TiledMma: an MMA atom tiled over warps and a tile, and which thread holds which element of A, B and C.
#
# A port of CUTLASS `cute/atom/mma_atom.hpp` (struct TiledMMA, struct ThrMMA).


OperandName = Literal["A", "B", "C"]
Extents = tuple[int, int, int]

# The two of (M, N, K) that index each operand.
OPERAND_MODES: Mapping[OperandName, tuple[int, int]] = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}


class MmaAtomLike(Protocol):
    """Properties that TiledMma needs of an MMA atom; layouts map (thread, value) to a column-major offset in a tile."""

    @property
    def shape_mnk(self) -> Extents:
        """(M, N, K) of one instruction."""

    @property
    def thr_id(self) -> Layout:
        """Thread of the atom -> lane."""

    @property
    def a_layout(self) -> Layout:
        """(T, V) -> (M, K)."""

    @property
    def b_layout(self) -> Layout:
        """(T, V) -> (N, K)."""

    @property
    def c_layout(self) -> Layout:
        """(T, V) -> (M, N)."""


@dataclass(frozen=True, slots=True, init=False)
class TiledMma:
    """`atom` on the threads of `atom_layout` (M, N, K), each mode of the tile first permuted by `permutation`.

    `atom_layout` may be given as extents, column-major. An entry of `permutation` is the tile's extent in that mode, or
    a layout of it; None is the smallest: the atom's extent times the atoms along it. Raises ValueError if an extent is
    not a multiple of that.
    """

    atom: MmaAtomLike
    atom_layout: Layout
    permutation: tuple[int | Layout, int | Layout, int | Layout]

    def __init__(
        self,
        atom: MmaAtomLike,
        atom_layout: Layout | Extents = (1, 1, 1),
        permutation: Sequence[int | Layout | None] | None = None,
    ) -> None:
        layout = atom_layout if isinstance(atom_layout, Layout) else ordered_layout(atom_layout)
        smallest = [atom.shape_mnk[i] * size(mode(layout, i)) for i in range(3)]
        resolved = [
            least if given is None else given
            for given, least in zip(permutation or (None, None, None), smallest, strict=True)
        ]
        for name, extent, least in zip("MNK", map(size, resolved), smallest, strict=True):
            if extent % least:
                raise ValueError(
                    f"permutation {name}={extent} is not a multiple of {least}, the atoms along {name} together"
                )
        object.__setattr__(self, "atom", atom)
        object.__setattr__(self, "atom_layout", layout)
        object.__setattr__(self, "permutation", tuple(resolved))

    @property
    def thr_layout_vmnk(self) -> Layout:
        """(ThrV, ThrM, ThrN, ThrK) -> thread index."""
        lanes = size(self.atom.thr_id)
        of_lanes = 1 if lanes > 1 else 0  # CuTe's stride of a mode of one element
        return Layout((lanes, *self.atom_layout.shape), (of_lanes, *_scaled(self.atom_layout.stride, lanes)))

    @property
    def threads(self) -> int:
        """The threads that take part."""
        return int(size(self.thr_layout_vmnk))

    @property
    def tile_mnk(self) -> Extents:
        """(M, N, K) of the tile that all threads compute together."""
        m, n, k = map(size, self.permutation)
        return m, n, k

    def tile_of(self, op: OperandName) -> tuple[int, int]:
        """Return the extents of the operand's tile: (M,K), (N,K) or (M,N)."""
        x, y = OPERAND_MODES[op]
        return self.tile_mnk[x], self.tile_mnk[y]

    def values(self, op: OperandName) -> int:
        """Return the values of the operand's tile that one thread holds."""
        return int(size(mode(self.tv_layout(op), 1)))

    def tv_layout(self, op: OperandName) -> Layout:
        """Return (thread, value) -> column-major coordinate in the operand's tile (get_layoutA_TV and so on).

        Warps along K hold the same elements of C; CuTe's get_layoutC_TV has them beyond the tile.
        """
        return _tv_layout(self, op)

    def partition(self, op: OperandName, layout: LayoutExpr, thread: int) -> Partition:
        """Return (V, RestM, RestK, ...): the thread's share of a tensor (partition_A and so on).

        Raises ValueError for an invalid thread.
        """
        thrfrg = _thrfrg(self, op, inner_layout(layout))
        frg = mode(thrfrg, 1)
        flat = make_layout(mode(thrfrg, 0), mode(frg, 0), *modes(mode(frg, 1)))
        return slice_thread(with_inner(layout, flat), self._coordinate(op, thread))

    def shared_out(self, op: OperandName, layout: Layout) -> Layout | None:
        """Return ((ThrV, (ThrX, ThrY)), (FrgV, (RestX, RestY, ...))) -> offset.

        None if blocks of the tensor end within those of the atoms, so that threads have unequal shares.
        """
        return _mma_shared_out(self, op, layout)

    def fragment(self, op: OperandName, layout: LayoutExpr, thread: int) -> Layout:
        """Return the register layout for `partition(op, layout, thread)` (make_fragment_A and so on)."""
        share = inner_layout(self.partition(op, layout, thread).layout)
        # Accumulators never follow the layout of the tensor that they are stored to.
        return ordered_layout(share.shape) if op == "C" else fragment_like(share)

    def _coordinate(self, op: OperandName, thread: int) -> tuple[int, tuple[int, int]]:
        """Return (ThrV, (ThrX, ThrY)) of a thread index."""
        if not 0 <= thread < self.threads:
            raise ValueError(f"thread {thread} is not one of the {self.threads} threads of the tiled MMA")
        vmnk = self.thr_layout_vmnk
        index = int(np.flatnonzero(offsets(vmnk) == thread)[0])
        v, *mnk = map(int, np.unravel_index(index, tuple(map(size, modes(vmnk))), order="F"))
        x, y = OPERAND_MODES[op]
        return v, (mnk[x], mnk[y])


def _scaled(strides: tuple[Any, ...], by: int) -> tuple[Any, ...]:
    return tuple(_scaled(stride, by) if isinstance(stride, tuple) else stride * by for stride in strides)


def _thrfrg(mma: TiledMma, op: OperandName, layout: Layout) -> Layout:
    """Return ((ThrV, (ThrX, ThrY)), (FrgV, (RestX, RestY, ...))) of an affine tensor layout (thrfrg_A and so on)."""
    x, y = OPERAND_MODES[op]
    all_modes = modes(layout)
    permuted = [divide(part, mma.permutation[i]) for part, i in zip(all_modes, (x, y), strict=False)]
    shape = mma.atom.shape_mnk
    atom_tile, rest = zipped_divide(make_layout(*permuted, *all_modes[2:]), (shape[x], shape[y]))
    tv = compose(atom_tile, _mma_atom_tv(mma.atom, op))
    vmnk = mma.thr_layout_vmnk
    thr, frg = zipped_divide(rest, [size(mode(vmnk, i + 1)) for i in (x, y)])
    return make_layout(make_layout(mode(tv, 0), thr), make_layout(mode(tv, 1), frg))


@lru_cache(maxsize=2048)
def _mma_shared_out(mma: TiledMma, op: OperandName, layout: Layout) -> Layout | None:
    try:
        return _thrfrg(mma, op, layout)
    except ValueError:
        return None


def _mma_atom_tv(atom: MmaAtomLike, op: OperandName) -> Layout:
    return {"A": atom.a_layout, "B": atom.b_layout, "C": atom.c_layout}[op]


@lru_cache(maxsize=64)
def _tv_layout(mma: TiledMma, op: OperandName) -> Layout:
    x, y = OPERAND_MODES[op]
    thrfrg = _thrfrg(mma, op, Layout(mma.tile_of(op)))
    thr_v, thr_xy = modes(mode(thrfrg, 0))
    # The mode that the operand lacks is broadcast: its threads hold the same elements.
    by_mode = {i: Layout(size(mode(mma.thr_layout_vmnk, i + 1)), 0) for i in range(3)}
    by_mode |= {x: mode(thr_xy, 0), y: mode(thr_xy, 1)}
    threads = compose(make_layout(thr_v, *by_mode.values()), right_inverse(mma.thr_layout_vmnk))
    return make_layout(threads, mode(thrfrg, 1))


# TiledCopy: a copy atom tiled over threads and values, and what each thread reads, writes and holds.
#
# A port of CUTLASS `cute/atom/copy_atom.hpp` (struct TiledCopy, struct ThrCopy).


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
    def from_thr_val(cls, atom: CopyAtomLike, thr: Layout, val: Layout, bits: int) -> Self:
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
    ) -> Self:
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
        return _copy_shared_out(self, layout)

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
        thr, val = _copy_atom_tv(self, side)
        return make_layout(compose(tile, thr), compose(tile, val), rest)


@lru_cache(maxsize=64)  # the same for every thread, requested for one after the other
def _copy_atom_tv(copy: TiledCopy, side: Layout) -> tuple[Layout, Layout]:
    """Return thread and value of one side -> tile coordinate (the first half of tile2thrfrg)."""
    ref_threads, ref_values = map(size, modes(copy._ref))
    thr, val = divide(mode(copy.layout_tv, 0), ref_threads), divide(mode(copy.layout_tv, 1), ref_values)
    ref_to_side = compose(right_inverse(copy._ref), side)
    atom_tv = compose(make_layout(mode(thr, 0), mode(val, 0)), ref_to_side)
    threads = coalesce(make_layout(coalesce(mode(atom_tv, 0)), coalesce(mode(thr, 1))))
    return threads, make_layout(coalesce(mode(atom_tv, 1)), coalesce(mode(val, 1)))


@lru_cache(maxsize=2048)
def _copy_shared_out(copy: TiledCopy, layout: Layout) -> Layout | None:
    try:
        return copy._thrfrg(copy._dst, layout)
    except ValueError:
        return None
