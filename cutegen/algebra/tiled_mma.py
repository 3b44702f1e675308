"""TiledMma: an MMA atom tiled over warps and a tile, and which thread holds which element of A, B and C.

A port of CUTLASS `cute/atom/mma_atom.hpp` (struct TiledMMA, struct ThrMMA).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from cutegen.algebra.compact import fragment_like, ordered_layout
from cutegen.algebra.layout import (
    Layout,
    LayoutExpr,
    compose,
    divide,
    inner_layout,
    make_layout,
    mode,
    modes,
    right_inverse,
    size,
    with_inner,
    zipped_divide,
)
from cutegen.algebra.partition import Partition, slice_thread
from cutegen.algebra.tables import offsets

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
        return _shared_out(self, op, layout)

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
    tv = compose(atom_tile, _atom_tv(mma.atom, op))
    vmnk = mma.thr_layout_vmnk
    thr, frg = zipped_divide(rest, [size(mode(vmnk, i + 1)) for i in (x, y)])
    return make_layout(make_layout(mode(tv, 0), thr), make_layout(mode(tv, 1), frg))


@lru_cache(maxsize=2048)
def _shared_out(mma: TiledMma, op: OperandName, layout: Layout) -> Layout | None:
    try:
        return _thrfrg(mma, op, layout)
    except ValueError:
        return None


def _atom_tv(atom: MmaAtomLike, op: OperandName) -> Layout:
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
