"""Rules for the epilogue of threads: what is fused into it, and the path of C from accumulators to global memory."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from cutegen.algebra import Extents, Layout, LayoutExpr, TiledMma, modes, offsets_2d, parse_layout, size
from cutegen.contract.launch import SCALARS, SOURCE
from cutegen.errors import SpecError
from cutegen.hardware import UNIVERSAL_BITS, Target, dtype, universal_atom
from cutegen.hardware.units import WARP
from cutegen.plan.epilogue.pairs import decide_pairs, tile_of_c
from cutegen.plan.epilogue.quantized import choose_quantization
from cutegen.plan.geometry import (
    Coordinates,
    accumulators,
    by_warp,
    contiguity,
    held_together,
    vectors,
    written_together,
)
from cutegen.plan.operands.smem import Access, choose_smem, lay_out
from cutegen.plan.predict import sectors_of
from cutegen.plan.smem_layouts import rows_of
from cutegen.plan.values.copies import TileCopy, VectorCopy, vector_copy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpilogueParts, EpiloguePlan, EpilogueTensor, Fusion
from cutegen.plan.values.operand import LAST_MODE, OperandTile, align_bytes, operand_tile
from cutegen.plan.values.smem import SmemTile
from cutegen.spec import OPS, STORE, GemmSpec, guards_source
from cutegen.support.words import extents, plural

# Vector copies between global and shared memory: the thread grid that covers a tile, and the TiledCopy made of it.


def widths_bits(element_bits: int) -> tuple[int, ...]:
    """Return the widths of copies that hold at least one element, widest first."""
    return tuple(bits for bits in reversed(UNIVERSAL_BITS) if bits >= element_bits)


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
    pair = min(held_together(tiled_mma, LAST_MODE), x.last_elems)
    held = cache(partial(accumulators, tiled_mma, x.extents))

    def write(layout: LayoutExpr) -> Access:
        # If the spec requests none, all compared layouts keep equally many together.
        kept = min(pair, contiguity(layout, x.extents, LAST_MODE)) if x.requested else pair
        return _written(x, *written_together(held, kept, layout, x.dtype.bits))

    read, sliced = _read(x, store), _written(x, held(pair)[..., 0], pair)
    ranking = choose_smem(spec, x, tiled_mma, write, read, (sliced, read), store.tiled_copy)
    staged = lay_out(ranking.value, x.extents, None)
    if staged.bytes > smem_capacity_bytes:
        if spec.epilogue.smem is not None:
            raise _too_big(spec, x, staged, smem_capacity_bytes)
        why = f"C takes {staged.bytes:,} bytes of shared memory, more than {smem_capacity_bytes:,}"
        return direct(x, fusion, why)
    why = f"each thread stores {store.bits // 8} bytes at once; {ranking.decision.why}"
    held_bytes = held_together(tiled_mma, x.major_mode) * x.dtype.bytes
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
                return vector_copy(universal_atom(bits), bits, grid, x.major_mode, x.dtype.bits)
    raise AssertionError(f"{threads} threads cannot tile C {x.extents}")


def _written(x: OperandTile, first: Coordinates, elems: int) -> Access:
    """Return how accumulators write C's tile, `elems` at once from each of `first` [instruction, thread] on."""
    return Access(by_warp(first), elems * x.dtype.bytes, at_once=len(first))


def _read(x: OperandTile, store: VectorCopy) -> Access:
    """Return how C's tile is read for the stores."""
    first = by_warp(vectors(store.threads, store.values, x.extents)[..., 0])
    return Access(first, store.bits // 8, at_once=len(first))


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
    return EpilogueTensor(_MATRICES[name], dtype(operand.dtype), modes, major, align_bytes(operand), name)


def _vector(spec: GemmSpec, name: str) -> EpilogueTensor:
    """Return a bias, which calls pass as "bias" if it is the only one, or a scale."""
    table, mode = name.split("_")
    asked = getattr(spec.problem, table)
    element = dtype((asked and asked.dtype) or (spec.problem.c.dtype if table == "bias" else "f32"))
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
    target: Target,
    pipeline_bytes: int,
) -> Choice[EpiloguePlan]:
    """Choose the store path of C. Adjacent threads hold adjacent elements of C, so direct stores fill sectors."""
    if spec.epilogue.smem is not None:
        return choose_epilogue(spec, fusion, tiled_mma, cta_tile, target.smem_per_cta_bytes)
    x = operand_tile(spec, "c", cta_tile)
    found = sectors_of(accumulators(tiled_mma, x.extents, 1), x.extents, x.major_mode, x.dtype.bytes)
    staged_bytes = x.extents[0] * x.extents[1] * x.dtype.bytes
    why = f"stores touch {found.predicted:,} sectors, at least {found.ideal:,} are needed"
    staged = f"C takes {staged_bytes:,} bytes of shared memory, the main loop {pipeline_bytes:,}"
    return direct(x, fusion, why, rejected=(Rejected("through shared memory", staged),))
