"""Rules for shared memory: layouts ranked by the wavefronts of their accesses, and the boxes that bulk copies fill."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cutegen import algebra, hardware
from cutegen.algebra import (
    ComposedLayout,
    Layout,
    LayoutExpr,
    Swizzle,
    TiledMma,
    inner_layout,
    offsets,
    size,
    tile_to_shape,
)
from cutegen.contract.launch import OPERANDS
from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES, MAX_BOX_ELEMS, STRIDE_MULTIPLE_BYTES
from cutegen.errors import SpecError
from cutegen.hardware import BULK_TENSOR, BulkTensorAtom, DType, dtype, wavefronts
from cutegen.hardware.units import BULK_ALIGN_BYTES, LINE_BYTES
from cutegen.plan.geometry import Coordinates, joined_of
from cutegen.plan.smem_layouts import VECTOR_BYTES, LayoutOption, all_options, looks_like_bytes, rows_of, rows_of_tile
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.operand import OperandTile, SmemCandidate, SmemTile, Wavefronts, align_bytes
from cutegen.plan.values.path import ROWS
from cutegen.spec import MODES, GemmSpec, SmemLayout
from cutegen.spec.families import family_with
from cutegen.spec.values import MOST_STAGES
from cutegen.support.words import extents, plural, round_up

# Rule for shared memory: swizzles, pads and the plain layout, ranked by the wavefronts of their writes and reads.
#
# Copies that bypass L1 write line by line, which costs more than bank conflicts: their wavefronts are counted by line.


TORN = "the swizzle XORs bits in which a thread's own accesses, or stages, differ"
UNEVEN = "the tile is not a multiple of the swizzle's period"
UNDIVIDED = "the blocks of {} and of the layout do not nest"
CUT_SHORT = "the threads of {} do not cover a multiple of the swizzle's period"
JOINED = "one thread reads all of it, and the compiler merges its loads over gaps that are not multiples of 8 bytes"
OUT_OF_ORDER = "a thread's elements are adjacent in another order than along K, and the compiler merges such loads"
JOINED_BYTES = 8
FIXES = {
    JOINED: "use a pad that is a multiple of 8 bytes, or more threads along the operand's mode of mma.threads",
    OUT_OF_ORDER: "keep elements along K in order, or further apart; without the key a layout is chosen",
}
WAY_OUT = "a pad is always possible, and without the key a layout is chosen"


@dataclass(frozen=True, slots=True)
class Access:
    """One kind of access to a tile: `coordinates[instruction, warp, lane]` of the first element of each lane.

    `source_bytes`, for a copy that bypasses L1, are the lanes' addresses in global memory, where each row of the tile
    begins at a line. `shares` marks a load whose lanes may read the same address, so that phases merge. `at_once` is
    the number of a thread's accesses that one copy of the DSL issues; 0 means one by one.
    """

    coordinates: Coordinates
    bytes: int
    shares: bool = False
    at_once: int = 0
    source_bytes: Coordinates | None = None

    def count_by_line(self, layout: LayoutExpr, element_bytes: int) -> Wavefronts | None:
        """Return `count` by lines for a copy that bypasses L1, at best one write per line; None for other accesses."""
        if self.source_bytes is None:
            return None
        placed = offsets(layout)[self.coordinates] * element_bytes
        lines = len(np.unique(self.source_bytes // LINE_BYTES))
        return Wavefronts(lines, int(hardware.line_write_wavefronts(self.source_bytes, placed).sum()))

    def count(self, layout: LayoutExpr, element_bytes: int) -> Wavefronts:
        """Return the wavefronts of the whole tile: every instruction of every warp."""
        lanes = self.coordinates.shape[-1]
        accesses = self.coordinates.size // lanes
        placed, times = hardware.alike(offsets(layout)[self.coordinates] * element_bytes)
        merged = int(hardware.merged_phases(placed, self.bytes) @ times) if self.shares else 0
        predicted = int(wavefronts(placed, self.bytes) @ times) - merged
        return Wavefronts(ideal=accesses * hardware.ideal_wavefronts(lanes, self.bytes) - merged, predicted=predicted)

    def joins_further(self, layout: LayoutExpr, element: DType, k_blocks: int) -> bool:
        """Return whether the compiler would merge a thread's adjacent accesses to one k-block."""
        by_thread = self.coordinates.reshape(len(self.coordinates), -1)  # [instruction, thread]
        elems = self.bytes // element.bytes
        _, lengths = joined_of(by_thread[: len(by_thread) // k_blocks], elems, layout, element.bits)
        return max(lengths) > elems

    def tears(self, layout: LayoutExpr, *, staged: bool) -> bool:
        """Return whether a thread's accesses differ in bits of the offset that they also swizzle.

        Then the offsets of its other accesses are not the first one plus a constant. The DSL slices a swizzled layout
        as if they were: its copies do not compile, or silently access wrong addresses. It handles bits in which all
        threads agree, unless one copy makes those accesses. If the tile is `staged`, the stage is as little known as
        the thread. If a stage's offset swizzles bits in which a thread's accesses differ, and threads differ in
        swizzled bits too, the DSL loses one of the two.
        """
        if not isinstance(layout, ComposedLayout):
            return False
        swizzle = layout.outer
        placed = offsets(inner_layout(layout))[self.coordinates]
        own, together = (
            int(np.bitwise_or.reduce(placed[:count, 0, 0] ^ placed[0, 0, 0])) for count in (len(placed), self.at_once)
        )
        threads = int(np.bitwise_or.reduce(placed[0] ^ placed[0, 0, 0], axis=None))
        stages = int(np.bitwise_or.reduce(np.arange(MOST_STAGES) * algebra.cosize(layout.inner))) if staged else 0
        swizzled = ((1 << swizzle.bits) - 1) << swizzle.base
        differing = (threads | stages) & (swizzled | swizzled << swizzle.shift)
        by_stages = bool(own & stages >> swizzle.shift & swizzled) and bool(threads & swizzled)
        torn = own & own >> swizzle.shift & swizzled if differing else together & together >> swizzle.shift & swizzled
        return by_stages or bool(torn)


AccessOf = Callable[[LayoutExpr], Access]
Shares = dict[str, Callable[[Layout], Layout | None]]
"""The partitioners of a tile by name, each with its partition of a layout; None if the blocks do not nest."""


@dataclass(frozen=True, slots=True)
class SmemRanking:
    """The chosen layout, and every compared layout, best first."""

    chosen: SmemCandidate
    rows: tuple[SmemCandidate, ...]


def choose_smem(
    spec: GemmSpec,
    x: OperandTile,
    tiled_mma: TiledMma,
    write: Access | AccessOf,
    read: Access | AccessOf,
    sliced: tuple[Access | AccessOf, ...],
    copy: algebra.TiledCopy,
    options: Iterable[LayoutOption] | None = None,
) -> Choice[SmemRanking]:
    """Choose the layout with the fewest wavefronts for a write and a read, then the fewest bytes, then the simplest.

    Compare those of `options`, all by default, that the DSL can address for `sliced` accesses, by slicing them for each
    thread. `copy` moves vectors between global memory and the tile. Raises SpecError if the spec requests any other.
    """
    options = tuple(all_options(x.extents, x.major_mode, x.dtype.bytes) if options is None else options)

    def hindered(option: LayoutOption) -> str:
        layout = tile_to_shape(option.atom, x.extents)
        if any(_of(layout, access).tears(layout, staged=staged) for access in sliced):
            return TORN
        if alone and has_gaps(layout, x.dtype.bytes):
            return JOINED
        if by_k_blocks and _of(layout, read).joins_further(layout, x.dtype, _blocks_apart(x, tiled_mma)):
            return OUT_OF_ORDER
        return uneven(x, option, shares)

    shares = {**shares_of(tiled_mma, x), "the copy": copy.shared_out}
    staged = x.name != "c" and spec.tile.stages != 1
    alone = x.name != "c" and by_one_thread(tiled_mma, x)
    by_k_blocks = x.name != "c" and not alone
    hinders = {option: hindered(option) for option in (*options, *x.requested)}
    requested = tuple(option for option in x.requested if not hinders[option])
    if x.requested and not requested:
        why = hinders[x.requested[0]]
        raise not_addressable(spec, x, x.requested[0], why, fix=FIXES.get(why, WAY_OUT))
    choice = rank_options(x, tuple(option for option in options if not hinders[option]), requested, write, read)
    return also_rejected(choice, (Rejected(option.name, hinders[option]) for option in options if hinders[option]))


def _of(layout: LayoutExpr, access: Access | AccessOf) -> Access:
    return access(layout) if callable(access) else access


def _blocks_apart(x: OperandTile, tiled_mma: TiledMma) -> int:
    """Return the parts of a k-tile within which loads may be merged: k-blocks of tensor cores, else the k-tile."""
    return 1 if size(tiled_mma.atom.thr_id) == 1 else x.extents[1] // tiled_mma.tile_of(x.operand)[1]


def by_one_thread(tiled_mma: TiledMma, x: OperandTile) -> bool:
    """Return whether each thread multiplies alone and reads all of A's rows or B's columns, at constant addresses."""
    along = ROWS.index(x.operand)
    return bool(
        tiled_mma.threads == size(tiled_mma.atom_layout) and size(algebra.mode(tiled_mma.atom_layout, along)) == 1
    )


def has_gaps(layout: LayoutExpr, element_bytes: int) -> bool:
    """Return whether elements are separated by small gaps, which LLVM fills when it merges loads."""
    placed = np.sort(offsets(layout)).astype(np.int64) * element_bytes
    return bool(np.any((placed[1:] - placed[:-1] - element_bytes) % JOINED_BYTES))


def shares_of(tiled_mma: TiledMma, x: OperandTile) -> Shares:
    """Return the partition of a layout among the threads that multiply."""
    return {"the tiled MMA": partial(tiled_mma.shared_out, x.operand)}


def uneven(x: OperandTile, option: LayoutOption, shares: Shares) -> str:
    """Return why the DSL cannot partition such a tile among the threads; nothing if it can."""
    layout = tile_to_shape(option.atom, x.extents)
    swizzle = layout.outer if isinstance(layout, ComposedLayout) else Swizzle(0, 0, 0)
    if not _is_even(swizzle, inner_layout(layout)):
        return UNEVEN
    for name, shared_out in shares.items():
        if (share := shared_out(inner_layout(layout))) is None:
            return UNDIVIDED.format(name)
        if not _is_even(swizzle, share):
            return CUT_SHORT.format(name)
    return ""


def not_addressable(spec: GemmSpec, x: OperandTile, option: LayoutOption, why: str, *, fix: str) -> SpecError:
    """Return the refusal of a layout that the spec requests."""
    found = f"{option.name} for a tile of {extents(x.extents)}: {why}"
    return spec.error(x.smem_key, found=found, expected="a layout that the DSL can address", fix=fix)


def also_rejected(choice: Choice[SmemRanking], further: Iterable[Rejected]) -> Choice[SmemRanking]:
    """Return the same ranking with `further` rejected layouts."""
    return replace(choice, decision=replace(choice.decision, rejected=(*choice.decision.rejected, *further)))


def _is_even(swizzle: Swizzle, layout: Layout) -> bool:
    """Return whether each mode is a multiple or a divisor of the swizzle's period. The DSL aborts otherwise."""
    period = 1 << (swizzle.bits + swizzle.base + swizzle.shift)
    spans = [extent * stride for extent, stride in algebra.leaves(layout.shape, layout.stride)]
    return swizzle.bits == 0 or all(span % period == 0 or period % span == 0 for span in spans if span)


def rank_options(
    x: OperandTile,
    options: tuple[LayoutOption, ...],
    requested: tuple[LayoutOption, ...],
    write: Access | AccessOf | Wavefronts,
    read: Access | AccessOf | Wavefronts,
    *,
    each: str = "tile",
) -> Choice[SmemRanking]:
    """Choose the best of `requested`, or of all `options` if the spec leaves them open.

    Given wavefronts apply to any layout; reads may depend on the layout. `each` names what is laid out.
    """

    def ranked(options: tuple[LayoutOption, ...]) -> tuple[SmemCandidate, ...]:
        return tuple(sorted((_measure(x, option, write, read) for option in options), key=_order))

    rows = ranked(options)
    given = bool(requested)
    chosen = ranked(requested)[0] if given else rows[0]
    why = (
        f"given; {_ways(chosen)}{_narrowed(x, chosen)}{_of_bytes(x, chosen)}"
        if given
        else f"{_ways(chosen)}, {chosen.tile_bytes:,} bytes per {each}"
    )
    rejected = tuple(Rejected(row.name, _against(row, chosen)) for row in rows if row.name != chosen.name)
    return Choice(SmemRanking(chosen, rows), Decision(x.smem_key, chosen.name, why, given=given, rejected=rejected))


def _narrowed(x: OperandTile, given: SmemCandidate) -> str:
    """Report that a layout of the spec makes accesses narrower than the operand's alignment allows."""
    kept, widest = x.vector_elems * x.dtype.bytes, min(VECTOR_BYTES, x.align_bytes)
    if kept >= widest:
        return ""
    said = f"; accesses are at most {plural(kept, 'byte')} wide, the run that it keeps contiguous"
    if not given.pad_elems:
        return f"{said}; the operand is aligned to {widest}"
    pad = round_up(given.pad_elems, widest // x.dtype.bytes)
    return f"{said}; pad = {pad} would keep the {widest} that the operand is aligned to"


def _of_bytes(x: OperandTile, given: SmemCandidate) -> str:
    """Report that a swizzle of the spec looks like one of bytes."""
    said = looks_like_bytes(given.swizzle, x.dtype.bytes)
    return f"; {said}" if said else ""


def lay_out(ranking: SmemRanking, tile: tuple[int, int], stages: int | None) -> SmemTile:
    """Return the chosen atom repeated over the tile, with a PIPE mode if there are stages.

    A stage begins at the end of the previous one, padding included. tile_to_shape would interleave stages in the
    padding if they fit there, and fails if their number does not fill it.
    """
    one = tile_to_shape(ranking.chosen.atom, tile)
    layout = one
    if stages is not None:
        inner, stride = inner_layout(one), span_elems(one) if stages > 1 else 0
        layout = algebra.with_inner(one, algebra.make_layout(*algebra.modes(inner), Layout((1, stages), (0, stride))))
    return SmemTile(
        layout=layout,
        chosen=ranking.chosen,
        bytes=ranking.chosen.tile_bytes * (stages or 1),
        ranking=ranking.rows,
    )


def _measure(
    x: OperandTile, option: LayoutOption, write: Access | AccessOf | Wavefronts, read: Access | AccessOf | Wavefronts
) -> SmemCandidate:
    layout = tile_to_shape(option.atom, x.extents)
    written, fetched = (access(layout) if callable(access) else access for access in (write, read))

    def count(access: Access | Wavefronts) -> Wavefronts:
        return access.count(layout, x.dtype.bytes) if isinstance(access, Access) else access

    return SmemCandidate(
        name=option.name,
        atom=option.atom,
        swizzle=option.swizzle,
        pad_elems=option.pad_elems,
        tile_bytes=span_elems(layout) * x.dtype.bytes,
        write=count(written),
        read=count(fetched),
        lines=written.count_by_line(layout, x.dtype.bytes) if isinstance(written, Access) else None,
    )


def span_elems(layout: LayoutExpr) -> int:
    """Return the elements from one repetition of the tile to the next, padding after the last row included."""
    inner = inner_layout(layout)
    widest: int = max(extent * stride for extent, stride in algebra.leaves(inner.shape, inner.stride))
    reached: int = algebra.cosize(inner)
    return max(widest, reached)


def _order(row: SmemCandidate) -> tuple[int, int, bool, int, int, int]:
    swizzle = row.swizzle or Swizzle(0, 0, 0)
    unit_stride = (
        size(part)
        for part in algebra.modes(inner_layout(row.atom))
        if 1 in (d for _, d in algebra.leaves(part.shape, part.stride))
    )
    width = max(unit_stride, default=1)  # a layout that the spec gives may interleave its repetitions
    ties = row.swizzle is not None, -width, swizzle.bits, swizzle.base + swizzle.shift
    return row.wavefronts, row.tile_bytes, *ties


def _ways(row: SmemCandidate) -> str:
    by_line = "" if row.lines is None else f", by line {row.lines.ways:.3g}-way"
    return f"writes {row.write.ways:.3g}-way{by_line}, reads {row.read.ways:.3g}-way"


def _against(row: SmemCandidate, chosen: SmemCandidate) -> str:
    reasons = [_ways(row)] if row.wavefronts != chosen.wavefronts else []
    if row.tile_bytes != chosen.tile_bytes:
        reasons.append(f"{row.tile_bytes:,} bytes against {chosen.tile_bytes:,}")
    if _order(row) < _order(chosen):  # only a layout that the spec requests is not the best
        return f"{'; '.join(reasons) or 'equal cost'}; not what the spec requests"
    return "; ".join(reasons) or "a tie; ties go to no swizzle, then wider rows, then fewer swizzled bits"


# Rules for bulk tensor copies: the box that one copy moves, and its place in shared memory.
#
# A tensor map writes a box's rows one after the other and swizzles them over 128, 64 or 32 bytes, or not at all. A tile
# is a row of boxes along the contiguous mode, each as wide as its swizzle; pads are impossible. Source: CUDA Driver
# API, cuTensorMapEncodeTiled.


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


def begins_anywhere(spec: GemmSpec, name: str) -> bool:
    """Return whether packed groups of rows, or columns, begin anywhere along the contiguous mode of A or B."""
    groups, major = spec.problem.groups, spec.problem.operand(name).major
    return groups is not None and groups.of == major != "k" and groups.value.packs(MODES[name])


def vector_of_groups(spec: GemmSpec) -> int:
    """Return the elements at whose multiples boxes of such an operand begin; 1 if there is none."""
    found = (dtype(spec.problem.operand(name).dtype).bytes for name in OPERANDS if begins_anywhere(spec, name))
    return max((BOX_MULTIPLE_BYTES // element_bytes for element_bytes in found), default=1)


def check_begins_at_vectors(spec: GemmSpec, name: str, fix: str) -> None:
    """Raise SpecError, with `fix`, if what a tile has before a group would be more than left out of C."""
    if not begins_anywhere(spec, name):
        return
    epilogue, used = spec.epilogue, spec.epilogue.operands
    kept = {
        "epilogue.smem = false": epilogue.smem is False,
        "beta": "beta" in used or "beta" in (epilogue.ops or ()),
        "aux": "aux" in used,
        "a quantized C": epilogue.quantize is not None,
    }
    if found := next((words for words, holds in kept.items() if holds), ""):
        raise spec.error(
            f"problem.{name}.major",
            found=f'"{spec.problem.operand(name).major}", along which groups begin anywhere, with {found}',
            expected='"k": a tile begins at a vector, and only C is stored without what it has before a group',
            fix=fix,
        )


def check_begins(spec: GemmSpec, name: str, fix: str) -> None:
    """Raise SpecError, with `fix`, if packed groups begin anywhere along the contiguous mode of A or B.

    Parts of K do not count: what a box has before one becomes 0.
    """
    if not begins_anywhere(spec, name):
        return
    major = spec.problem.operand(name).major
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
    write: Access | Wavefronts,
    read: Access | Wavefronts,
    *,
    each: str = "tile",
) -> Choice[SmemRanking]:
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
    shares = shares_of(tiled_mma, x)
    hinders = {option: uneven(x, option, shares) for option in options}
    possible = tuple(option for option in options if not hinders[option])
    if not possible:
        raise spec.error(
            "tile.cta",
            found=f"{extents(x.extents)} for {x.name.upper()}: for all its boxes, {hinders[options[0]]}",
            expected=f"at most {MAX_BOX_ELEMS} along {x.major}, or 1, 2, 4 or 8 warps along it",
        )
    if requested and hinders[requested[0]]:
        raise not_addressable(spec, x, requested[0], hinders[requested[0]], fix=swizzle_fix(possible[0].swizzle))
    choice = rank_options(x, possible, requested, write, read, each=each)
    return also_rejected(choice, (Rejected(option.name, why) for option, why in hinders.items() if why))


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
            fix=f'family = "{family_with(hardware.Instruction.CP_ASYNC)}" has cp.async and plain copies',
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
        return hardware.TMA_LOAD_OF_PAIR if ctas == 1 else hardware.TMA_LOAD_MULTICAST_OF_PAIR
    return hardware.TMA_LOAD if ctas == 1 else hardware.TMA_LOAD_MULTICAST


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
    shape = tuple(map(size, algebra.modes(inner_layout(atom))))
    box = (shape[x.major_mode], shape[1 - x.major_mode])
    bits = atom.outer.bits if isinstance(atom, ComposedLayout) else 0
    boxes = x.extents[x.major_mode] // box[0]
    together = boxes if x.run_elems == box[0] else 1
    return BulkTensorCopy(instruction, box, boxes, bits, modes=x.map_modes, together=together)
