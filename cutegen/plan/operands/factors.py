"""Factors of blocks of A and B: the tile of them that a k-tile needs, and which thread scales which sums by which.

A's factors scale rows of the sums of a block of K, B's factors columns. They ride the pipeline of k-tiles, one box of a
bulk tensor copy each: of rows that have a factor of their own, or of the blocks that the tile meets. The tiles of a
matrix may begin within a block and at any factor, boxes at multiples of 16 bytes: a box begins at most three factors
sooner. The threads that multiply read those of their sums.

```text
factors of rows      (X, 1)          one factor after another, m or n contiguous
factors of blocks    (8, 4), (32, 1) k contiguous: 8 rows of 16 bytes, of which one k-tile needs 4; else 128 bytes
of other strides     (X, 1), (32, 1) one factor after another
```

A tensor map has strides of multiples of 16 bytes. The lanes of the producer warp copy factors of other strides, one
each at a time, and each lane arrives at the stage's barrier when its copies have landed.
"""

from collections.abc import Iterable, Iterator
from math import gcd, prod

import numpy as np

from cutegen.algebra import Extents, Layout, make_layout, modes, offsets, size
from cutegen.contract.launch import OPERANDS
from cutegen.contract.tensor_map import MAX_BOX_ELEMS
from cutegen.hardware import BULK_TENSOR, TMA_LOAD, cp_async_atom, dtype
from cutegen.hardware.units import BULK_ALIGN_BYTES, WARP, WGMMA_ROWS
from cutegen.plan.geometry import Coordinates, by_warp
from cutegen.plan.operands.shared_memory import Access, full_lines, rank_options
from cutegen.plan.operands.staging import OperandChoices, vector_access
from cutegen.plan.smem_layouts import VECTOR_BYTES, LayoutOption, rows_of_tile
from cutegen.plan.values.copies import BulkTensorCopy, TileCopy, VectorCopy, vector_copy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.fragments import Fragments, ReadByThreads
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import SIDES, OperandTile
from cutegen.plan.values.path import ROWS, OperandPath
from cutegen.spec import MODES, Factors, GemmSpec
from cutegen.spec.parts import DEFAULT_ALIGN_BYTES
from cutegen.support.words import extents, plural, round_up

LANES_OP = "cp.async.ca"
"""The copy of factors by lanes: `cg` moves 16 bytes only."""
COLUMNS = 8
"""Columns of C that the threads of a row share in each step of a wgmma's sums, two each."""
MOST_HELD = 8
"""Factors that a thread holds beside the sums of a tile; of more it reads some at a time, beside those that they scale.
"""


def choose_factors(spec: GemmSpec, mma: MmaPlan, *, by_lanes: bool = False) -> Iterator[OperandChoices[TileCopy]]:
    """Yield the paths of the factors of A and B, if the spec has them. Raises SpecError for blocks that do not fit.

    `by_lanes`: the lanes of a producer warp can copy them, too.
    """
    for name in OPERANDS:
        if (factors := spec.problem.factors(name)) is not None:
            if not (by_lanes or factors.has_map):
                expected = f"{DEFAULT_ALIGN_BYTES} or more: addresses and strides of a tensor map are"
                raise spec.error(f"problem.scale_{name}.align", found=str(factors.align), expected=expected)
            yield _path(spec, name, factors, mma)


def members_of(spec: GemmSpec, name: str) -> int:
    """Return the members of pairs that an operand's rows belong to, one half of a tile each."""
    pairs = spec.epilogue.pairs
    return 2 if pairs is not None and pairs.value.operand == name else 1


def are_held(operands: Iterable[OperandPath]) -> bool:
    """Return whether a thread has registers for all factors of a k-tile, before its sums are there."""
    firsts = (read.first for x in operands if (read := x.s2r.read) is not None)
    return all(int(size(first)) <= MOST_HELD for first in firsts if first is not None)


def factors_bytes(spec: GemmSpec, cta_tile: Extents) -> int:
    """Return the bytes of the factors of a k-tile; 0 if the spec has none."""
    found = ((name, spec.problem.factors(name)) for name in OPERANDS)
    return sum(prod(_extents(spec, name, x, cta_tile)) * dtype(x.dtype).bytes for name, x in found if x is not None)


def most_blocks(rows: int, block: int) -> int:
    """Return the most blocks of so many rows that a tile of `rows` meets, wherever among the tiles it lies.

    >>> most_blocks(128, 128), most_blocks(192, 128), most_blocks(96, 128), most_blocks(64, 128), most_blocks(128, 1)
    (1, 2, 2, 1, 128)
    """
    last_phase = block - gcd(rows, block)
    return (last_phase + rows - 1) // block + 1


def _path(spec: GemmSpec, name: str, factors: Factors, mma: MmaPlan) -> OperandChoices[TileCopy]:
    """Return the path of the factors of A or B: a box of them, or copies of lanes, and the threads that read them."""
    if mma.accumulator.drain is None:
        _check_block(spec, name, factors)
    x, members = _tile(spec, name, factors, mma), members_of(spec, name)
    read = _readers(factors.block[0], x, mma)
    needed = plural(members * most_blocks(mma.cta_tile[ROWS.index(x.operand)] // members, x.block[0]), "factor")
    of_a_tile = f"a tile needs {needed}, for blocks of {extents(x.block)}"
    layout = LayoutOption(rows_of_tile(x.extents, x.major_mode))
    read_at = Access(by_warp(_read_at(x, mma, read.value, members)), x.dtype.bytes)
    if _by_lanes(spec, name):
        lanes = _lanes(spec, name, x, of_a_tile)
        return OperandChoices(x, lanes, read, rank_options(x, (layout,), (), vector_access(x, lanes.value), read_at))
    box = _box(spec, name, x, of_a_tile)
    return OperandChoices(x, box, read, rank_options(x, (layout,), (), full_lines(x), read_at))


def _by_lanes(spec: GemmSpec, name: str) -> bool:
    """Return whether the lanes of the producer warp copy the factors: as the spec says, or if they have no map."""
    factors, op = spec.problem.factors(name), spec.g2s.of_factors(name).op
    assert factors is not None
    return not factors.has_map if op is None else op != BULK_TENSOR


def _box(spec: GemmSpec, name: str, x: OperandTile, of_a_tile: str) -> Choice[BulkTensorCopy]:
    copy = BulkTensorCopy(TMA_LOAD, (x.extents[x.major_mode], x.extents[1 - x.major_mode]), 1, 0, modes=x.map_modes)
    given = spec.g2s.of_factors(name).op is not None
    why = (
        f"{'given; ' if given else ''}one thread issues it with the k-tile of A and B, on the same barrier; "
        f"{of_a_tile}, and strides that are multiples of {VECTOR_BYTES} bytes allow a tensor map"
    )
    return Choice(copy, Decision(f"g2s.{x.name}", f"{BULK_TENSOR}, a box of {extents(copy.box)}", why, given=given))


def _lanes(spec: GemmSpec, name: str, x: OperandTile, of_a_tile: str) -> Choice[VectorCopy]:
    """Return the copy of one factor at a time by each lane of the producer warp."""
    bits, grid = x.dtype.bits, rows_of_tile((WARP, 1), x.major_mode)
    atom = cp_async_atom(LANES_OP, bits)
    copy, given = vector_copy(atom, bits, grid, x.major_mode, bits), spec.g2s.of_factors(name).op is not None
    each = plural(x.extents[0] // WARP, "factor")
    why = (
        f"each lane of the producer warp copies {each} of a k-tile, and arrives at its barrier when they have landed; "
        f"{of_a_tile}"
    )
    why = (
        f"given; {why}" if given else f"strides that are multiples of {x.align_bytes} bytes allow no tensor map: {why}"
    )
    rejected = () if given else (Rejected(BULK_TENSOR, f"strides of a map are multiples of {VECTOR_BYTES} bytes"),)
    chosen = f"{LANES_OP} {bits} bits, {WARP} lanes"
    return Choice(copy, Decision(f"g2s.{x.name}", chosen, why, given=given, rejected=rejected))


def _check_block(spec: GemmSpec, name: str, factors: Factors) -> None:
    """Raise SpecError for rows of a block that the sums of a thread's instruction divide otherwise."""
    rows, unit = factors.block[0], WGMMA_ROWS if name == "a" else COLUMNS
    if rows > 1 and rows % unit:
        raise spec.error(
            f"problem.scale_{name}.block",
            found=f"{extents(factors.block)}: {rows} rows",
            expected=f"1 or a multiple of {unit}: the sums of one step of wgmma have one factor, or each its own",
            fix=f"block = [{round_up(rows, unit)}, {factors.block[1]}], with factors repeated or joined",
        )


def _box_step(spec: GemmSpec, name: str, factors: Factors) -> int:
    """Return the factors at whose multiples a box begins, 1 if each tile's first one is at a multiple of 16 bytes.

    Lanes begin at any.
    """
    if _by_lanes(spec, name):
        return 1
    groups, rows = spec.problem.groups, MODES[name][0]
    anywhere = groups is not None and groups.layout == "packed" and groups.of == rows
    aligned = factors.major == rows and factors.block[0] == 1 and not anywhere
    return 1 if aligned else VECTOR_BYTES // dtype(factors.dtype).bytes


def _tile(spec: GemmSpec, name: str, factors: Factors, mma: MmaPlan) -> OperandTile:
    """Return the tile of factors of a k-tile. Raises SpecError for more than a box can have."""
    element, key, found = dtype(factors.dtype), f"scale_{name}", _extents(spec, name, factors, mma.cta_tile)
    if not _by_lanes(spec, name) and found[0] // members_of(spec, name) > MAX_BOX_ELEMS:
        raise spec.error(
            "tile.cta",
            found=f"{extents(mma.cta_tile)}, with {found[0]} factors of {name.upper()}",
            expected=f"at most {MAX_BOX_ELEMS}, a box of a tensor map",
            fix="a smaller tile",
        )
    return OperandTile(
        name=key,
        operand=SIDES[name],
        dtype=element,
        multiplied=element,
        modes=MODES[name],
        extents=found,
        major_mode=MODES[name].index(factors.major or ""),
        align_bytes=factors.align or DEFAULT_ALIGN_BYTES,
        smem_key=f"smem.{key}",
        requested=(),
        vector_elems=VECTOR_BYTES // element.bytes,
        last_elems=1,
        block=factors.block,
        box_step=_box_step(spec, name, factors),
        map_modes=2 + members_of(spec, name),
    )


def _extents(spec: GemmSpec, name: str, factors: Factors, cta_tile: Extents) -> tuple[int, int]:
    """Return the extents of a tile of factors, in whole multiples of the bytes to which a box in shared memory aligns.

    Those of the second of two members of pairs follow the first's, in one box of a map with a mode for the members.
    Lanes copy as many of each member, one after another.
    """
    element_bytes, members = dtype(factors.dtype).bytes, members_of(spec, name)
    needed = most_blocks(cta_tile[OPERANDS.index(name)] // members, factors.block[0])
    if _by_lanes(spec, name):
        return members * round_up(needed, WARP), 1
    least, along_k = BULK_ALIGN_BYTES // element_bytes, VECTOR_BYTES // element_bytes
    if factors.major == "k":
        return round_up(members * needed, least // along_k), along_k
    return round_up(members * (needed + _box_step(spec, name, factors) - 1), least), 1


def _readers(block: int, x: OperandTile, mma: MmaPlan) -> Choice[Fragments]:
    """Return which of a thread's factors scales which of its sums, in the order of its values."""
    of_row = mma.accumulator.drain is not None
    of_sums, first, words = (_of_row if of_row else _of_fragments)(block, x, mma)
    by = f"each thread reads the factors of the {words}"
    why = f"{by} before it releases the stage, and scales the sums of the k-tile when it adds them"
    return Choice(ReadByThreads(of_sums, first), Decision(f"s2r.{x.name}", "by threads", why))


def _of_row(block: int, x: OperandTile, mma: MmaPlan) -> tuple[Layout, Layout, str]:
    """Return the factors of the sums of a thread that has columns of one row, which are side by side."""
    sums = mma.accumulator.values
    if x.operand == "A":
        return (
            Layout(sums, 0),
            Layout(1, sums),
            "row of its sums" if block == 1 else f"block of {block} rows of its own",
        )
    together = gcd(sums, block)
    words = f"{sums} columns of its sums"
    if block > 1:
        words = f"{plural(sums // together, 'block')} of {together} columns that share one"
    return Layout((together, sums // together), (0, 1)), Layout(sums // together, together), words


def _of_fragments(block: int, x: OperandTile, mma: MmaPlan) -> tuple[Layout, Layout, str]:
    """Return the factors of the sums of a thread that has pairs of columns of rows r and r + 8, in steps of 8."""
    atom_m, columns, _ = mma.atom.shape_mnk
    steps, instructions = columns // COLUMNS, mma.cta_tile[0] // mma.tiled_mma.tile_mnk[0]
    of_instruction, promotion = 4 * steps, mma.accumulator.promotion
    waves = 1 if promotion is None else promotion.waves[1]
    if x.operand == "A":
        own = Layout((2, 2, steps, instructions), (0, 1, 0, 2)), Layout((2, instructions), (2, of_instruction))
        shared = Layout((2, 2, steps, instructions), (0, 0, 0, 1)), Layout((instructions,), (of_instruction,))
        words = f"{plural(2 * instructions, 'row')} of its sums", f"{plural(instructions, 'block')} of {atom_m} rows"
    else:
        together = gcd(columns, block) // COLUMNS or 1
        blocks = steps // together
        own = Layout((2, 2, steps, instructions), (1, 0, 2, 0)), Layout((2, steps), (1, 4))
        shared = Layout((2, 2, together, blocks, instructions), (0, 0, 0, 1, 0)), Layout((blocks,), (4 * together,))
        words = (
            f"{2 * steps} columns of its sums",
            f"{plural(waves * blocks, 'block')} of {COLUMNS * together} columns",
        )
    of_sums, first = own if block == 1 else shared
    if waves > 1:  # those of A are the same in each
        of_sums, first = _in_waves(of_sums, first, waves, of_instruction * instructions, alike=x.operand == "A")
    return of_sums, first, words[0] if block == 1 else f"{words[1]} that share one"


def _in_waves(of_sums: Layout, first: Layout, waves: int, sums: int, *, alike: bool) -> tuple[Layout, Layout]:
    """Return the same for `waves` of so many `sums`, which need the same factors or each as many of its own."""
    factors = int(size(first))
    of_all = make_layout(*modes(of_sums), Layout(waves, 0 if alike else factors))
    return of_all, first if alike else make_layout(*modes(first), Layout(waves, sums))


def _read_at(x: OperandTile, mma: MmaPlan, read: Fragments, members: int) -> Coordinates:
    """Return the factors that each thread reads of a tile that begins at a block, int64[factor, thread]."""
    assert isinstance(read, ReadByThreads)
    assert read.first is not None
    tile = mma.cta_tile[:2]
    sums = mma.accumulator.table[:, offsets(read.first)]
    along = sums % tile[0] if x.operand == "A" else sums // tile[0]
    half = tile[ROWS.index(x.operand)] // members
    block = along % half // x.block[0] + along // half * (x.extents[0] // members)
    at: Coordinates = np.ascontiguousarray(block.T)
    return at
