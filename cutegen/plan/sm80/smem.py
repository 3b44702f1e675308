"""Rule for shared memory: every swizzle, pad and plain layout of a tile, ranked by the wavefronts of its writes and reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cutegen.algebra import (
    ComposedLayout,
    Layout,
    LayoutExpr,
    Swizzle,
    format_layout,
    ideal_wavefronts,
    inner_layout,
    leaves,
    modes,
    offsets,
    parse_layout,
    size,
    tile_to_shape,
    wavefronts,
)
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import SmemCandidate, SmemTile, Wavefronts
from cutegen.plan.sm80.access import Coordinates
from cutegen.plan.text import extents
from cutegen.spec import GemmSpec, SmemLayout

VECTOR_ELEMS = 8
ATOM_ROWS = 8
ATOM_WIDTHS_ELEMS = (64, 32, 16, 8)
PADS_ELEMS = range(VECTOR_ELEMS, 64, VECTOR_ELEMS)
LINE_BYTES = 128


@dataclass(frozen=True, slots=True)
class Access:
    """One kind of access to a tile: `coordinates[instruction, warp, lane]` of the first element each lane touches."""

    coordinates: Coordinates
    bytes: int

    def count(self, layout: LayoutExpr, element_bytes: int) -> Wavefronts:
        """Wavefronts of the whole tile, every instruction of every warp."""
        lanes = self.coordinates.shape[-1]
        accesses = self.coordinates.size // lanes
        predicted = int(wavefronts(offsets(layout)[self.coordinates] * element_bytes, self.bytes).sum())
        return Wavefronts(ideal=accesses * ideal_wavefronts(lanes, self.bytes), predicted=predicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemRequest:
    """What a shared-memory tile is for: its extents, its contiguous mode, and how it is written and read."""

    key: str
    tile: tuple[int, int]
    major_mode: int
    element_bytes: int
    write: Access
    read: Access


@dataclass(frozen=True, slots=True)
class SmemRanking:
    """The layout that was taken, and every layout that was compared, best first."""

    chosen: SmemCandidate
    rows: tuple[SmemCandidate, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to lay out a tile, not yet measured: `atom` is repeated over the tile."""

    atom: LayoutExpr
    swizzle: Swizzle | None = None
    pad_elems: int = 0

    @property
    def name(self) -> str:
        """As the ranking prints it."""
        if self.swizzle is not None:
            rows = extents(size(part) for part in modes(inner_layout(self.atom)))
            return f"Swizzle<{self.swizzle.bits},{self.swizzle.base},{self.swizzle.shift}> on {rows}"
        return f"pad {self.pad_elems}" if self.pad_elems else f"plain {format_layout(self.atom)}"


def requested_shape(
    spec: GemmSpec, key: str, asked: SmemLayout | Literal[False] | None, tile: tuple[int, int], major_mode: int
) -> Shape | None:
    """The layout that the spec writes down, checked against the tile; None when it leaves the choice open.

    A swizzle alone does not say how wide its atom is; then one candidate atom stands for all, and `rank` picks among them.
    """
    if not isinstance(asked, SmemLayout):
        return None
    if asked.pad is not None:
        return Shape(_padded(tile, major_mode, asked.pad), pad_elems=asked.pad)
    if asked.layout is not None:
        return _given_layout(spec, key, asked.layout, tile, major_mode)
    if asked.swizzle is not None:
        shapes = list(_swizzled(tile, major_mode, Swizzle(*asked.swizzle)))
        if asked.swizzle[1] < 3:
            b, m, s = asked.swizzle
            raise spec.error(
                f"{key}.swizzle",
                found=f"[{b}, {m}, {s}]: base {m} keeps {2**m} elements, {2 ** (m + 1)} bytes, together",
                expected="a base of at least 3: ldmatrix rows and 16-byte copies are 8 elements of 16 bits",
                fix=f"[{b}, 3, {s}]",
            )
        if not shapes:
            raise spec.error(
                f"{key}.swizzle",
                found=f"{list(asked.swizzle)}: a period of {2 ** sum(asked.swizzle)} elements",
                expected=f"a period that divides the tile of {extents(tile)} = {tile[0] * tile[1]} elements",
                fix="[3, 3, 3], [2, 3, 3] and [1, 3, 3] suit rows of 64, 32 and 16 elements",
            )
        return shapes[0]
    return None


def _given_layout(spec: GemmSpec, key: str, text: str, tile: tuple[int, int], major_mode: int) -> Shape:
    atom = parse_layout(text)
    try:
        layout = tile_to_shape(atom, tile)
    except ValueError as error:
        raise spec.error(
            f"{key}.layout",
            found=f'"{text}": {error}',
            expected=f"an atom that divides the operand's tile {extents(tile)}",
        ) from error
    table = offsets(layout)
    if len(np.unique(table)) != len(table):
        raise spec.error(
            f"{key}.layout",
            found=f'"{text}", which puts two elements of the tile {extents(tile)} at one offset',
            expected="one offset for each element",
        )
    inner = offsets(inner_layout(layout))
    if isinstance(atom, ComposedLayout) and int(table.max()) > int(inner.max()):
        raise spec.error(
            f"{key}.layout",
            found=f'"{text}": the swizzle leads to offset {int(table.max())}, past the tile\'s last {int(inner.max())}',
            expected="a swizzle that permutes the tile's own offsets",
        )
    return Shape(atom, swizzle=atom.outer if isinstance(atom, ComposedLayout) else None)


def _padded(tile: tuple[int, int], major_mode: int, pad: int) -> Layout:
    pitch = tile[major_mode] + pad
    return Layout(tile, (pitch, 1)) if major_mode == 1 else Layout(tile, (1, pitch))


def _atoms(tile: tuple[int, int], major_mode: int) -> Iterator[Layout]:
    """Atoms of 8 rows, widest first: (8, w):(w, 1), or its mirror for a tile that is contiguous along mode 0."""
    for width in ATOM_WIDTHS_ELEMS:
        if tile[major_mode] % width == 0 and tile[1 - major_mode] % ATOM_ROWS == 0:
            yield Layout((ATOM_ROWS, width), (width, 1)) if major_mode == 1 else Layout((width, ATOM_ROWS), (1, width))


def _swizzled(tile: tuple[int, int], major_mode: int, swizzle: Swizzle) -> Iterator[Shape]:
    period = 2 ** (swizzle.bits + swizzle.base + abs(swizzle.shift))
    for atom in _atoms(tile, major_mode):
        if tile[0] * tile[1] % period == 0:
            yield Shape(ComposedLayout(swizzle, atom), swizzle=swizzle)


def _all_shapes(tile: tuple[int, int], major_mode: int) -> Iterator[Shape]:
    """What the ranking compares. Swizzle<B,M,S> keeps 2^M elements together; M = 3 is the 16 bytes of a vector."""
    yield Shape(_padded(tile, major_mode, 0))
    yield from (Shape(_padded(tile, major_mode, pad), pad_elems=pad) for pad in PADS_ELEMS)
    for i, atom in enumerate(_atoms(tile, major_mode)):
        atom_bits = size(atom).bit_length() - 1
        for base in (3, 4):
            for shift in range(1, atom_bits - base):
                for bits in range(1, min(shift, atom_bits - base - shift) + 1):
                    # Narrower atoms than the widest are listed with CuTe's own swizzles only: (B,3,3).
                    if i == 0 or (base, shift) == (3, 3):
                        yield Shape(
                            ComposedLayout(Swizzle(bits, base, shift), atom), swizzle=Swizzle(bits, base, shift)
                        )


def choose_smem(spec: GemmSpec, request: SmemRequest, asked: SmemLayout | Literal[False] | None) -> Choice[SmemRanking]:
    """The layout with the fewest wavefronts, written and read once, then the fewest bytes, then the widest rows."""
    rows = tuple(sorted((_measure(request, s) for s in _all_shapes(request.tile, request.major_mode)), key=_order))
    requested = requested_shape(spec, request.key, asked, request.tile, request.major_mode)
    if requested is None:
        chosen, why = rows[0], _why(rows[0])
    else:
        same = [requested]
        if isinstance(asked, SmemLayout) and asked.swizzle is not None:
            same = list(_swizzled(request.tile, request.major_mode, Swizzle(*asked.swizzle)))
        chosen = min((_measure(request, shape) for shape in same), key=_order)
        why = f"given; {_why(chosen)}"
    rejected = tuple(Rejected(row.name, _against(row, chosen)) for row in rows if row.name != chosen.name)
    decision = Decision(request.key, chosen.name, why, given=requested is not None, rejected=rejected)
    return Choice(SmemRanking(chosen, rows), decision)


def lay_out(ranking: SmemRanking, tile: tuple[int, int], stages: int | None) -> SmemTile:
    """The chosen atom repeated over the tile, with a PIPE mode where there are stages."""
    shape = tile if stages is None else (*tile, stages)
    return SmemTile(
        layout=tile_to_shape(ranking.chosen.atom, shape),
        chosen=ranking.chosen,
        bytes=ranking.chosen.tile_bytes * (stages or 1),
        ranking=ranking.rows,
    )


def _measure(request: SmemRequest, shape: Shape) -> SmemCandidate:
    layout = tile_to_shape(shape.atom, request.tile)
    return SmemCandidate(
        name=shape.name,
        atom=shape.atom,
        swizzle=shape.swizzle,
        pad_elems=shape.pad_elems,
        tile_bytes=_span_elems(layout) * request.element_bytes,
        write=request.write.count(layout, request.element_bytes),
        read=request.read.count(layout, request.element_bytes),
    )


def _span_elems(layout: LayoutExpr) -> int:
    """Elements from one repetition of the tile to the next, padding behind the last row included."""
    inner = inner_layout(layout)
    return max(extent * stride for extent, stride in leaves(inner.shape, inner.stride))


def _order(row: SmemCandidate) -> tuple[int, int, int, int, int]:
    swizzle = row.swizzle or Swizzle(0, 0, 0)
    width = max(size(part) for part in modes(inner_layout(row.atom)))
    return row.wavefronts, row.tile_bytes, -width if row.swizzle else 0, swizzle.bits, swizzle.base + swizzle.shift


def _why(row: SmemCandidate) -> str:
    return f"writes {row.write.ways:.3g}-way, reads {row.read.ways:.3g}-way, {row.tile_bytes:,} bytes a tile"


def _against(row: SmemCandidate, chosen: SmemCandidate) -> str:
    reasons = []
    if row.wavefronts != chosen.wavefronts:
        reasons.append(f"writes {row.write.ways:.3g}-way, reads {row.read.ways:.3g}-way")
    if row.tile_bytes != chosen.tile_bytes:
        reasons.append(f"{row.tile_bytes:,} bytes against {chosen.tile_bytes:,}")
    return "; ".join(reasons) or "as good; wider rows and fewer swizzled bits go first"
