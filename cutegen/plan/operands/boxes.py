"""Rules for bulk tensor copies: the box that one copy moves, and its place in shared memory.

A tensor map writes a box's rows one after the other and swizzles them over 128, 64 or 32 bytes, or not at all. A tile
is a row of boxes along the contiguous mode, each as wide as its swizzle; pads are impossible. Source: CUDA Driver API,
cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cutegen.algebra import (
    ComposedLayout,
    LayoutExpr,
    Swizzle,
    TiledMma,
    inner_layout,
    modes,
    offsets,
    size,
    tile_to_shape,
)
from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES, MAX_BOX_ELEMS, STRIDE_MULTIPLE_BYTES
from cutegen.hardware import (
    BULK_TENSOR,
    TMA_LOAD,
    TMA_LOAD_MULTICAST,
    TMA_LOAD_MULTICAST_OF_PAIR,
    TMA_LOAD_OF_PAIR,
    BulkTensorAtom,
    Instruction,
)
from cutegen.hardware.units import BULK_ALIGN_BYTES, LINE_BYTES
from cutegen.plan.operands import smem
from cutegen.plan.smem_layouts import VECTOR_BYTES, LayoutOption, looks_like_bytes, rows_of, rows_of_tile
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.operand import OperandTile, align_bytes
from cutegen.plan.values.smem import Wavefronts
from cutegen.spec import MODES, GemmSpec, SmemLayout
from cutegen.spec.families import family_with
from cutegen.support.words import extents

SWIZZLE_SHIFT = 3
SWIZZLE_BITS = (3, 2, 1)
"""Swizzle<B,4,3> on byte addresses, B for rows of 128, 64 and 32 bytes (`CU_TENSOR_MAP_SWIZZLE_128B` and its like)."""


def check_align(spec: GemmSpec, name: str, fix: str) -> None:
    """Raise SpecError, with `fix`, if no tensor map can describe operand `name`."""
    align = align_bytes(spec.problem.operand(name))
    if align < STRIDE_MULTIPLE_BYTES:
        raise spec.error(
            f"problem.{name}.align",
            found=str(align),
            expected=f"a multiple of {STRIDE_MULTIPLE_BYTES}: addresses and strides of a tensor map are",
            fix=fix,
        )


def check_begins(spec: GemmSpec, name: str, fix: str) -> None:
    """Raise SpecError, with `fix`, if packed groups begin anywhere along the contiguous mode of A or B.

    Parts of K do not count: what a box has before one becomes 0.
    """
    groups, major = spec.problem.groups, spec.problem.operand(name).major
    if groups is None or groups.of == "k" or groups.of != major or not groups.value.packs(MODES[name]):
        return
    raise spec.error(
        f"problem.{name}.major",
        found=f'"{major}", along which groups begin anywhere',
        expected=f'"k": boxes begin at multiples of {BOX_MULTIPLE_BYTES} bytes of the contiguous mode',
        fix=fix,
    )


def check_rows(spec: GemmSpec, x: OperandTile) -> None:
    """Raise SpecError if the tile has more rows than a box."""
    if x.extents[1 - x.major_mode] > MAX_BOX_ELEMS:
        raise spec.error(
            "tile.cta",
            found=f"{extents(x.extents)} for {x.name.upper()}",
            expected=f"at most {MAX_BOX_ELEMS} rows, the longest box of a bulk tensor copy",
        )


def rank_boxes(
    spec: GemmSpec,
    x: OperandTile,
    tiled_mma: TiledMma,
    write: smem.Access | Wavefronts,
    read: smem.Access | Wavefronts,
    *,
    each: str = "tile",
) -> Choice[smem.SmemRanking]:
    """Rank the boxes that hold the tile, and reject those that the consumer threads cannot partition.

    Raises SpecError if there are none, or none that the spec requests.
    """
    options = tuple(box_options(x))
    if not options:
        raise spec.error(
            "tile.cta",
            found=f"{extents(x.extents)} {x.dtype.name} for {x.name.upper()}",
            expected=f"whole boxes along {x.major}: rows of a multiple of {VECTOR_BYTES} bytes",
            fix="epilogue.smem = false" if x.name == "c" else "",
        )
    requested = requested_boxes(spec, x, options)
    shares = smem.shares_of(tiled_mma, x)
    hinders = {option: smem.uneven(x, option, shares) for option in options}
    possible = tuple(option for option in options if not hinders[option])
    if not possible:
        raise spec.error(
            "tile.cta",
            found=f"{extents(x.extents)} for {x.name.upper()}: for all its boxes, {hinders[options[0]]}",
            expected=f"at most {MAX_BOX_ELEMS} along {x.major}, or 1, 2, 4 or 8 warps along it",
        )
    if requested and hinders[requested[0]]:
        raise smem.not_addressable(spec, x, requested[0], hinders[requested[0]], fix=swizzle_fix(possible[0].swizzle))
    choice = smem.rank_options(x, possible, requested, write, read, each=each)
    return smem.also_rejected(choice, (Rejected(option.name, why) for option, why in hinders.items() if why))


def full_lines(x: OperandTile) -> Wavefronts:
    """Return the cost of the copies themselves: they write and read full rows of banks."""
    lines = -(-x.extents[0] * x.extents[1] * x.dtype.bytes // LINE_BYTES)
    return Wavefronts(lines, lines)


def box_options(x: OperandTile) -> Iterator[LayoutOption]:
    """Yield the boxes that tile the operand, all of its rows in each: widest swizzle first, the plain one last."""
    vector_elems = VECTOR_BYTES // x.dtype.bytes
    along, across = x.extents[x.major_mode], x.extents[1 - x.major_mode]
    base = vector_elems.bit_length() - 1
    for bits in SWIZZLE_BITS:
        width = vector_elems << bits
        if along % width == 0 and across * width % (1 << (bits + base + SWIZZLE_SHIFT)) == 0:
            swizzle = Swizzle(bits, base, SWIZZLE_SHIFT)
            yield LayoutOption(ComposedLayout(swizzle, rows_of(across, width, x.major_mode)), swizzle=swizzle)
    if along <= MAX_BOX_ELEMS and along % vector_elems == 0:
        yield LayoutOption(rows_of_tile(x.extents, x.major_mode))


def requested_boxes(spec: GemmSpec, x: OperandTile, options: tuple[LayoutOption, ...]) -> tuple[LayoutOption, ...]:
    """Return those that the spec requests, none if it leaves them open. Raises SpecError for any but `options`."""
    if not x.requested:
        return ()
    found = tuple(option for option in options if is_requested(spec, x, option.swizzle, option.atom))
    if not found:
        offered = [option.swizzle for option in options]
        raise spec.error(
            x.smem_key,
            found=x.requested[0].name,
            expected=f"what a tensor map can write: {', '.join(option.name for option in options)}",
            fix=looks_like_bytes(x.requested[0].swizzle, x.dtype.bytes, offered.__contains__)
            or swizzle_fix(offered[0]),
        )
    return found


def is_requested(spec: GemmSpec, x: OperandTile, swizzle: Swizzle | None, atom: LayoutExpr) -> bool:
    """Return whether the spec allows a tile of boxes `atom`: the swizzle that it gives, or the offsets of its layout.

    A `swizzle` leaves the width and the order of its atoms open, and one of no bits means none. A `layout` or a `pad`
    gives the offset of every element.
    """
    given = spec.epilogue.smem if x.name == "c" else getattr(spec.smem, x.name)
    assert isinstance(given, SmemLayout)
    if given.swizzle is not None:
        return swizzle == (Swizzle(*given.swizzle) if given.swizzle[0] else None)
    wanted = tile_to_shape(x.requested[0].atom, x.extents)
    return np.array_equal(offsets(tile_to_shape(atom, x.extents)), offsets(wanted))


def swizzle_fix(swizzle: Swizzle | None) -> str:
    """Return how a spec requests a swizzle that is possible; if that is none, it leaves the key out."""
    return "leave it out" if swizzle is None else f"swizzle = [{swizzle.bits}, {swizzle.base}, {swizzle.shift}]"


def choose_bulk_copy(
    spec: GemmSpec, x: OperandTile, atom: LayoutExpr, shares: int = 1, *, of_pair: bool = False
) -> Choice[BulkTensorCopy]:
    """Return the copies of one k-tile: the boxes of the layout's atom, or a CTA's share of their rows.

    Those `of_pair` arrive at a barrier of the pair's CTA that multiplies.
    """
    given = spec.g2s.of(x.name)
    for key, found in (("bits", given.bits), ("threads", given.threads)):
        if found is not None:
            raise spec.error(
                f"g2s.{x.name}.{key}",
                found=str(found),
                expected="nothing: one thread issues copies of whole boxes",
                fix="leave it out",
            )
    if given.op not in (None, BULK_TENSOR):
        raise spec.error(
            f"g2s.{x.name}.op",
            found=f'"{given.op}"',
            expected=f'"{BULK_TENSOR}", the copy of family {spec.family}',
            fix=f'family = "{family_with(Instruction.CP_ASYNC)}" has cp.async and plain copies',
        )
    copy = bulk_copy(x, load_of(shares, of_pair=of_pair), atom)
    if shares > 1:
        copy = _shared(spec, x, copy, shares)
    chosen = f"{BULK_TENSOR}, {'a box' if copy.boxes == 1 else f'{copy.boxes} boxes'} of {extents(copy.box)}"
    why = (
        f"one thread issues a copy of {copy.box[0] * x.dtype.bytes} contiguous bytes of {copy.box[1]} rows, which "
        "fills elements outside the matrix with zeros"
    )
    if shares > 1:
        chosen += f" to {shares} CTAs"
        why += f"; each of {shares} CTAs of a cluster copies its share of the tile to all of them"
    if of_pair:
        why += "; its bytes arrive at a barrier of the CTA that multiplies for the pair"
    rejected = (Rejected("cp.async", "every thread would use registers and instructions for addresses and edges"),)
    return Choice(copy, Decision(f"g2s.{x.name}", chosen, why, given=given.op is not None, rejected=rejected))


def load_of(ctas: int, *, of_pair: bool) -> BulkTensorAtom:
    """Return the instruction whose boxes arrive in so many CTAs of a cluster.

    Those `of_pair` arrive at a barrier of the pair's CTA that multiplies.
    """
    if of_pair:
        return TMA_LOAD_OF_PAIR if ctas == 1 else TMA_LOAD_MULTICAST_OF_PAIR
    return TMA_LOAD if ctas == 1 else TMA_LOAD_MULTICAST


def _shared(spec: GemmSpec, x: OperandTile, copy: BulkTensorCopy, shares: int) -> BulkTensorCopy:
    """Return each CTA's share of the rows. Raises SpecError if a share would begin where no box may.

    It may begin within the swizzle's period of 8 rows: hardware swizzles by the address.
    """
    width, rows = copy.box
    if copy.together > 1:
        raise spec.error(
            "schedule.cluster",
            found=f"{shares} CTAs that share one copy of {copy.together} boxes of {x.operand}",
            expected="a copy for each CTA: it takes the columns of both members of each pair at once",
            fix="use a smaller cluster, or a wider tile.cta",
        )
    together = max(1, BULK_ALIGN_BYTES // (width * x.dtype.bytes))
    if rows % (shares * together):
        of_rows = "" if together == 1 else f": shares are multiples of {together} rows"
        raise spec.error(
            "schedule.cluster",
            found=f"{shares} CTAs that share boxes of {rows} rows of {x.operand}",
            expected=f"a divisor of {rows // together}{of_rows}",
            fix="use a smaller cluster, or another tile.cta",
        )
    return replace(copy, box=(width, rows // shares), shares=shares)


def bulk_copy(x: OperandTile, instruction: BulkTensorAtom, atom: LayoutExpr) -> BulkTensorCopy:
    """Return the copy of the whole tile if its shared layout repeats `atom`, which is one box."""
    shape = tuple(map(size, modes(inner_layout(atom))))
    box = (shape[x.major_mode], shape[1 - x.major_mode])
    bits = atom.outer.bits if isinstance(atom, ComposedLayout) else 0
    boxes = x.extents[x.major_mode] // box[0]
    together = boxes if x.run_elems == box[0] else 1
    return BulkTensorCopy(instruction, box, boxes, bits, modes=x.map_modes, together=together)
