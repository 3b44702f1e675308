"""Rule for pairs of columns: both sums of a pair are in one thread, whatever the order of the weight's columns.

The tile of B in shared memory has the columns of one member first, and as many of the other after them. The copies
sort them: a tensor map has a mode for the members, so that a box takes columns of both. In a swapped product they are
rows of its A: a warpgroup has as many blocks of 64 rows of each member, and a thread has the same place of every block.
"""

from cutegen.algebra import Extents
from cutegen.hardware import dtype
from cutegen.hardware.units import SECTOR_BYTES, WGMMA_ROWS
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec
from cutegen.support.words import extents, plural

KEY = "epilogue.pairs"
MATRIX_COLUMNS = 8
"""Columns whose sums are together in registers of any tensor-core instruction."""
_COUNTED = {"m": "rows", "n": "columns"}


def tile_of_c(spec: GemmSpec, cta_tile: Extents) -> Extents:
    """Return the extents of a CTA's tile with the columns of C in place of those of the sums."""
    m, n, k = cta_tile
    return cta_tile if spec.epilogue.pairs is None else (*spec.epilogue.pairs.value.tile_of_result((m, n)), k)


def rows_of_warpgroup(spec: GemmSpec) -> int:
    """Return the rows of a tile that each warpgroup has at least: of both members, if rows are in pairs."""
    pairs = spec.epilogue.pairs
    return WGMMA_ROWS * (1 if pairs is None or pairs.value.of == "n" else 2)


def decide_pairs(spec: GemmSpec) -> tuple[Decision, ...]:
    """Return the decision on pairs, if there are any."""
    if spec.epilogue.pairs is None:
        return ()
    pairs = spec.epilogue.pairs.value
    why = (
        f"a tile of {pairs.operand.upper()} has its gates in one half and its ups in the other, whatever their order "
        f"in memory: both sums of a pair are in one thread, as many {_COUNTED[pairs.of]} apart"
    )
    return (Decision.as_given(KEY, str(pairs), why),)


def check_pairs(spec: GemmSpec) -> None:
    """Raise SpecError for a schedule, or for an order of B's columns in memory, that pairs do not go with."""
    if spec.epilogue.pairs is None:
        return
    pairs, b = spec.epilogue.pairs.value, spec.problem.b
    found = f"{pairs} with "
    if spec.schedule.slices > 1:
        raise spec.error(
            KEY,
            found=found + f"schedule.split_k = {spec.schedule.slices}",
            expected="whole sums in one CTA: slices are added by parts of the tile, each with one member",
            fix="leave schedule.split_k out",
        )
    if spec.problem.groups is not None and spec.problem.groups.of != "m":
        raise spec.error(
            KEY,
            found=found + f"groups of {spec.problem.groups.of}",
            expected="groups of m, one product, or a batch",
            fix="an activation of its own after the groups",
        )
    least = SECTOR_BYTES // dtype(b.dtype).bytes
    if b.major == "n" and pairs.width is not None and pairs.width % least:
        raise spec.error(
            KEY,
            found=found + "an N-major B",
            expected=f"a multiple of {least} columns, the {SECTOR_BYTES} bytes that a copy keeps together",
            fix='problem.b.major = "k", or keep a copy of B: transposed = "once"',
        )


def check_rows_of_pairs(spec: GemmSpec) -> None:
    """Raise SpecError for a B whose pairs threads that copy vectors could not take apart: vectors have columns of both.

    A K-major B has vectors along K, each of one column.
    """
    if spec.epilogue.pairs is None or spec.problem.b.major == "k":
        return
    raise spec.error(
        KEY,
        found=f"{spec.epilogue.pairs.value} with an N-major B",
        expected="a K-major B: threads copy vectors along K, each of one column",
        fix='problem.b.major = "k", or keep a copy of B: transposed = "once"',
    )


def check_warpgroups(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents) -> None:
    """Raise SpecError for a tile that does not have both columns of each of its pairs in one warpgroup.

    They are columns of the tile, of which one warpgroup has all, or rows of a swapped product's: a warpgroup has blocks
    of 64 rows of both members.
    """
    if spec.epilogue.pairs is None:
        return
    mode = "mn".index(spec.epilogue.pairs.of)
    if warpgroups[1] > 1:
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(warpgroups)} warpgroups with {KEY}",
            expected="1 along N: each warpgroup has all columns of the tile, and so both of each pair"
            if mode
            else "1 along N: warpgroups that share a tile with rows in pairs lie along M",
            fix="leave mma.atom_layout out",
        )
    if mode:
        check_tile(spec, cta_tile, MATRIX_COLUMNS)
    else:
        in_each = f", {WGMMA_ROWS} in each of {plural(warpgroups[0], 'warpgroup')}"
        check_tile(spec, cta_tile, WGMMA_ROWS * warpgroups[0], in_each)


def check_tile(spec: GemmSpec, cta_tile: Extents, of_member: int, whose: str = "") -> None:
    """Raise SpecError for a tile without a multiple of `of_member` columns of each member, or of whole runs of them."""
    if spec.epilogue.pairs is None:
        return
    pairs, mode = spec.epilogue.pairs.value, "mn".index(spec.epilogue.pairs.of)
    letter, extent = "MN"[mode], cta_tile[mode]
    if extent % (2 * of_member):
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)} with {KEY}",
            expected=f"{letter} a multiple of {2 * of_member}: {of_member} {_COUNTED[pairs.of]} of each member{whose}",
            fix=f"{letter} = {max(1, round(extent / (2 * of_member))) * 2 * of_member} is the nearest",
        )
    if pairs.width is not None and (extent // 2 % pairs.width or extent // 2 == pairs.width):
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)} with {KEY}: {extent // 2} {_COUNTED[pairs.of]} of each member",
            expected=f"a multiple of {pairs.width} above it, so that a box takes whole runs of {_COUNTED[pairs.of]}",
            fix=f"{letter} = {4 * pairs.width}, or weights in halves",
        )
