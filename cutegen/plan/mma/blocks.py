"""Sums of blocks of K that warps load from tensor memory, scale by factors of A and B, and add to others in registers.

`tcgen05.mma` reads factors of 8 bits. Those of f32 scale what it has summed: each block of K has a buffer of its own.

```text
mma        block 0 -> buffer 0    block 1 -> buffer 1    block 2 -> buffer 2 ...
epilogue                          load, scale, add       load, scale, add ...           all of K: the tile is stored
```
"""

from cutegen.algebra import Extents, Layout
from cutegen.contract.problem import QUANTIZED_BLOCK
from cutegen.hardware import UNIVERSAL_FMA, MmaAtom, Target, dtype
from cutegen.hardware.tcgen05 import COLUMNS, LANES, columns_allocated, columns_of_sums, load_of
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.plan.kernel.accumulator import Accumulator, Home, Promotion
from cutegen.plan.operands.factors import MOST_HELD
from cutegen.plan.predict import available_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import Factors, GemmSpec
from cutegen.support.words import extents, plural

MOST_BUFFERS = 4
"""Buffers of blocks: the tensor core is so far ahead at most, for as long as a tile is stored."""
COLUMNS_OF_TWO_WARPGROUPS = 64
"""Columns of a tile from which on two warpgroups share it: a warp's loads overlap the other's additions."""
WAVES = (32, 16, 8)
"""Columns that a thread loads at a time, the most first."""
DRAINED_COLUMNS = (8, 16, 32, 64, 128)
"""Columns that a part of C can have."""
REGISTERS_BESIDE = 36
"""Registers of a thread in addition to sums, one load and its factors: addresses, barriers (an estimate)."""
OTHER_WARPS = 3
"""Warps beside those that add: one copies, one multiplies, and one may ask for tiles."""
DEFAULT_TILE = (LANES, 128)
"""Rows and columns of the default tile: four blocks fill tensor memory."""


def scales_sums(spec: GemmSpec) -> bool:
    """Return whether factors scale sums of blocks; those of 8 bits scale what is multiplied."""
    factors = spec.problem.scale_a
    return factors is not None and not factors.in_atoms


def check_types(spec: GemmSpec) -> None:
    """Raise SpecError for operands whose sums of blocks are not scaled."""
    a, b, sums = spec.problem.a.dtype, spec.problem.b.dtype, spec.problem.accumulator or "f32"
    if not (dtype(a).is_float8 and dtype(b).is_float8 and sums == "f32"):
        raise spec.error(
            "problem.scale_a",
            found=f"factors of f32 of {a} and {b} operands, with {sums} sums",
            expected="8-bit floats and f32 sums: those of each block are scaled when they are added to others",
            fix="scale = {} with the ops scale_m and scale_n has factors of whole rows and columns",
        )


def check_tile(spec: GemmSpec, target: Target, cta_tile: Extents) -> None:
    """Raise SpecError for a tile that is not of one block of K, or without registers beside its sums."""
    (m, n, k), block_k = cta_tile, k_of_block(spec)
    if k != block_k:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {k}",
            expected=f"K = {block_k}, that of a block: each k-tile has a buffer of sums, which its factors scale",
            fix=f"tile.cta = {[m, n, block_k]}",
        )
    if m != LANES:
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M = {LANES}, the lanes of tensor memory: a thread has the sums, and the factor, of one row",
            fix=f"tile.cta = {[LANES, n, k]}",
        )
    if not has_registers(spec, target, n):
        step = 16 if spec.epilogue.quantize is None else QUANTIZED_BLOCK[1]
        most = next(each for each in range(n - n % step, 0, -step) if has_registers(spec, target, each))
        warpgroups, needed = _warpgroups(spec, n), _registers(spec, n, WAVES[-1])
        registers = _available(target, warpgroups)
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: {n // warpgroups} sums of each of {warpgroups * WARPGROUP} threads",
            expected=f"at most {registers} registers, of the {needed} needed: for sums, {WAVES[-1]} that are loaded, "
            f"their factors, and {REGISTERS_BESIDE} for everything else",
            fix=f"tile.cta = {[m, most, k]}",
        )


def has_registers(spec: GemmSpec, target: Target, columns: int) -> bool:
    """Return whether a thread has registers for the sums of a tile with so many columns, and for what it adds."""
    return _wave(spec, target, columns) is not None


def choose_cta_tile(spec: GemmSpec) -> Choice[Extents]:
    """The extents along M, N and K if the spec leaves them open: a block of K."""
    m, n, k = chosen = (*DEFAULT_TILE, k_of_block(spec))
    sums, threads = n // (warpgroups := _warpgroups(spec, n)), warpgroups * WARPGROUP
    why = (
        f"{m} rows are all lanes of tensor memory, K is that of a block, and {n} columns leave {sums} sums to each of "
        f"{threads} threads that add blocks, and room for {COLUMNS // n} buffers"
    )
    wider = Rejected(extents((m, 2 * n, k)), "twice the sums of a thread: they would spill")
    return Choice(chosen, Decision("tile.cta", extents(chosen), why, rejected=(wider,)))


def choose_accumulator(
    spec: GemmSpec, target: Target, atom: MmaAtom, tile: tuple[int, int]
) -> tuple[Accumulator, tuple[Decision, ...]]:
    """The buffers of sums of blocks, and how warps add them; with the decisions on them, and on the K of a block."""
    rows, n = tile
    block_k, warpgroups, wave = k_of_block(spec), _warpgroups(spec, n), _wave(spec, target, n)
    assert wave is not None, "a tile without one is refused"
    columns, own = columns_of_sums(rows, n, atom.ctas), n // warpgroups
    buffers = min(MOST_BUFFERS, COLUMNS // columns)
    sums = Accumulator(
        home=Home.TENSOR_MEMORY,
        dtype=atom.c_dtype,
        tile=tile,
        block=(rows, wave),
        atom=UNIVERSAL_FMA,
        layout=Layout(((rows, warpgroups), (1, 1, own)), ((1, own * rows), (0, 0, rows))),
        buffers=buffers,
        columns=columns,
        drain=load_of(rows, atom.ctas, atom.c_dtype),
        widths=DRAINED_COLUMNS,
        promotion=Promotion(block_k, waves=(1, own // wave)),
    )
    why = (
        f"a block of K is multiplied while others are added; {plural(buffers, 'buffer')} of {columns} columns, "
        f"{columns_allocated(buffers * columns)} of {COLUMNS} allocated; each of {warpgroups * WARPGROUP} threads "
        f"loads {wave} of its {own} columns of a row at a time"
    )
    rejected = (
        Rejected("1 buffer", "the tensor core would wait while each block is added"),
        Rejected("sums of all of K in tensor memory", "a factor of f32 scales each block of K by itself"),
    )
    of_block = Decision(
        "mma.promote_k",
        str(block_k),
        "the K of a block: its sums are scaled by a factor of A and a factor of B, and added to float32 registers",
    )
    return sums, (Decision("mma.accumulator", f"{buffers} buffers of blocks", why, rejected=rejected), of_block)


def k_of_block(spec: GemmSpec) -> int:
    """Return the K of a block of factors."""
    assert spec.problem.scale_a is not None
    return spec.problem.scale_a.block[1]


def registers(target: Target, sums: Accumulator) -> int:
    """Return the registers of each thread at launch: all that there are."""
    return _available(target, sums.threads // WARPGROUP)


def _warpgroups(spec: GemmSpec, columns: int) -> int:
    """Return how many warpgroups share a tile, columns side by side: whole blocks of a quantized C."""
    least = COLUMNS_OF_TWO_WARPGROUPS if spec.epilogue.quantize is None else 2 * QUANTIZED_BLOCK[1]
    return 2 if columns >= least else 1


def _available(target: Target, warpgroups: int) -> int:
    """Return the registers that each thread can have."""
    return available_registers(target, warpgroups * WARPGROUP + OTHER_WARPS * WARP)


def _wave(spec: GemmSpec, target: Target, columns: int) -> int | None:
    """Return the columns that a thread loads at a time: as many as leave no register without a place, if any do."""
    warpgroups = _warpgroups(spec, columns)
    own, most = columns // warpgroups, _available(target, warpgroups)
    return next((each for each in WAVES if own % each == 0 and _registers(spec, columns, each) <= most), None)


def _registers(spec: GemmSpec, columns: int, wave: int) -> int:
    """Return the registers of a thread that adds so many columns at a time: for sums, those loaded, and factors."""
    of_b: Factors | None = spec.problem.scale_b
    assert of_b is not None
    factors = 1 + (wave if of_b.block[0] < wave else min(MOST_HELD, columns // wave))
    return columns // _warpgroups(spec, columns) + wave + factors + REGISTERS_BESIDE
