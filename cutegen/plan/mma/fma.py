"""One fused multiply-add by each thread, after CuTe's sgemm_1.cu: without tensor cores; its tile and threads."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from cutegen.algebra import Extents, Layout, TiledMma, make_layout, modes, size, spec_notation
from cutegen.contract.launch import OPERANDS
from cutegen.hardware import UNIVERSAL_FMA, Instruction, MmaAtom, Target, dtype
from cutegen.hardware.mma_atoms import fma_atom
from cutegen.hardware.units import REGISTER_BITS, WARP
from cutegen.plan.epilogue.store import as_threads, thread_grid
from cutegen.plan.kernel.accumulator import in_registers
from cutegen.plan.kernel.pipeline import MMA, Role
from cutegen.plan.mma.atoms import check_dtypes
from cutegen.plan.parts import CountedPlan, Mma, Operands
from cutegen.plan.predict import ADDRESS_REGISTERS, allocated_registers, available_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import k_tile_bytes_of_each
from cutegen.spec import MODES, OPS, STORE, GemmSpec
from cutegen.spec.families import FMA, PartKeys, family_with
from cutegen.support.words import extents, plural

# Rules for what a CTA computes: its tile, and the threads that partition it.


DEFAULT_CTA_TILE = (128, 128, 8)
SUMS_PER_THREAD = 64


def check_possible(spec: GemmSpec) -> None:
    """Raise SpecError for operands that are not f32 without loss, and for other sums than f32."""
    for name in OPERANDS:
        element = spec.problem.operand(name).dtype
        if element not in ("f16", "bf16", "f32"):
            raise spec.error(
                f"problem.{name}.dtype",
                found=f'"{element}"',
                expected='"f16", "bf16" or "f32", which convert to f32 without loss',
                fix=f'family = "{family_with(Instruction.MMA_SYNC)}" multiplies other types on tensor cores',
            )
    if spec.problem.accumulator not in (None, UNIVERSAL_FMA.c_dtype.name):
        raise spec.error(
            "problem.accumulator",
            found=f'"{spec.problem.accumulator}"',
            expected=f'"{UNIVERSAL_FMA.c_dtype.name}", the type of sums of {UNIVERSAL_FMA.ptx}',
            fix="leave it out",
        )


def choose_cta_tile(spec: GemmSpec) -> Choice[Extents]:
    """The extents along M, N and K that one CTA computes at a time."""
    if spec.tile.cta is not None:
        return Choice(spec.tile.cta, Decision.as_given("tile.cta", extents(spec.tile.cta)))
    m, n, k = DEFAULT_CTA_TILE
    bytes_per_k = sum(k_tile_bytes_of_each(spec, (m, n, 1)))
    why = (
        f"{m * n // (m + n)} multiply-adds per element fetched, {SUMS_PER_THREAD} sums per thread with "
        f"{m * n // SUMS_PER_THREAD} threads; K as in CuTe's sgemm_1.cu: {k * bytes_per_k:,} bytes of shared memory"
    )
    rejected = tuple(Rejected(f"K = {other}", _other_k(other, k, bytes_per_k)) for other in (k // 2, 2 * k))
    return Choice(DEFAULT_CTA_TILE, Decision("tile.cta", extents(DEFAULT_CTA_TILE), why, rejected=rejected))


def _other_k(other: int, k: int, bytes_per_k: int) -> str:
    if other < k:
        return f"{k // other} times the barriers"
    return f"{other * bytes_per_k:,} bytes, and {other // k} times as much unrolled code"


def choose_threads(spec: GemmSpec, cta_tile: Extents, target: Target) -> Choice[Layout]:
    """Choose tC, the layout of threads over (m, n), repeated over the CTA tile. Raises SpecError if impossible."""
    given = spec.mma.threads
    if given is not None:
        layout = as_threads(given)
        _check_grid(spec, given, layout, cta_tile, target)
        m, n = map(size, modes(layout))
        return Choice(layout, Decision.as_given("mma.threads", given, _loads((m, n), cta_tile)))
    _check_copies(spec)
    grids = sorted(_grids(spec, cta_tile, target), key=lambda grid: _order(grid, cta_tile, spec.problem.c.major))
    if not grids:
        _check_left_open(spec, cta_tile)
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected="whole warps that divide the tiles of A, B and C evenly, and have registers for C's sums",
            fix=f"{extents(DEFAULT_CTA_TILE)} does, with 256 threads",
        )
    (m, n), *others = grids
    n_major = spec.problem.c.major == "n"
    chosen = Layout((m, n), (n, 1) if n_major else (1, m))
    rejected = tuple(
        Rejected(f"{extents(grid)} threads", _loads(grid, cta_tile)) for grid in others if grid[0] * grid[1] == m * n
    )
    run = n if n_major else m
    why = (
        f"{_loads((m, n), cta_tile)}; {run} adjacent threads along {spec.problem.c.major} store adjacent elements of C"
    )
    return Choice(chosen, Decision("mma.threads", spec_notation(chosen), why, rejected=rejected))


def tiled_fma(threads: Layout) -> TiledMma:
    """The tiled MMA of `threads` (m, n), each with a multiply-add of its own."""
    m, n = modes(threads)
    return TiledMma(UNIVERSAL_FMA, make_layout(m, n, Layout(1, 0)))


def _check_grid(spec: GemmSpec, given: str, layout: Layout, cta_tile: Extents, target: Target) -> None:
    """The preconditions of CuTe's gemm_device on tC, by their names there."""
    count = size(layout)
    if count % WARP or count > target.threads_per_cta:
        raise spec.error(
            "mma.threads",
            found=f'"{given}", {plural(count, "thread")}',
            expected=f"whole warps of {WARP}, at most {target.threads_per_cta} threads per CTA",
            fix='"(16,16):(1,16)" has 256',
        )
    fix = grid_fix(cta_tile[:2], "mn".index(spec.problem.c.major), 1, count)
    for mode, extent, part in zip("MN", cta_tile, modes(layout), strict=False):
        check_divides(spec, "mma.threads", given, "tC", mode, extent, size(part), fix)
    if not _fits_registers(count, cta_tile, target):
        raise spec.error(
            "mma.threads",
            found=f'"{given}": {_sums_per_thread(count, cta_tile):,} sums per thread',
            expected=f"fewer than the {available_registers(target, count)} registers that a thread can have",
            fix="use more threads, or a smaller tile.cta",
        )


def _check_copies(spec: GemmSpec) -> None:
    """Refuse copies that disagree if tC is left open, since it follows them."""
    a, b = spec.g2s.of("a").threads, spec.g2s.of("b").threads
    if a is not None and b is not None and size(as_threads(a)) != size(as_threads(b)):
        count = size(as_threads(a))
        raise spec.error(
            "g2s.b.threads",
            found=f'"{b}", {plural(size(as_threads(b)), "thread")}',
            expected=f"size(tA) == size(tB) = {count}: all thread layouts have the same size",
            fix=f"tA has {plural(count, 'thread')}",
        )


def _check_left_open(spec: GemmSpec, cta_tile: Extents) -> None:
    """Refuse given threads of a copy that cannot partition C's tile."""
    for name in OPERANDS:
        threads = spec.g2s.of(name).threads
        if threads is not None:
            raise spec.error(
                f"g2s.{name}.threads",
                found=f'"{threads}", {plural(size(as_threads(threads)), "thread")} for {extents(cta_tile)}',
                expected="whole warps that divide the tiles of A, B and C evenly, with registers for C's sums",
                fix=f"leave g2s.{name}.threads out",
            )


def check_divides(
    spec: GemmSpec, key: str, given: str, layout: str, mode: str, extent: int, threads: int, fix: str, vector: int = 1
) -> None:
    """Raise SpecError unless `extent` of the CTA tile is a multiple of its threads, each with `vector` elements."""
    if extent % (threads * vector) == 0:
        return
    span = f"THR_{mode} = {threads}" + (f", {vector} elements each" if vector > 1 else "")
    raise spec.error(
        key,
        found=f'"{given}": {span}',
        expected=f"BLK_{mode} % THR_{mode} == 0 of {layout}: {extent} % {threads * vector} = "
        f"{extent % (threads * vector)}",
        fix=fix,
    )


def grid_fix(tile: tuple[int, int], major_mode: int, vector_elems: int, threads: int) -> str:
    """Return the grid of so many threads that divides a tile, as a spec writes it; else another change that helps."""
    grid = thread_grid(tile, major_mode, vector_elems, threads)
    if grid is None:
        return f"use a tile that {threads} threads divide evenly, {plural(vector_elems, 'element')} each"
    return f'threads = "{spec_notation(grid)}" divides {extents(tile)} evenly'


def _grids(spec: GemmSpec, cta_tile: Extents, target: Target) -> Iterator[tuple[int, int]]:
    """Yield threads along M and N that divide C's tile evenly, as many as the copies have."""
    m, n, _ = cta_tile
    given = (spec.g2s.of(name).threads for name in OPERANDS)
    counts = {size(as_threads(threads)) for threads in given if threads is not None}
    for threads_m in _divisors(m):
        for threads_n in _divisors(n):
            count = threads_m * threads_n
            whole_warps = count % WARP == 0 and count <= target.threads_per_cta
            fits = whole_warps and _fits_registers(count, cta_tile, target)
            if fits and counts <= {count} and _copies_tile(spec, cta_tile, count):
                yield threads_m, threads_n


def _fits_registers(threads: int, cta_tile: Extents, target: Target) -> bool:
    """Return whether a thread's sums leave registers for operands."""
    return _sums_per_thread(threads, cta_tile) < available_registers(target, threads)


def _sums_per_thread(threads: int, cta_tile: Extents) -> int:
    return cta_tile[0] * cta_tile[1] // threads


def _copies_tile(spec: GemmSpec, cta_tile: Extents, count: int) -> bool:
    """Return whether so many threads can divide the tiles of A and B too, one element each."""
    for name in OPERANDS:
        tile_x, tile_k = (cta_tile["mnk".index(mode)] for mode in MODES[name])
        if spec.g2s.of(name).threads is None and thread_grid((tile_x, tile_k), 0, 1, count) is None:
            return False
    return True


def _divisors(extent: int) -> list[int]:
    return [count for count in range(1, min(extent, 1024) + 1) if extent % count == 0]


def _order(grid: tuple[int, int], cta_tile: Extents, major: str) -> tuple[float, int, int]:
    """Return the sort key: about 64 sums per thread, then the fewest elements loaded, then the longest runs of C."""
    sums = _sums_per_thread(grid[0] * grid[1], cta_tile)
    return abs(math.log2(sums / SUMS_PER_THREAD)), _elements(grid, cta_tile), -grid["mn".index(major)]


def _elements(grid: tuple[int, int], cta_tile: Extents) -> int:
    return cta_tile[0] // grid[0] + cta_tile[1] // grid[1]


def _loads(grid: tuple[int, int], cta_tile: Extents) -> str:
    sums = _sums_per_thread(grid[0] * grid[1], cta_tile)
    return f"a thread loads {_elements(grid, cta_tile)} elements for {plural(sums, 'multiply-add')}"


# One fused multiply-add by each thread, after CuTe's sgemm_1.cu: without tensor cores.


@dataclass(frozen=True, slots=True)
class Fma(Mma):
    """`fma.rn.f32` on operands that convert to f32 without loss."""

    keys: ClassVar[PartKeys] = FMA

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for operands that do not convert to f32 without loss, and for types that the target lacks."""
        check_possible(spec)
        check_dtypes(spec, target)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the threads that partition C's tile."""
        threads = choose_threads(spec, cta_tile.value, target)
        a, b = dtype(spec.problem.a.dtype), dtype(spec.problem.b.dtype)
        tiled_mma = tiled_fma(threads.value)
        atom = fma_atom(a, b, target)
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom,
            tiled_mma=tiled_mma,
            role=Role(name=MMA, threads=tiled_mma.threads),
            accumulator=in_registers(tiled_mma, atom, cta_tile.value[:2]),
        )
        return mma, (cta_tile.decision, threads.decision)

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Sums, one load per row of A and B of a thread, data on its way to shared memory, and addresses."""
        (m, n, _), tiled_mma = mma.cta_tile, mma.tiled_mma
        bits = (0 if copy is None else copy.bits for copy in (each.s2r.value.copied for each in operands))
        loaded = (max(1, found // REGISTER_BITS) for found in bits)
        rows = (each.tile.extents[0] // tiled_mma.tile_of(each.tile.operand)[0] for each in operands)
        columns = sum(count * registers for count, registers in zip(rows, loaded, strict=True))
        passing = sum(each.passing_registers for each in operands)
        wanted = m * n // tiled_mma.threads + columns + passing + ADDRESS_REGISTERS
        return allocated_registers(target, tiled_mma.threads, wanted)

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """Those of the whole kernel, without opcodes that the epilogue also has in unpredictable numbers."""
        found, tiled_mma = Counter(counts), plan.mma.tiled_mma
        if not plan.target.has(Instruction.FMA_PACKED) and any(
            step.text == OPS["beta"] for step in plan.epilogue.fusion.steps
        ):
            # LLVM makes one instruction of the product with beta and the sum.
            found[UNIVERSAL_FMA.ptx] += plan.mma.cta_tile[0] * plan.mma.cta_tile[1] // tiled_mma.threads
        spelled = (x.g2s.ambiguous(x.landing(tiled_mma, plan.target)) for x in plan.operands)
        unknown = (*_also_in(plan.epilogue, plan.mma.atom), *(name for names in spelled for name in names))
        return {name: count for name, count in found.items() if not name.startswith(unknown)}


def _also_in(epilogue: EpiloguePlan, atom: MmaAtom) -> Iterator[str]:
    """Return the prefixes of opcodes that an epilogue also has, in a number that is not predicted."""
    if any(x.name != STORE for x in epilogue.fusion.tensors):
        yield "ld.global"
    if epilogue.smem is not None:
        yield "ld.shared"
        yield "st.shared"
    of_one_kind = atom is UNIVERSAL_FMA  # else the epilogue's are spelled otherwise
    if of_one_kind and any(step.text not in (OPS["alpha"], OPS["beta"]) for step in epilogue.fusion.steps):
        yield atom.ptx
