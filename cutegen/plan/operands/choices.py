"""Selections for A or B: its copies, and the shared layout that suits both best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar

from cutegen.algebra import LayoutExpr, TiledMma
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.geometry import Coordinates, along_and_across, by_warp, contiguity, joined, vectors
from cutegen.plan.operands.smem import Access, AccessOf, SmemRanking, choose_smem, lay_out
from cutegen.plan.values.copies import TileCopy, VectorCopy
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.fragments import FragmentCopy, Fragments, LdmatrixLoads, PlainLoads
from cutegen.plan.values.operand import LAST_MODE, OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.support.words import round_up

CopyT = TypeVar("CopyT", bound=TileCopy)


@dataclass(frozen=True, slots=True)
class OperandChoices(Generic[CopyT]):
    """Everything settled for A or B before the number of stages, which depends on a stage's bytes."""

    tile: OperandTile
    g2s: Choice[CopyT]
    s2r: Choice[Fragments]
    smem: Choice[SmemRanking]

    @property
    def stage_bytes(self) -> int:
        """Bytes of the tile in one stage."""
        return self.smem.value.chosen.tile_bytes

    @property
    def passing_registers(self) -> int:
        """Registers per thread for its share of a k-tile on the way to shared memory; only plain copies use any."""
        return self.g2s.value.passing_registers(self.tile.extents, self.tile.dtype)

    def plan(self, stages: int) -> OperandPath:
        """The operand's part of the plan."""
        x = self.tile
        return OperandPath(
            name=x.name,
            operand=x.operand,
            dtype=x.dtype,
            multiplied=x.multiplied,
            modes=x.modes,
            major=x.major,
            align_bytes=x.align_bytes,
            tile=x.extents,
            g2s=self.g2s.value,
            smem=lay_out(self.smem.value, x.extents, stages),
            s2r=self.s2r.value,
            block=x.block,
            block_elems=x.block_elems,
            box_step=x.box_step,
        )


def choose_layout(
    spec: GemmSpec, x: OperandTile, g2s: Choice[VectorCopy], s2r: Choice[FragmentCopy], tiled_mma: TiledMma
) -> OperandChoices[VectorCopy]:
    """Choose the shared layout for the two copies.

    A layout that the spec gives limits the copies; else the copies are chosen first and the layout is ranked for them.
    """
    of_chosen = fragment_access(x, s2r.value, tiled_mma)
    read = read_access(x, s2r.value, tiled_mma, of_chosen)
    # Each cp.async gets its own address; all other copies take a slice of the layout.
    sliced = (vector_access(x, g2s.value), of_chosen) if g2s.value.through_registers else (of_chosen,)
    write = write_access(x, g2s.value, tiled_mma)
    smem = choose_smem(spec, x, tiled_mma, write, read, sliced, g2s.value.tiled_copy)
    return OperandChoices(x, g2s, s2r, smem)


def vector_access(x: OperandTile, copy: VectorCopy) -> Access:
    """Return the addresses that the lanes of each store to shared memory have."""
    first = by_warp(vectors(copy.threads, copy.values, x.extents)[..., 0])
    source = source_bytes(x, first) if copy.bypasses_l1 else None
    return Access(first, copy.bits // 8, at_once=len(first), source_bytes=source)


def source_bytes(x: OperandTile, coordinates: Coordinates) -> Coordinates:
    """Return where elements of a tile lie in global memory; each row begins at a line."""
    along, across = along_and_across(coordinates, x.extents, x.major_mode)
    row_bytes = round_up(x.extents[x.major_mode] * x.dtype.bytes, LINE_BYTES)
    return across * row_bytes + along * x.dtype.bytes


def write_access(x: OperandTile, copy: VectorCopy, tiled_mma: TiledMma) -> AccessOf:
    """Return the addresses of the compiled stores: the compiler may merge those of `vector_access`."""
    plain = vector_access(x, copy)

    def of(layout: LayoutExpr) -> Access:
        if not copy.joins(x.dtype, tiled_mma):
            return plain
        first, lengths = joined(copy.threads, copy.values, layout, x.extents, x.dtype.bits)
        return Access(by_warp(first), lengths[0] * x.dtype.bytes) if len(set(lengths)) == 1 else plain

    return of


def fragment_access(x: OperandTile, s2r: FragmentCopy, tiled_mma: TiledMma) -> Access:
    """Return the addresses of the lanes of each fragment load: for ldmatrix, one lane per row."""
    loads = s2r.table(x.operand, x.extents, x.dtype, tiled_mma)
    return Access(loads.addressed, loads.access_bytes)


def read_access(x: OperandTile, s2r: FragmentCopy, tiled_mma: TiledMma, of_chosen: Access) -> Access | AccessOf:
    """Return the same for any layout: plain loads are as wide as the runs along K that it keeps contiguous.

    If the spec requests no layout, all compared layouts keep as many together as the chosen loads need.
    """

    def plain(loads: PlainLoads) -> Access | AccessOf:
        wide = cache(lambda bits: fragment_access(x, replace(loads, bits=bits), tiled_mma))
        return lambda layout: wide(min(loads.bits, contiguity(layout, x.extents, LAST_MODE) * x.dtype.bits))

    def by_ldmatrix(_: LdmatrixLoads) -> Access | AccessOf:
        return of_chosen

    return s2r.by_kind(ldmatrix=by_ldmatrix, plain=plain) if x.requested else of_chosen
