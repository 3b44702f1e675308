"""Rule for pairs of columns: both sums of a pair are in one thread, whatever the order of the weight's columns.

The tile of B in shared memory has the columns of one member first, and as many of the other after them. The copies
sort them: a tensor map has a mode for the members, so that a box takes columns of both.
"""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.hardware import dtype
from cutegen.hardware.units import SECTOR_BYTES
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

KEY = "epilogue.pairs"
MATRIX_COLUMNS = 8
"""Columns whose sums are together in registers of any tensor-core instruction."""


def tile_of_c(spec: GemmSpec, cta_tile: Extents) -> Extents:
    """Return the extents of a CTA's tile with the columns of C in place of those of the sums."""
    m, n, k = cta_tile
    return (m, n if spec.epilogue.pairs is None else n // 2, k)


def decide_pairs(spec: GemmSpec) -> tuple[Decision, ...]:
    """Return the decision on pairs, if there are any."""
    if spec.epilogue.pairs is None:
        return ()
    why = (
        "a tile of B has its gates in one half and its ups in the other, whatever their order in memory: both sums of "
        "a pair are in one thread, as many columns apart"
    )
    return (Decision.as_given(KEY, str(spec.epilogue.pairs.value), why),)


def check_pairs(spec: GemmSpec) -> None:
    """Raise SpecError for a schedule, or for an order of B's columns in memory, that pairs do not go with."""
    if spec.epilogue.pairs is None:
        return
    pairs, b = spec.epilogue.pairs.value, spec.problem.b
    found = f"{pairs} with "
    if spec.schedule.swap:
        raise spec.error(
            KEY,
            found=found + "schedule.swap",
            expected="B's columns as columns of the instruction: as rows, both of a pair are in different threads",
            fix="leave schedule.swap out",
        )
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


def check_tile(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents) -> None:
    """Raise SpecError for a tile that does not have both columns of each of its pairs in one warpgroup."""
    if spec.epilogue.pairs is None:
        return
    pairs, n = spec.epilogue.pairs.value, cta_tile[1]
    if warpgroups[1] > 1:
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(warpgroups)} warpgroups with {KEY}",
            expected="1 along N: each warpgroup has all columns of the tile, and so both of each pair",
            fix="leave mma.atom_layout out",
        )
    if n % (2 * MATRIX_COLUMNS):
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)} with {KEY}",
            expected=f"N a multiple of {2 * MATRIX_COLUMNS}: {MATRIX_COLUMNS} columns of each member",
            fix=f"N = {max(1, round(n / (2 * MATRIX_COLUMNS))) * 2 * MATRIX_COLUMNS} is the nearest",
        )
    if pairs.width is not None and (n // 2 % pairs.width or n // 2 == pairs.width):
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)} with {KEY}: {n // 2} columns of each member",
            expected=f"a multiple of {pairs.width} above it, so that a box takes whole runs of columns",
            fix=f"N = {4 * pairs.width}, or weights in halves",
        )
