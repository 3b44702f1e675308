"""Rule for the parts in which warpgroups let C go: a line of C wide, or narrower where registers would not do.

While a part leaves, a thread holds its sums, the part's addresses in shared memory, which the compiler makes once for
all tiles, and with a chain the part's values in float32. What does not fit would go through local memory in every tile.
A chain of functions also wants narrow parts where the other warpgroup multiplies its own tile meanwhile, and CTAs that
add the slices of a tile together want as many parts as they are. Where warpgroups that share a tile promote its sums,
nobody multiplies while all of them bring it out, and each lets all of its sums go at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.algebra import TiledMma
from cutegen.hardware import WGMMA_ATOMS, MmaAtom, StmatrixAtom, dtype
from cutegen.hardware.units import LINE_BYTES, SECTOR_BYTES, WARP, WARPGROUP
from cutegen.plan.geometry.accumulators import PAIR_ELEMS
from cutegen.plan.rules.chain_cost import SPECIAL_INSTRUCTIONS, chain_instructions
from cutegen.plan.rules.wgmma_sums import sum_registers
from cutegen.plan.values.decision import Rejected
from cutegen.plan.values.epilogue import EpilogueParts, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.support.words import extents, plural

WIDTHS = (128, 64, 32, 16, 8)
"""Of parts whose rows are C's. Where columns of a part are, it may have any number of them."""
MATRIX_ROWS = 8
MATRICES = 4, 2
"""That one `stmatrix` stores, the most first: two above each other, and as many beside them."""
MATRIX_VALUES_ON_THE_WAY = 4
"""Of each matrix that a chain reads or writes, one in so many of a part's values is on the way at a time, about."""
REGISTERS_BESIDE_PARTS = 36
"""What a thread holds beside sums, addresses and values: with fewer, some of 250 kernels that were compiled for sm_90a
spilled more than a few bytes (chosen tiles, all types and majors of C, chains of up to six steps, parts of 8 to 128
columns)."""
COLUMNS_OF_FUNCTIONS = 16
"""Of a part with a chain of functions beside the `wgmma` of the other warpgroup's tile: what one `stmatrix` writes. The
instructions of a wider part stand together, and hold up a warpgroup that wants to issue few. On an H100 GELU by erf
takes 1 % at 8192x8192x2048 and 0.4 % at 16384x4096x4096 with these, 4 to 13 % with 24 to 48 (results of 16 bits; others
are not measured).
"""


WAITS_FOR_STORES = (
    "a part would wait until the one before it is stored, behind copies of the next tile, and no other tile is "
    "multiplied meanwhile"
)
"""On H100s one part in one buffer takes 0.4 to 0.8 % less than two parts in two at 2048x2048x2048, where two warpgroups
promote sums, up to 0.7 at 4096x4096x4096, and 5 to 7 % less where three do (8192x4096x2048). Sums that are not promoted
lose up to 2.4 % by it, and functions 4 (1472x1104x368).
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
    """Parts of all rows of an instruction, and as many columns as `registers` of a thread allow, and shared memory.

    That holds `columns_held` of a part, where it is known, and `columns_at_once` where a warpgroup has one part, unless
    C leaves straight from registers. Each of a cluster's CTAs that have slices of the tile brings out as many whole
    parts of a warpgroup as any other. Up to `sharers` CTAs add what slices leave in the workspace, a part each: of
    widths the one by which the busiest of them has the fewest columns.
    """
    rows, columns, _ = mma.atom.shape_mnk
    line, ctas = LINE_BYTES // x.dtype.bytes, mma.cluster[2]
    warpgroups = mma.tiled_mma.threads // WARPGROUP
    held = x.extents[0] * x.extents[1] // (warpgroups * rows)  # columns of a warpgroup's atoms, one behind the other
    widths = [
        wide
        for wide in (WIDTHS if x.major_mode == 1 else range(line, 0, -MATRIX_ROWS))
        if wide <= line and columns % wide == 0 and held % (wide * ctas) == 0 and _narrowed(mma.atom, wide)
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
    functions = mma.pingpong and chain_instructions(fusion.steps) >= SPECIAL_INSTRUCTIONS
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
    """Return whether warpgroups that share a tile, and promote its sums, bring all of it out themselves."""
    together = mma.tiled_mma.threads > WARPGROUP and not mma.pingpong
    return together and mma.promote_k > 0 and mma.cluster[2] == sharers == 1


def _why_not(wide: int, needed: int, registers: int, columns_held: int | None, functions: bool = False) -> str | None:
    if needed > registers:
        return f"{needed} registers a thread, of which it has {registers}"
    if columns_held is not None and wide > columns_held:
        return f"beside the stages there is room for {columns_held} columns"
    if functions and wide > COLUMNS_OF_FUNCTIONS:
        return "so much of the chain at a time holds up the other warpgroup's wgmma"
    return None


def _busiest(x: OperandTile, parts: Mapping[int, int], sharers: int) -> dict[int, int]:
    """Return of each width the columns that the busiest of `sharers` CTAs brings out of so many parts.

    A sector at least: rows of C that leave in less are written by halves.
    """
    sector = SECTOR_BYTES // x.dtype.bytes if x.major_mode == 1 else MATRIX_ROWS
    return {wide: -(-count // sharers) * max(wide, sector) for wide, count in parts.items()}


def _unshared(busiest: int, least: int, sharers: int) -> str | None:
    """Return why so many columns are not for one of the CTAs that add slices."""
    if sharers == 1 or busiest == least:
        return None
    return (
        f"the busiest of {sharers} CTAs would add slices of {plural(busiest, 'column')}, of {least} by narrower parts"
    )


def part_mma(atom: MmaAtom, tile: tuple[int, int]) -> TiledMma:
    """Return how a warpgroup's threads hold a part: as sums of an instruction that is no wider."""
    narrowed = _narrowed(atom, tile[1])
    assert narrowed is not None
    return TiledMma(narrowed)


def stmatrix_of(x: OperandTile, columns: int) -> StmatrixAtom | None:
    """Return what writes parts of so many columns of 16-bit elements; others go by plain stores.

    Parts of 8 columns are few elements, and go by plain stores too; not those whose rows are C's columns in bf16. Such
    sums would be rounded one by one, and before them ptxas waits for each `wgmma` (C7514).
    """
    matrices = next((count for count in MATRICES if columns % (count // 2 * MATRIX_ROWS) == 0), 0)
    one_by_one = x.dtype == dtype("bf16") and x.major_mode == 0
    if x.dtype.bits != 16 or not matrices or (columns == MATRIX_ROWS and not one_by_one):
        return None
    return StmatrixAtom(matrices, transpose=x.major_mode == 0)


def pair_elems(x: OperandTile) -> int:
    """Neighbouring sums of a thread that lie together in C."""
    return PAIR_ELEMS if x.major_mode == 1 else 1


def _narrowed(atom: MmaAtom, columns: int) -> MmaAtom | None:
    """The same instruction on fewer columns."""
    m, n, k = atom.shape_mnk
    return WGMMA_ATOMS.get(atom.name.replace(f"_{m}x{n}x{k}_", f"_{m}x{columns}x{k}_"))


def _registers(x: OperandTile, fusion: Fusion, mma: MmaPlan, columns: int) -> int:
    """Return the registers that a thread holds while such a part leaves."""
    sums = sum_registers(mma.cta_tile[:2], mma.atom.c_dtype, mma.tiled_mma.threads)
    values = mma.atom.shape_mnk[0] * columns // WARPGROUP
    stmatrix = stmatrix_of(x, columns)
    addresses = values // (2 * stmatrix.matrices) if stmatrix else values // pair_elems(x)
    vectors = sum(_held(sums, mma, tensor.major) for tensor in fusion.tensors if len(tensor.modes) == 1)
    matrices = sum(len(tensor.modes) == 2 for tensor in fusion.tensors)
    chain = values + matrices * values // MATRIX_VALUES_ON_THE_WAY if fusion.steps else 0
    return sums + addresses + chain + vectors + REGISTERS_BESIDE_PARTS


def _held(sums: int, mma: MmaPlan, mode: str) -> int:
    """Elements of a vector that a thread holds while its tile is multiplied, none where it learns late which parts."""
    rows, columns, _ = mma.atom.shape_mnk
    if mma.cluster[2] > 1:
        return 0
    return sums * WARPGROUP // (rows * columns) if mode == "m" else -(-columns // WARP)
