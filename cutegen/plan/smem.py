"""Rule for shared memory: swizzles, pads and the plain layout, ranked by the wavefronts of their writes and reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cutegen.algebra import (
    LayoutExpr,
    Swizzle,
    ideal_wavefronts,
    inner_layout,
    leaves,
    merged_phases,
    modes,
    offsets,
    size,
    tile_to_shape,
    wavefronts,
)
from cutegen.plan.access import Coordinates
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import SmemCandidate, SmemTile, Wavefronts
from cutegen.plan.operand import OperandTile
from cutegen.plan.shapes import Shape, all_shapes


@dataclass(frozen=True, slots=True)
class Access:
    """One kind of access to a tile: `coordinates[instruction, warp, lane]` of the first element each lane touches.

    `shares` says that it is a load whose lanes may want the same, so that phases merge.
    """

    coordinates: Coordinates
    bytes: int
    shares: bool = False

    def count(self, layout: LayoutExpr, element_bytes: int) -> Wavefronts:
        """Wavefronts of the whole tile, every instruction of every warp."""
        lanes = self.coordinates.shape[-1]
        accesses = self.coordinates.size // lanes
        placed = offsets(layout)[self.coordinates] * element_bytes
        merged = int(merged_phases(placed, self.bytes).sum()) if self.shares else 0
        predicted = int(wavefronts(placed, self.bytes).sum()) - merged
        return Wavefronts(ideal=accesses * ideal_wavefronts(lanes, self.bytes) - merged, predicted=predicted)


AccessOf = Callable[[LayoutExpr], Access]


@dataclass(frozen=True, slots=True)
class SmemRanking:
    """The layout that was taken, and every layout that was compared, best first."""

    chosen: SmemCandidate
    rows: tuple[SmemCandidate, ...]


def choose_smem(x: OperandTile, write: Access, read: Access) -> Choice[SmemRanking]:
    """The layout with the fewest wavefronts, written once and read once, then the fewest bytes, then the simplest."""
    return rank_shapes(x, tuple(all_shapes(x.extents, x.major_mode, x.dtype.bytes)), x.requested, write, read)


def rank_shapes(
    x: OperandTile,
    shapes: tuple[Shape, ...],
    requested: tuple[Shape, ...],
    write: Access | Wavefronts,
    read: Access | AccessOf | Wavefronts,
) -> Choice[SmemRanking]:
    """The best of `requested`, or of all `shapes` when the spec leaves them open.

    Known wavefronts hold for any; how a tile is read may depend on its layout.
    """

    def ranked(shapes: tuple[Shape, ...]) -> tuple[SmemCandidate, ...]:
        return tuple(sorted((_measure(x, shape, write, read) for shape in shapes), key=_order))

    rows = ranked(shapes)
    given = bool(requested)
    chosen = ranked(requested)[0] if given else rows[0]
    why = f"given; {_ways(chosen)}" if given else f"{_ways(chosen)}, {chosen.tile_bytes:,} bytes a tile"
    rejected = tuple(Rejected(row.name, _against(row, chosen)) for row in rows if row.name != chosen.name)
    return Choice(SmemRanking(chosen, rows), Decision(x.smem_key, chosen.name, why, given=given, rejected=rejected))


def lay_out(ranking: SmemRanking, tile: tuple[int, int], stages: int | None) -> SmemTile:
    """The chosen atom repeated over the tile, with a PIPE mode where there are stages."""
    shape = tile if stages is None else (*tile, stages)
    return SmemTile(
        layout=tile_to_shape(ranking.chosen.atom, shape),
        chosen=ranking.chosen,
        bytes=ranking.chosen.tile_bytes * (stages or 1),
        ranking=ranking.rows,
    )


def _measure(
    x: OperandTile, shape: Shape, write: Access | Wavefronts, read: Access | AccessOf | Wavefronts
) -> SmemCandidate:
    layout = tile_to_shape(shape.atom, x.extents)

    def count(access: Access | AccessOf | Wavefronts) -> Wavefronts:
        access = access(layout) if callable(access) else access
        return access.count(layout, x.dtype.bytes) if isinstance(access, Access) else access

    return SmemCandidate(
        name=shape.name,
        atom=shape.atom,
        swizzle=shape.swizzle,
        pad_elems=shape.pad_elems,
        tile_bytes=_span_elems(layout) * x.dtype.bytes,
        write=count(write),
        read=count(read),
    )


def _span_elems(layout: LayoutExpr) -> int:
    """Elements from one repetition of the tile to the next, padding behind the last row included."""
    inner = inner_layout(layout)
    return max(extent * stride for extent, stride in leaves(inner.shape, inner.stride))


def _order(row: SmemCandidate) -> tuple[int, int, bool, int, int, int]:
    swizzle = row.swizzle or Swizzle(0, 0, 0)
    width = max(
        size(part) for part in modes(inner_layout(row.atom)) if 1 in (d for _, d in leaves(part.shape, part.stride))
    )
    ties = row.swizzle is not None, -width, swizzle.bits, swizzle.base + swizzle.shift
    return row.wavefronts, row.tile_bytes, *ties


def _ways(row: SmemCandidate) -> str:
    return f"writes {row.write.ways:.3g}-way, reads {row.read.ways:.3g}-way"


def _against(row: SmemCandidate, chosen: SmemCandidate) -> str:
    reasons = [_ways(row)] if row.wavefronts != chosen.wavefronts else []
    if row.tile_bytes != chosen.tile_bytes:
        reasons.append(f"{row.tile_bytes:,} bytes against {chosen.tile_bytes:,}")
    if _order(row) < _order(chosen):  # only a layout that the spec insists on is not the best
        return f"{'; '.join(reasons) or 'as good'}; not what the spec asks for"
    return "; ".join(reasons) or "as good; no swizzle, wider rows, fewer swizzled bits go first"
