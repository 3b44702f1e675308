"""Rule for shared memory that wgmma reads through a descriptor: a wgmma layout that boxes can write.

A bulk tensor copy writes rows of 128, 64, 32 or 16 bytes, swizzled as wgmma reads them: both support the same layouts
(`cutegen/hardware/gmma_layouts.py`). The widest rows need the fewest copies; none has bank conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutegen.algebra import ComposedLayout, LayoutExpr, tile_to_shape
from cutegen.errors import SpecError
from cutegen.hardware import Instruction, MmaAtom
from cutegen.hardware.gmma_layouts import ATOM_ROWS, VECTOR_BYTES, GmmaLayout, gmma_layouts
from cutegen.hardware.matrix_descriptor import NoDescriptorError, operand_descriptors
from cutegen.plan.geometry.access import Coordinates
from cutegen.plan.geometry.smem_candidates import rows_of
from cutegen.plan.rules.bulk_boxes import full_lines, is_requested, swizzle_fix
from cutegen.plan.rules.smem import Access, SmemRanking
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.fragments import ByDescriptor, Fragments
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.smem import SmemCandidate
from cutegen.spec import GemmSpec
from cutegen.spec.families import family_with
from cutegen.support.words import extents, plural


@dataclass(frozen=True, slots=True)
class _Option:
    """One of wgmma's layouts as boxes write it: each box is all rows of the tile, one row of the layout's wide."""

    layout: GmmaLayout
    x: OperandTile

    @property
    def box(self) -> LayoutExpr:
        """A box: (X, K) -> offset in elements."""
        x, width = self.x, self.layout.width(self.x.dtype.bits)
        affine = rows_of(x.extents[1 - x.major_mode], width, x.major_mode)
        swizzle = self.layout.mode.swizzle(x.dtype.bits)
        return affine if swizzle is None else ComposedLayout(swizzle, affine)

    @property
    def tile(self) -> LayoutExpr:
        """The boxes side by side: (X, K) -> offset in elements."""
        return tile_to_shape(self.box, self.x.extents)

    @property
    def boxes(self) -> int:
        """Number of boxes of the tile."""
        return self.x.extents[self.x.major_mode] // self.layout.width(self.x.dtype.bits)

    def refusal(self, atom: MmaAtom) -> str:
        """Return why no descriptor describes it, or nothing: an instruction's rows may end within a row of boxes."""
        try:
            operand_descriptors(self.tile, self.x.major_mode, self.x.dtype.bytes, _rows(self.x, atom))
        except NoDescriptorError as error:
            return f"no matrix descriptor: {error}"
        return ""

    def candidate(self) -> SmemCandidate:
        """Return its row in the ranking: the writes of the copies, and one read by the tensor core."""
        x = self.x
        return SmemCandidate(
            name=self.layout.name,
            atom=self.box,
            swizzle=self.layout.mode.swizzle(x.dtype.bits),
            pad_elems=0,
            tile_bytes=x.extents[0] * x.extents[1] * x.dtype.bytes,
            write=full_lines(x),
            read=Access(core_matrices(x), VECTOR_BYTES).count(self.tile, x.dtype.bytes),
        )


def core_matrices(x: OperandTile) -> Coordinates:
    """Elements that begin the rows of each core matrix, int64[matrix, 1, row], in column-major coordinates of the tile.

    A core matrix is what the tensor core reads from shared memory at once, 8 rows of 16 bytes along the contiguous mode
    (PTX ISA, "Shared Memory Matrix Layout").
    """
    along, across = x.extents[x.major_mode], x.extents[1 - x.major_mode]
    begin, row = np.arange(0, along, VECTOR_BYTES // x.dtype.bytes), np.arange(across)
    strides = (1, x.extents[0]) if x.major_mode == 0 else (x.extents[0], 1)
    table: Coordinates = begin[:, None] * strides[0] + row * strides[1]  # [vector along, row across]
    return table.reshape(-1, 1, ATOM_ROWS)


def choose_described(spec: GemmSpec, x: OperandTile, mma: MmaPlan) -> tuple[Choice[SmemRanking], Choice[Fragments]]:
    """Choose the widest layout that tiles the operand, or the one that the spec requests, and its descriptor.

    Raises SpecError if the tile has none, or the spec requests one without a descriptor or that no box writes.
    """
    fitting = tuple(_Option(layout, x) for layout in gmma_layouts(x.extents, x.major_mode, x.dtype.bits))
    reasons = {option.layout.name: option.refusal(mma.atom) for option in fitting}
    options = tuple(option for option in fitting if not reasons[option.layout.name])
    if not options:
        raise spec.error(
            "tile.cta",
            found=f"{extents(x.extents)} {x.dtype.name} for {x.name.upper()}",
            expected=f"rows of a multiple of {VECTOR_BYTES} bytes along {x.major}, and {ATOM_ROWS} or more of them: "
            "the layouts of a matrix descriptor",
        )
    asked = _asked(spec, x, options, mma.atom)
    chosen = asked or options[0]
    rows = tuple(option.candidate() for option in options)
    why = f"{_copies(chosen.boxes)} of rows of {chosen.layout.mode.row_bytes} bytes"
    why += "; the tensor core reads 8 rows of 16 bytes at once, without bank conflicts"
    rejected = tuple(
        Rejected(other.layout.name, reasons[other.layout.name] or _why_not(other, chosen))
        for other in fitting
        if other is not chosen
    )
    smem = Decision(x.smem_key, chosen.layout.name, f"given; {why}" if asked else why, bool(asked), rejected)
    ranking = SmemRanking(chosen.candidate(), rows)
    return Choice(ranking, smem), _described(x, chosen, mma)


def _why_not(other: _Option, chosen: _Option) -> str:
    if other.boxes > chosen.boxes:
        return f"{_copies(other.boxes)} instead of {chosen.boxes}"
    return "not what the spec requests, though it needs fewer copies"


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _described(x: OperandTile, option: _Option, mma: MmaPlan) -> Choice[Fragments]:
    """Return the tile's descriptor, and how often instructions read the tile."""
    m, n, _ = mma.cta_tile
    atom_m, atom_n, _ = mma.atom.shape_mnk
    times = n // atom_n if x.name == "a" else m // atom_m
    first = operand_descriptors(option.tile, x.major_mode, x.dtype.bytes, _rows(x, mma.atom)).first
    layout = option.layout
    source = ByDescriptor(layout=layout, first=first, times=times)
    why = (
        f"wgmma reads {x.name.upper()} from shared memory: no thread loads or holds fragments; "
        f"{plural(times, 'time')} per k-tile"
    )
    return Choice(source, Decision(f"descriptor.{x.name}", f"{layout.name} by matrix descriptor", why))


def _rows(x: OperandTile, atom: MmaAtom) -> int:
    """Rows of the block that one instruction reads."""
    return atom.shape_mnk[0 if x.name == "a" else 1]


def _asked(spec: GemmSpec, x: OperandTile, options: tuple[_Option, ...], atom: MmaAtom) -> _Option | None:
    """Return the option that the spec requests; None if it leaves the layout open."""
    if not x.requested:
        return None
    for option in options:
        if is_requested(spec, x, option.layout.mode.swizzle(x.dtype.bits), option.box):
            return option
    raise _not_described(spec, x, options, atom)


def _not_described(spec: GemmSpec, x: OperandTile, options: tuple[_Option, ...], atom: MmaAtom) -> SpecError:
    """Return the refusal of a layout that no descriptor describes, or that no bulk tensor copy writes."""
    layout = tile_to_shape(x.requested[0].atom, x.extents)
    try:
        operand_descriptors(layout, x.major_mode, x.dtype.bytes, _rows(x, atom))
        reason = "a descriptor describes it, but bulk tensor copies write another layout"
    except NoDescriptorError as error:
        reason = f"no matrix descriptor: {error}"
    fix = swizzle_fix(options[0].layout.mode.swizzle(x.dtype.bits))
    other = family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR)
    return spec.error(
        x.smem_key,
        found=f"{x.requested[0].name}: {reason}",
        expected=f"one for both wgmma and tensor maps: {', '.join(option.layout.name for option in options)}",
        fix=f'{fix}; family = "{other}" loads fragments from any layout of boxes',
    )
