"""Rule for the parts in which warpgroups store C: as wide as a line of C, or narrower if registers are too few.

While it stores a part, a thread holds its sums, the part's addresses in shared memory (computed once for all tiles),
and with a chain the part's values in float32. Whatever does not fit would spill to local memory in every tile. A chain
of functions also needs narrow parts if the other warpgroup multiplies its own tile meanwhile. CTAs that add the slices
of a tile together need one part each. If warpgroups that share a tile promote its sums, none multiplies while all of
them store, and each stores all of its sums at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.algebra import TiledMma
from cutegen.hardware import MmaAtom, StmatrixAtom, dtype
from cutegen.hardware.units import LINE_BYTES, SECTOR_BYTES, WARP, WARPGROUP
from cutegen.hardware.wgmma_atoms import with_columns
from cutegen.plan.geometry.accumulators import PAIR_ELEMS
from cutegen.plan.rules.chain_cost import SPECIAL_INSTRUCTIONS, chain_instructions
from cutegen.plan.values.decision import Rejected
from cutegen.plan.values.epilogue import EpilogueParts, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.support.words import extents, plural

WIDTHS = (128, 64, 32, 16, 8)
"""Widths of parts whose rows are rows of C. If columns of a part are rows of C, any width is possible."""
MATRIX_ROWS = 8
MATRICES = 4, 2
"""Matrices that one `stmatrix` stores, the most first: two along M, then the next two along N."""
MATRIX_VALUES_ON_THE_WAY = 4
"""One in so many of a part's values is in flight at a time, for each matrix that a chain reads or writes (estimate)."""
REGISTERS_BESIDE_PARTS = 36
"""Registers of a thread in addition to sums, addresses and values: with fewer, some of 250 kernels compiled for sm_90a
spilled more than a few bytes (chosen tiles, all types and majors of C, chains of up to six steps, parts of 8 to 128
columns).
"""
COLUMNS_OF_FUNCTIONS = 16
"""Columns of a part with a chain of functions that overlaps the `wgmma` of the other warpgroup's tile: what one
`stmatrix` writes. The instructions of a wider part are issued together and delay the other warpgroup, which issues few.
On an H100 GELU by erf takes 1 % at 8192x8192x2048 and 0.4 % at 16384x4096x4096 with these, 4 to 13 % with 24 to 48
(results of 16 bits; others are not measured).
"""


WAITS_FOR_STORES = (
    "a part would wait until the previous one is stored, after copies of the next tile, and no other tile is "
    "multiplied meanwhile"
)
"""On H100s one part in one buffer takes 0.4 to 0.8 % less than two parts in two at 2048x2048x2048, where two warpgroups
promote sums, up to 0.7 at 4096x4096x4096, and 5 to 7 % less where three do (8192x4096x2048). Without promotion it costs
up to 2.4 %, and with functions 4 % (1472x1104x368).
"""


@dataclass(frozen=True, slots=True)
class PartsChoice:
    """The parts, why they are no wider, and whether all of a warpgroup's sums are one."""

    parts: EpilogueParts
    rejected: tuple[Rejected, ...]
    at_once: bool


def choose_parts(
    x: OperandTile,
    fusion: Fusion,
    mma: MmaPlan,
    registers: int,
    columns_held: int | None,
    columns_at_once: int | None,
    sharers: int,
) -> PartsChoice:
    """Choose parts of all rows of a block of sums, as wide as a thread's `registers` and shared memory allow.

    Shared memory holds `columns_held` of a part, if known, and `columns_at_once` if a warpgroup has one part, unless C
    is stored straight from registers. The CTAs of a cluster that have slices of the tile store equally many parts of
    each warpgroup. Up to `sharers` CTAs add slices in the workspace, a part each: the width minimizes the columns of
    the busiest CTA.
    """
    rows, columns = mma.accumulator.block
    line, ctas = LINE_BYTES // x.dtype.bytes, mma.cluster[2]
    warpgroups = mma.accumulator.threads // WARPGROUP
    held = x.extents[0] * x.extents[1] // (warpgroups * rows)  # columns of a warpgroup's blocks, one after the other
    widths = [
        wide
        for wide in (WIDTHS if x.major_mode == 1 else range(line, 0, -MATRIX_ROWS))
        if wide <= line and columns % wide == 0 and held % (wide * ctas) == 0 and wide in mma.accumulator.widths
    ]
    why_not_at_once = None
    if columns_at_once is not None and held == columns > line and _nobody_multiplies(mma, sharers):
        why_not_at_once = _why_not(columns, _registers(x, fusion, mma, columns), registers, columns_at_once)
        if why_not_at_once is None:
            parts = EpilogueParts(tile=(rows, columns), columns=1, count=1, warpgroups=warpgroups)
            return PartsChoice(
                parts, (Rejected(f"{extents((rows, widths[0]))} parts", WAITS_FOR_STORES),), at_once=True
            )
    needed = {wide: _registers(x, fusion, mma, wide) for wide in widths}
    functions = mma.role.alternates and chain_instructions(fusion.steps) >= SPECIAL_INSTRUCTIONS
    busiest = _busiest(x, {wide: held // (wide * ctas) * warpgroups for wide in widths}, sharers)
    why_not = {
        wide: _why_not(wide, needed[wide], registers, columns_held, functions)
        or _unshared(busiest[wide], min(busiest.values()), sharers)
        for wide in widths
    }
    width = next((wide for wide in widths if why_not[wide] is None), widths[-1])
    parts = EpilogueParts(
        tile=(rows, width),
        columns=columns // width,
        count=held // width,
        warpgroups=warpgroups,
        ctas=ctas,
        sharers=sharers,
    )
    wider = ((columns, why_not_at_once), *((wide, why_not[wide]) for wide in widths[: widths.index(width)]))
    rejected = (Rejected(f"{extents((rows, wide))} parts", why) for wide, why in wider if why is not None)
    return PartsChoice(parts, tuple(rejected), at_once=False)


def _nobody_multiplies(mma: MmaPlan, sharers: int) -> bool:
    """Return whether warpgroups that share a tile, and promote its sums, store all of it themselves."""
    together = mma.accumulator.threads > WARPGROUP and not mma.role.alternates
    return together and mma.accumulator.promotion is not None and mma.cluster[2] == sharers == 1


def _why_not(wide: int, needed: int, registers: int, columns_held: int | None, functions: bool = False) -> str | None:
    if needed > registers:
        return f"{needed} registers per thread, of which it has {registers}"
    if columns_held is not None and wide > columns_held:
        return f"shared memory has room for {columns_held} columns in addition to the stages"
    if functions and wide > COLUMNS_OF_FUNCTIONS:
        return "that much of the chain at once would delay the other warpgroup's wgmma"
    return None


def _busiest(x: OperandTile, parts: Mapping[int, int], sharers: int) -> dict[int, int]:
    """Return, for each width, the columns that the busiest of `sharers` CTAs stores.

    At least a sector: narrower stores write half sectors of C.
    """
    sector = SECTOR_BYTES // x.dtype.bytes if x.major_mode == 1 else MATRIX_ROWS
    return {wide: -(-count // sharers) * max(wide, sector) for wide, count in parts.items()}


def _unshared(busiest: int, least: int, sharers: int) -> str | None:
    """Return why parts of so many columns do not suit CTAs that add slices."""
    if sharers == 1 or busiest == least:
        return None
    return f"the busiest of {sharers} CTAs would add {plural(busiest, 'column')} of slices, {least} with narrower parts"


def part_mma(atom: MmaAtom, tile: tuple[int, int]) -> TiledMma:
    """Return how a warpgroup's threads hold a part: as the sums of an instruction of its width."""
    return TiledMma(with_columns(atom, tile[1]))


def stmatrix_of(x: OperandTile, columns: int) -> StmatrixAtom | None:
    """Return what writes parts of so many columns of 16-bit elements; others use plain stores.

    Parts of 8 columns have few elements and use plain stores too, except bf16 parts whose rows are columns of C: their
    sums would be rounded one by one, and ptxas would serialize each `wgmma` (C7514).
    """
    matrices = next((count for count in MATRICES if columns % (count // 2 * MATRIX_ROWS) == 0), 0)
    one_by_one = x.dtype == dtype("bf16") and x.major_mode == 0
    if x.dtype.bits != 16 or not matrices or (columns == MATRIX_ROWS and not one_by_one):
        return None
    return StmatrixAtom(matrices, transpose=x.major_mode == 0)


def pair_elems(x: OperandTile) -> int:
    """Return the adjacent sums of a thread that are contiguous in C."""
    return PAIR_ELEMS if x.major_mode == 1 else 1


def _registers(x: OperandTile, fusion: Fusion, mma: MmaPlan, columns: int) -> int:
    """Return the registers that a thread holds while it stores such a part."""
    values = mma.accumulator.block[0] * columns // WARPGROUP
    sums = mma.accumulator.registers_while_stored(values)
    stmatrix = stmatrix_of(x, columns)
    addresses = values // (2 * stmatrix.matrices) if stmatrix else values // pair_elems(x)
    vectors = sum(_held(sums, mma, tensor.major) for tensor in fusion.tensors if len(tensor.modes) == 1)
    matrices = sum(len(tensor.modes) == 2 for tensor in fusion.tensors)
    chain = values + matrices * values // MATRIX_VALUES_ON_THE_WAY if fusion.steps else 0
    return sums + addresses + chain + vectors + REGISTERS_BESIDE_PARTS


def _held(sums: int, mma: MmaPlan, mode: str) -> int:
    """Elements of a vector that a thread holds during the main loop; none if its parts are known only later."""
    rows, columns = mma.accumulator.block
    if mma.cluster[2] > 1:
        return 0
    return sums * WARPGROUP // (rows * columns) if mode == "m" else -(-columns // WARP)
