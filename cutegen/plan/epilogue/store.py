"""Rules for the epilogue: what is fused into it, and the path of C to global memory, through shared memory or not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from cutegen import hardware
from cutegen.algebra import Extents, Layout, LayoutExpr, TiledMma, modes, offsets_2d, parse_layout, size
from cutegen.contract.launch import SCALARS, SOURCE
from cutegen.contract.problem import QUANTIZED_BLOCK
from cutegen.contract.tensor_map import STRIDE_MULTIPLE_BYTES
from cutegen.errors import SpecError
from cutegen.hardware.mma_atoms import with_columns
from cutegen.hardware.units import LINE_BYTES, SECTOR_BYTES, WARP, WARPGROUP
from cutegen.plan import geometry
from cutegen.plan.epilogue.pairs import decide_pairs, tile_of_c
from cutegen.plan.epilogue.quantized import check_shares, choose_quantization
from cutegen.plan.operands import shared_memory
from cutegen.plan.operands.staging import stages_for_sums
from cutegen.plan.predict import sectors_of
from cutegen.plan.smem_layouts import rows_of
from cutegen.plan.values.copies import TileCopy, VectorCopy, vector_copy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpilogueParts, EpiloguePlan, EpilogueTensor, Fusion
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import LAST_MODE, OperandTile, SmemTile, align_bytes, operand_tile
from cutegen.spec import OPS, STORE, Binary, Call, Expression, GemmSpec, Step, guards_source, parts_of
from cutegen.support.words import extents, plural

# Rules for the epilogue of threads: what is fused into it, and the path of C from accumulators to global memory.


# Vector copies between global and shared memory: the thread grid that covers a tile, and the TiledCopy made of it.


def widths_bits(element_bits: int) -> tuple[int, ...]:
    """Return the widths of copies that hold at least one element, widest first."""
    return tuple(bits for bits in reversed(hardware.UNIVERSAL_BITS) if bits >= element_bits)


def as_threads(text: str) -> Layout:
    """Return a thread layout of the spec, which allows no swizzle there."""
    layout = parse_layout(text)
    assert isinstance(layout, Layout)
    return layout


def span(grid: Layout, major_mode: int, vector_elems: int) -> tuple[int, int]:
    """Return what the threads of `grid` cover at once if each copies a vector along the contiguous mode."""
    rows, columns = map(size, modes(grid))
    return (rows * vector_elems, columns) if major_mode == 0 else (rows, columns * vector_elems)


def contiguous(grid: Layout, major_mode: int, vector_bytes: int) -> str:
    """Return what adjacent threads copy of the contiguous mode at once, for a reason.

    >>> contiguous(Layout((16, 8), (8, 1)), 1, 16)
    '8 threads x 16 bytes = 128 contiguous bytes of global memory'
    >>> contiguous(Layout((16, 8), (1, 16)), 1, 16)
    '2 threads of a warp x 16 bytes = 32 contiguous bytes of global memory'
    """
    along = size(modes(grid)[major_mode])
    together = _side_by_side(grid, major_mode)
    of_all = together in (along, WARP)
    threads = plural(along, "thread") if of_all else f"{plural(together, 'thread')} of a warp"
    contiguous_bytes = (along if of_all else together) * vector_bytes
    return f"{threads} x {vector_bytes} bytes = {contiguous_bytes} contiguous bytes of global memory"


def _side_by_side(grid: Layout, major_mode: int) -> int:
    """Return how many threads of the first warp copy one run of adjacent vectors, the shortest such run."""
    numbers = offsets_2d(grid)  # thread by (row, column)
    lines = numbers if major_mode == 1 else numbers.T  # adjacent vectors in a line
    runs = []
    for line in lines < WARP:
        ends = np.flatnonzero(np.diff(np.concatenate(([False], line, [False]))))  # where runs begin and end
        runs += (ends[1::2] - ends[::2]).tolist()
    return int(min(runs))


def thread_grid(tile: tuple[int, int], major_mode: int, vector_elems: int, threads: int) -> Layout | None:
    """Return the exact grid, one vector per thread, with the most threads along the contiguous mode, or None.

    >>> thread_grid((128, 64), 1, 8, 128)
    Layout((16, 8), (8, 1))
    """
    along_major = [
        count
        for count in range(1, threads + 1)
        if threads % count == 0
        and tile[major_mode] % (count * vector_elems) == 0
        and tile[1 - major_mode] % (threads // count) == 0
    ]
    if not along_major:
        return None
    return rows_of(threads // along_major[-1], along_major[-1], major_mode)


# Rule for the epilogue: the path of C from accumulators to global memory.


DIRECT = "straight from registers"
FEW_SUMS = 4
"""Sums of a thread: one `mma.sync` per warp. On an H200 launches of 2 us are 0.02 to 0.1 us shorter without staging;
with 8 sums or more per thread they are longer (`docs/lab/hopper_experiments.md`, "Launches of two microseconds").
"""


def choose_epilogue(
    spec: GemmSpec, fusion: Fusion, tiled_mma: TiledMma, cta_tile: Extents, smem_capacity_bytes: int
) -> Choice[EpiloguePlan]:
    """Store C through shared memory, so that each thread stores whole 16-byte vectors; or straight from registers.

    Staging reuses the memory of the pipeline.
    """
    x = operand_tile(spec, "c", tile_of_c(spec, cta_tile))
    if spec.epilogue.smem is False:
        return direct(x, fusion, "given", given=True)
    if spec.epilogue.smem is None and x.major == "n" and cta_tile[0] * cta_tile[1] <= FEW_SUMS * tiled_mma.threads:
        why = f"a thread has at most {FEW_SUMS} sums: two barriers would take longer than narrow stores"
        return direct(x, fusion, why)
    store = _store(x, tiled_mma.threads)
    pair = min(geometry.held_together(tiled_mma, LAST_MODE), x.last_elems)
    held = cache(partial(geometry.accumulators, tiled_mma, x.extents))

    def write(layout: LayoutExpr) -> shared_memory.Access:
        # If the spec requests none, all compared layouts keep equally many together.
        kept = min(pair, geometry.contiguity(layout, x.extents, LAST_MODE)) if x.requested else pair
        return _written(x, *geometry.written_together(held, kept, layout, x.dtype.bits))

    read, sliced = _read(x, store), _written(x, held(pair)[..., 0], pair)
    ranking = shared_memory.choose_smem(spec, x, tiled_mma, write, read, (sliced, read), store.tiled_copy)
    staged = shared_memory.lay_out(ranking.value, x.extents, None)
    if staged.bytes > smem_capacity_bytes:
        if spec.epilogue.smem is not None:
            raise _too_big(spec, x, staged, smem_capacity_bytes)
        why = f"C takes {staged.bytes:,} bytes of shared memory, more than {smem_capacity_bytes:,}"
        return direct(x, fusion, why)
    why = f"each thread stores {store.bits // 8} bytes at once; {ranking.decision.why}"
    held_bytes = geometry.held_together(tiled_mma, x.major_mode) * x.dtype.bytes
    not_direct = Rejected(DIRECT, f"a thread holds at most {held_bytes} adjacent bytes of a 32-byte sector")
    chosen = f"{staged.chosen.name}, {store.bits}-bit stores"
    rejected = (not_direct, *ranking.decision.rejected)
    decision = Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected)
    return Choice(epilogue_plan(x, fusion, staged, store), decision)


def direct(
    x: OperandTile,
    fusion: Fusion,
    why: str,
    *,
    given: bool = False,
    parts: EpilogueParts | None = None,
    rejected: tuple[Rejected, ...] = (),
) -> Choice[EpiloguePlan]:
    """Store C straight from registers."""
    decision = Decision("epilogue.smem", f"false, {DIRECT}", why, given=given, rejected=rejected)
    return Choice(epilogue_plan(x, fusion, parts=parts), decision)


def epilogue_plan(
    x: OperandTile,
    fusion: Fusion,
    smem: SmemTile | None = None,
    store: TileCopy | None = None,
    parts: EpilogueParts | None = None,
    edge: VectorCopy | None = None,
) -> EpiloguePlan:
    """Return the store path of C, whose tile or part is `x`."""
    return EpiloguePlan(
        dtype=x.dtype,
        major=x.major,
        align_bytes=x.align_bytes,
        fusion=fusion,
        smem=smem,
        store=store,
        parts=parts,
        edge=edge,
    )


def _too_big(spec: GemmSpec, x: OperandTile, staged: SmemTile, smem_capacity_bytes: int) -> SpecError:
    return spec.error(
        "epilogue.smem",
        found=f"{extents(x.extents)} {x.dtype.name} with {staged.chosen.name}: {staged.bytes:,} bytes",
        expected=f"at most {smem_capacity_bytes:,} bytes of shared memory",
        fix=f"smem = false stores {DIRECT}",
    )


def _store(x: OperandTile, threads: int) -> VectorCopy:
    """The widest store that alignment and shared layout allow and whose threads tile C.

    There always is one: the tiled MMA has the same threads and tiles C, so a grid of single elements does too.
    """
    return widest_store(x, threads, 8 * min(x.align_bytes, x.vector_elems * x.dtype.bytes))


def widest_store(x: OperandTile, threads: int, limit_bits: int) -> VectorCopy:
    """The widest store of up to `limit_bits` whose threads tile C or its part, which single elements do."""
    for bits in widths_bits(x.dtype.bits):
        if bits <= limit_bits:
            grid = thread_grid(x.extents, x.major_mode, bits // x.dtype.bits, threads)
            if grid is not None:
                return vector_copy(hardware.universal_atom(bits), bits, grid, x.major_mode, x.dtype.bits)
    raise AssertionError(f"{threads} threads cannot tile C {x.extents}")


def _written(x: OperandTile, first: geometry.Coordinates, elems: int) -> shared_memory.Access:
    """Return how accumulators write C's tile, `elems` at once from each of `first` [instruction, thread] on."""
    return shared_memory.Access(geometry.by_warp(first), elems * x.dtype.bytes, at_once=len(first))


def _read(x: OperandTile, store: VectorCopy) -> shared_memory.Access:
    """Return how C's tile is read for the stores."""
    first = geometry.by_warp(geometry.vectors(store.threads, store.values, x.extents)[..., 0])
    return shared_memory.Access(first, store.bits // 8, at_once=len(first))


# Rule for what is fused into the epilogue: the chain from an accumulator to C, and the tensors it reads and writes.


_MATRICES = {"c": SOURCE, "residual": "residual", STORE: "aux"}
_BIASES = ("bias_n", "bias_m")
_LEFT_OUT = {"scale": "f32 by default, as in quantization"}


def choose_fusion(spec: GemmSpec, *, by_rows: bool = False) -> tuple[Fusion, tuple[Decision, ...]]:
    """Return the chain of the spec, with a decision for it and for each tensor that it names; none without a chain.

    `by_rows` tells that a thread has whole rows of a part.
    """
    operands = spec.epilogue.operands
    tensors = tuple(_tensor(spec, name) for name in operands if name not in SCALARS)
    scalars = tuple(name for name in operands if name in SCALARS)
    pairs = None if spec.epilogue.pairs is None else spec.epilogue.pairs.value
    quantized = choose_quantization(spec, by_rows=by_rows)
    fusion = Fusion(
        spec.epilogue.steps,
        tensors,
        scalars,
        guards_source(spec.epilogue.steps),
        pairs,
        None if quantized is None else quantized.value,
    )
    of_c = () if quantized is None else (quantized.decision,)
    if not fusion.steps:
        return fusion, of_c
    tables = dict.fromkeys(tensor.table for tensor in tensors if tensor.name != SOURCE)
    extras = (_table_decision(spec, [tensor for tensor in tensors if tensor.table == table]) for table in tables)
    return fusion, (_chain_decision(spec, fusion), *decide_pairs(spec), *of_c, *extras)


def _tensor(spec: GemmSpec, name: str) -> EpilogueTensor:
    if name not in _MATRICES:
        return _vector(spec, name)
    operand, modes = spec.problem.matrix(name), spec.modes("c")
    major = modes[("m", "n").index(operand.major)]
    return EpilogueTensor(_MATRICES[name], hardware.dtype(operand.dtype), modes, major, align_bytes(operand), name)


def _vector(spec: GemmSpec, name: str) -> EpilogueTensor:
    """Return a bias, which calls pass as "bias" if it is the only one, or a scale."""
    table, mode = name.split("_")
    asked = getattr(spec.problem, table)
    element = hardware.dtype((asked and asked.dtype) or (spec.problem.c.dtype if table == "bias" else "f32"))
    only = table == "bias" and not set(_BIASES) <= set(spec.epilogue.operands)
    return EpilogueTensor(table if only else name, element, (mode,), mode, element.bytes, name)


def _chain_decision(spec: GemmSpec, fusion: Fusion) -> Decision:
    chosen = ", ".join(step.name if step.name in OPS else step.text for step in fusion.steps)
    why = "applied to each accumulator in registers, in f32, and rounded once, to C's type"
    if fusion.source_behind_beta:
        why += "; C is not read when beta is 0"
    key = "epilogue.ops" if spec.epilogue.ops else "epilogue.expression"
    return Decision.as_given(key, chosen, why)


def _table_decision(spec: GemmSpec, tensors: list[EpilogueTensor]) -> Decision:
    """Decide on a table of the problem: one matrix, or the vectors of a kind."""
    first, key = tensors[0], f"problem.{tensors[0].table}"
    asked = getattr(spec.problem, first.table)
    matrix = len(first.modes) == 2
    along = f"along {' and '.join(tensor.major for tensor in tensors)}"
    chosen = f"{first.dtype.name}, " + (f"{'nm'[first.major == 'm']}-major" if matrix else along)
    missing = [name for name in (("dtype", "major") if matrix else ("dtype",)) if getattr(asked, name, None) is None]
    if not missing:
        return Decision.as_given(key, chosen)
    as_c = f"{' and '.join(missing)} of C by default"
    return Decision(key, chosen, _LEFT_OUT.get(first.table, as_c))


# Rule for the epilogue: C straight from registers unless the spec requests shared memory.


def choose_store(
    spec: GemmSpec,
    fusion: Fusion,
    tiled_mma: TiledMma,
    cta_tile: Extents,
    target: hardware.Target,
    pipeline_bytes: int,
) -> Choice[EpiloguePlan]:
    """Choose the store path of C. Adjacent threads hold adjacent elements of C, so direct stores fill sectors."""
    if spec.epilogue.smem is not None:
        return choose_epilogue(spec, fusion, tiled_mma, cta_tile, target.smem_per_cta_bytes)
    x = operand_tile(spec, "c", cta_tile)
    found = sectors_of(geometry.accumulators(tiled_mma, x.extents, 1), x.extents, x.major_mode, x.dtype.bytes)
    staged_bytes = x.extents[0] * x.extents[1] * x.dtype.bytes
    why = f"stores touch {found.predicted:,} sectors, at least {found.ideal:,} are needed"
    staged = f"C takes {staged_bytes:,} bytes of shared memory, the main loop {pipeline_bytes:,}"
    return direct(x, fusion, why, rejected=(Rejected("through shared memory", staged),))


# Rules for C through shared memory of its own: a whole tile or parts of it, and bulk tensor stores.


# Estimates instructions per element of an epilogue, for the model of time and the rule for parts.


SPECIAL = frozenset({"erf", "exp", "gelu_erf", "gelu_tanh", "sigmoid", "silu", "tanh"})
"""Functions by the special function unit, or by a polynomial as long as what that takes."""
SPECIAL_INSTRUCTIONS = 10


def chain_instructions(steps: Iterable[Step]) -> float:
    """Return about how many instructions a scheduler issues for each element.

    >>> from cutegen.spec.steps import steps
    >>> chain_instructions(steps(("bias_n", "gelu_tanh", "aux"), None))
    11.0
    """
    return float(sum(_of(step.expression) for step in steps if step.expression is not None))


def _of(expression: Expression) -> int:
    own = 0
    if isinstance(expression, Call):
        own = SPECIAL_INSTRUCTIONS if expression.function in SPECIAL else 1
    elif isinstance(expression, Binary):
        own = 1
    return own + sum(map(_of, parts_of(expression)))


# Rule for the parts in which warpgroups store C: as wide as a line of C, or narrower if registers are too few.
#
# While it stores a part, a thread holds its sums, the part's addresses in shared memory (computed once for all tiles),
# and with a chain the part's values in float32. Whatever does not fit would spill to local memory in every tile. A
# chain of functions also needs narrow parts if the other warpgroup multiplies its own tile meanwhile. CTAs that add the
# slices of a tile together need one part each. If warpgroups that share a tile promote its sums, none multiplies while
# all of them store, and each stores all of its sums at once.


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
COLUMNS_OF_WAVE = 32
"""Columns of each member of pairs that a thread loads at a time, beside up to 128 elements of C (an estimate)."""
COLUMNS_OF_FUNCTIONS = 16
"""Columns of a part with a chain of functions that overlaps the `wgmma` of the other warpgroup's tile: what one
`stmatrix` writes. The instructions of a wider part are issued together and delay the other warpgroup, which issues few.
On an H100 GELU by erf takes 1 % at 8192x8192x2048 and 0.4 % at 16384x4096x4096 with these, 4 to 13 % with 24 to 48
(results of 16 bits; others are not measured; `docs/lab/hopper_experiments.md`, "Epilogues").
"""


WAITS_FOR_STORES = (
    "a part would wait until the previous one is stored, after copies of the next tile, and no other tile is "
    "multiplied meanwhile"
)
"""On H100s one part in one buffer takes 0.4 to 0.8 % less than two parts in two at 2048x2048x2048, where two warpgroups
promote sums, up to 0.7 at 4096x4096x4096, and 5 to 7 % less where three do (8192x4096x2048). Without promotion it costs
up to 2.4 %, and with functions 4 % (1472x1104x368). `docs/lab/hopper_experiments.md`, "Sums that are promoted".
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
    rows, columns = mma.accumulator.block[0], fusion.tile_of_c(mma.accumulator.row_of_blocks)[1]
    line, ctas = LINE_BYTES // x.dtype.bytes, mma.cluster[2]
    warpgroups = mma.accumulator.threads // mma.accumulator.group_threads
    held = x.extents[0] * x.extents[1] // (warpgroups * rows)  # columns of a warpgroup's blocks, one after the other
    widths = [
        wide
        for wide in (WIDTHS if x.major_mode == 1 else range(line, 0, -MATRIX_ROWS))
        if wide <= line and columns % wide == 0 and held % (wide * ctas) == 0 and wide in mma.accumulator.widths
    ]
    quantization = fusion.quantization
    if quantization is not None and not quantization.of_rows:  # a part has whole blocks
        widths = [wide for wide in widths if wide == QUANTIZED_BLOCK[1]]
    why_not_at_once = None
    at_once = columns_at_once is not None and fusion.quantization is None and held == columns > line
    if at_once and _nobody_multiplies(mma, sharers):
        assert columns_at_once is not None
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
        drained=mma.accumulator.drain is not None,
        waves=_waves(fusion, mma, width),
    )
    wider = ((columns, why_not_at_once), *((wide, why_not[wide]) for wide in widths[: widths.index(width)]))
    rejected = (Rejected(f"{extents((rows, wide))} parts", why) for wide, why in wider if why is not None)
    return PartsChoice(parts, tuple(rejected), at_once=False)


def _waves(fusion: Fusion, mma: MmaPlan, columns: int) -> int:
    """Return how many times a thread loads sums of a part: at once, or some of both members of pairs for as many of C.

    A thread with a row of a quantized block would load twice its columns, more than it has registers.
    """
    alone = mma.accumulator.drained_by_rows and mma.accumulator.promotion is None
    return columns // COLUMNS_OF_WAVE if alone and fusion.members > 1 and fusion.quantization is not None else 1


def _nobody_multiplies(mma: MmaPlan, sharers: int) -> bool:
    """Return whether warpgroups that multiply a tile together, and promote its sums, store all of it themselves."""
    together = mma.accumulator.threads > WARPGROUP and not mma.role.alternates and mma.accumulator.drain is None
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


def part_mma(mma: MmaPlan, tile: tuple[int, int]) -> TiledMma:
    """Return how a warpgroup's threads hold a part: as sums of the accumulator's atom, if that is no wider."""
    atom = mma.accumulator.atom
    of_part = atom if atom.shape_mnk[1] <= tile[1] else with_columns(atom, tile[1])
    return TiledMma(of_part, (mma.accumulator.group_threads // atom.threads, 1, 1))


def stmatrix_of(x: OperandTile, mma: MmaPlan, columns: int) -> hardware.StmatrixAtom | None:
    """Return what writes parts of so many columns of 16-bit elements if threads hold matrices; else plain stores do.

    Parts of 8 columns have few elements and use plain stores too, except bf16 parts whose rows are columns of C: their
    sums would be rounded one by one, and ptxas would serialize each `wgmma` (C7514).
    """
    matrices = next((count for count in MATRICES if columns % (count // 2 * MATRIX_ROWS) == 0), 0)
    one_by_one = x.dtype == hardware.dtype("bf16") and x.major_mode == 0
    if x.dtype.bits != 16 or not matrices or (columns == MATRIX_ROWS and not one_by_one):
        return None
    if not _holds_matrices(mma.accumulator.atom):
        return None
    return hardware.StmatrixAtom(matrices, transpose=x.major_mode == 0)


@cache
def _holds_matrices(atom: hardware.MmaAtom) -> bool:
    """Return whether a warp's first sums are a matrix as `stmatrix` stores it: two of a row by each thread."""
    held = offsets_2d(atom.c_layout)[:WARP, : geometry.PAIR_ELEMS]
    lane, value = np.arange(WARP)[:, None], np.arange(geometry.PAIR_ELEMS)
    return np.array_equal(held, lane // 4 + (lane % 4 * geometry.PAIR_ELEMS + value) * atom.shape_mnk[0])


def adjacent_elems(x: OperandTile, mma: MmaPlan) -> int:
    """Return the adjacent sums of a thread that are contiguous in C, and stored at once."""
    if x.major_mode == 0:
        return 1
    return geometry.adjacent(mma.accumulator.table, mma.accumulator.tile[0], ROW_BYTES // x.dtype.bytes)


def _registers(x: OperandTile, fusion: Fusion, mma: MmaPlan, columns: int) -> int:
    """Return the registers that a thread holds while it stores such a part."""
    values = mma.accumulator.block[0] * columns // mma.accumulator.group_threads
    sums = mma.accumulator.registers_while_stored(values)
    stmatrix = stmatrix_of(x, mma, columns)
    addresses = values // (2 * stmatrix.matrices) if stmatrix else values // adjacent_elems(x, mma)
    vectors = sum(_held(sums, mma, tensor.major) for tensor in fusion.tensors if len(tensor.modes) == 1)
    matrices = sum(len(tensor.modes) == 2 for tensor in fusion.tensors)
    chain = fusion.members * values + matrices * values // MATRIX_VALUES_ON_THE_WAY if fusion.steps else 0
    return sums + addresses + chain + vectors + REGISTERS_BESIDE_PARTS


def _held(sums: int, mma: MmaPlan, mode: str) -> int:
    """Elements of a vector that a thread holds during the main loop; none if its parts are known only later."""
    rows, columns = mma.accumulator.row_of_blocks
    if mma.cluster[2] > 1:
        return 0
    return sums * mma.accumulator.group_threads // (rows * columns) if mode == "m" else -(-columns // WARP)


# Rule for the store path of C: through its own shared memory and a bulk tensor store, or straight from registers.


STAGES_BESIDE_TILE = 3
"""Stages that must fit in addition to C's tile, if the spec gives no number."""


def choose_staged_epilogue(
    spec: GemmSpec,
    fusion: Fusion,
    tiled_mma: TiledMma,
    cta_tile: Extents,
    stage_bytes: int,
    capacity_bytes: int,
) -> Choice[EpiloguePlan]:
    """Store C through shared memory if three stages, or those that the spec requests, still fit; else from registers.

    The memory is C's own: the next tile's stages are filled while C is stored.
    """
    x = operand_tile(spec, "c", cta_tile)
    if spec.epilogue.smem is False:
        return direct(x, fusion, "given", given=True)
    asked = spec.epilogue.smem is not None
    if x.align_bytes < STRIDE_MULTIPLE_BYTES and not asked:
        return direct(x, fusion, f"C is aligned to {x.align_bytes} bytes, a tensor map to {STRIDE_MULTIPLE_BYTES}")
    shared_memory.check_align(spec, "c", "epilogue.smem = false")
    shared_memory.check_rows(spec, x)
    ranking = _rank_tiles(spec, x, tiled_mma)
    staged = shared_memory.lay_out(ranking.value, x.extents, None)
    stages = spec.tile.stages or (2 if asked else STAGES_BESIDE_TILE)
    if (why_not := beyond_capacity(spec, stages, stage_bytes, staged, capacity_bytes)) is not None:
        return direct(x, fusion, why_not)
    store = shared_memory.bulk_copy(x, hardware.TMA_STORE, staged.chosen.atom)
    why = f"stores continue while the next tile is multiplied; {ranking.decision.why}"
    rejected = (Rejected(DIRECT, "a thread's stores would delay its next tile"), *ranking.decision.rejected)
    chosen = f"{staged.chosen.name}, {hardware.BULK_TENSOR}"
    decision = Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected)
    return Choice(epilogue_plan(x, fusion, staged, store), decision)


def beyond_capacity(spec: GemmSpec, stages: int, stage_bytes: int, staged: SmemTile, capacity_bytes: int) -> str | None:
    """Return why C does not fit with so many stages; None if it does. Raises SpecError if the spec requires it."""
    if stages * stage_bytes + staged.bytes <= capacity_bytes:
        return None
    found = f"{plural(stages, 'stage')} of {stage_bytes:,} and C's {staged.bytes:,} bytes > {capacity_bytes:,}"
    if spec.epilogue.smem is None:
        return found
    raise spec.error(
        "epilogue.smem",
        found=found,
        expected=f"at most {capacity_bytes:,} bytes of shared memory",
        fix=f"smem = false stores {DIRECT}, or fewer stages",
    )


def _rank_tiles(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma) -> Choice[shared_memory.SmemRanking]:
    """Rank layouts of C by how accumulators are written: in pairs if N is contiguous."""
    pair = geometry.PAIR_ELEMS if x.major_mode == 1 else 1
    write = shared_memory.Access(
        geometry.by_warp(geometry.accumulators(tiled_mma, x.extents, pair)[..., 0]), pair * x.dtype.bytes
    )
    return shared_memory.rank_boxes(spec, x, tiled_mma, write, shared_memory.full_lines(x))


# Rule for the store path of C of warpgroups: in parts through shared memory by bulk tensor stores, or from registers.
#
# A part is 64 rows by a line of C's elements, so that a box stores full lines. While one part is stored, the next is
# written to the warpgroup's other buffer, and no warpgroup waits for another. Promoted sums are stored at once.


BUFFERS = 2
"""Buffers of a warpgroup whose sums are several parts: one is stored while the next is written."""
STAGES_BESIDE_PARTS = 2
"""Stages that must fit in addition to parts of C, if the spec gives no number."""
ROW_BYTES = 16
"""Least bytes of a box's row, and bytes of a matrix row that `stmatrix` writes."""


def choose_parted_epilogue(
    spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
) -> Choice[EpiloguePlan]:
    """Store C in parts through shared memory if a tensor map can store it and two stages fit, else from registers.

    `registers` is the number per consumer thread.
    """
    check_shares(spec, fusion, mma)
    whole = operand_tile(spec, "c", tile_of_c(spec, mma.cta_tile))
    held = _columns_held(spec, whole, mma, stage_bytes, capacity_bytes)
    sharers = spec.schedule.slices // mma.cluster[2]

    def parts_of(columns_at_once: int | None) -> PartsChoice:
        return choose_parts(whole, fusion, mma, registers, held, columns_at_once, sharers)

    def from_registers(why: str, *, given: bool = False) -> Choice[EpiloguePlan]:
        found = parts_of(None)
        return direct(whole, fusion, why, given=given, parts=found.parts, rejected=found.rejected)

    if spec.epilogue.smem is False:
        return from_registers("given", given=True)
    asked = spec.epilogue.smem is not None
    if whole.align_bytes < STRIDE_MULTIPLE_BYTES and not asked:
        why = f"C is aligned to {whole.align_bytes} bytes, a tensor map to {STRIDE_MULTIPLE_BYTES}"
        return from_registers(why)
    of_parts = parts_of(BUFFERS * (LINE_BYTES // whole.dtype.bytes if held is None else held))
    parts = of_parts.parts
    x = operand_tile(spec, "c", (*parts.tile, mma.cta_tile[2]))
    if (row_bytes := x.extents[x.major_mode] * x.dtype.bytes) < ROW_BYTES and not asked:
        why = f"parts of {extents(parts.tile)} have rows of {row_bytes} bytes, and a box needs at least {ROW_BYTES}"
        return from_registers(why)
    shared_memory.check_align(spec, "c", "epilogue.smem = false")
    shared_memory.check_rows(spec, x)
    stmatrix = stmatrix_of(x, mma, parts.tile[1])
    ranking = _rank_parts(spec, x, mma, stmatrix)
    each = 1 if of_parts.at_once else BUFFERS
    buffers = each * mma.threads // mma.tiled_mma.threads
    staged = shared_memory.lay_out(ranking.value, x.extents, buffers * parts.warpgroups)
    stages = spec.tile.stages or max(STAGES_BESIDE_PARTS, stages_for_sums(mma, stage_bytes))
    if (why_not := beyond_capacity(spec, stages, stage_bytes, staged, capacity_bytes)) is not None:
        return from_registers(why_not)
    store = shared_memory.bulk_copy(x, hardware.TMA_STORE, staged.chosen.atom)
    written = f"{stmatrix.ptx.partition('.sync')[0]} x{stmatrix.matrices}" if stmatrix else "plain stores"
    chosen = f"{extents(parts.tile)} parts, {staged.chosen.name}, {written}, bulk stores"
    meanwhile = (
        "all of its sums are stored while the next tile is multiplied"
        if of_parts.at_once
        else "one part is stored while the next is written, and the next tile's copies continue"
    )
    why = f"each warpgroup has {plural(each, 'buffer')}: {meanwhile}; {ranking.decision.why}"
    tile_bytes = whole.extents[0] * whole.extents[1] * whole.dtype.bytes
    rejected = (
        Rejected(DIRECT, "a thread's stores would delay its next tile"),
        *((Rejected("C's whole tile at once", f"{tile_bytes:,} bytes that stages need"),) if parts.count > 1 else ()),
        *of_parts.rejected,
        *ranking.decision.rejected,
    )
    edge = _edge(spec, x, mma.accumulator.group_threads)
    if edge is not None:
        why += f"; a group's last rows or columns, which another's follow, by {edge.bits}-bit stores of threads"
    decision = Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected)
    stored = replace(parts, buffers=buffers, stmatrix=stmatrix)
    return Choice(epilogue_plan(x, fusion, staged, store, stored, edge), decision)


def _edge(spec: GemmSpec, x: OperandTile, threads: int) -> VectorCopy | None:
    """Return the copy, by `threads`, of a part of C that has a group's last rows or columns.

    A box would store the next group's too. If groups begin anywhere along the contiguous mode, single elements are
    aligned.
    """
    if (grouped := spec.problem.groups) is None or grouped.of == "k":
        return None
    anywhere = grouped.layout == "packed" and grouped.of == x.major
    return widest_store(x, threads, 8 * (x.dtype.bytes if anywhere else ROW_BYTES))


def _columns_held(spec: GemmSpec, x: OperandTile, mma: MmaPlan, stage_bytes: int, capacity_bytes: int) -> int | None:
    """Return the columns of a part for which every warpgroup's buffers fit with the stages that the spec requests."""
    if spec.tile.stages is None:
        return None
    groups = mma.threads // mma.tiled_mma.threads * mma.accumulator.threads // mma.accumulator.group_threads
    column_bytes = BUFFERS * groups * mma.accumulator.block[0] * x.dtype.bytes
    return (capacity_bytes - spec.tile.stages * stage_bytes) // column_bytes


def _rank_parts(
    spec: GemmSpec, x: OperandTile, mma: MmaPlan, stmatrix: hardware.StmatrixAtom | None
) -> Choice[shared_memory.SmemRanking]:
    """Rank layouts of a part by how sums are written: in rows of matrices, or as many as are contiguous in C."""
    tiled_mma = part_mma(mma, x.extents)
    if stmatrix is not None:
        write = shared_memory.Access(matrix_rows(x, stmatrix), ROW_BYTES)
    else:
        elems = adjacent_elems(x, mma)
        first = geometry.in_vectors(mma.accumulator.of_part(x.extents), elems)[..., 0]
        write = shared_memory.Access(geometry.by_warp(first), elems * x.dtype.bytes)
    return shared_memory.rank_boxes(spec, x, tiled_mma, write, shared_memory.full_lines(x), each="part")


def matrix_rows(x: OperandTile, stmatrix: hardware.StmatrixAtom) -> geometry.Coordinates:
    """Elements that begin the rows of a warp's `stmatrix`, int64[instruction, warp, lane].

    A warp stores its 16 rows of C and 16 or 8 columns at a time: two matrices along M, then the next two along N.
    """
    rows, columns = x.extents
    lane = np.arange(MATRIX_ROWS * stmatrix.matrices)
    matrix, row = lane // MATRIX_ROWS, lane % MATRIX_ROWS
    down, across = MATRIX_ROWS * (matrix % 2), MATRIX_ROWS * (matrix // 2)
    m, n = (down + row, across) if x.major_mode == 1 else (down, across + row)
    warps = 2 * MATRIX_ROWS * np.arange(rows // (2 * MATRIX_ROWS))
    steps = np.arange(0, columns, stmatrix.matrices // 2 * MATRIX_ROWS)
    table: geometry.Coordinates = m + warps[None, :, None] + (n + steps[:, None, None]) * rows
    return table
