"""Plain copies by every thread, one k-tile at a time, and plain loads straight from shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from cutegen.algebra import Layout, LayoutExpr, TiledCopy, TiledMma, modes, size, spec_notation, tile_to_shape
from cutegen.errors import SpecError
from cutegen.hardware import UNIVERSAL, Instruction, Target, universal_atom
from cutegen.plan.epilogue.store import (
    as_threads,
    choose_store,
    contiguous,
    span,
    thread_grid,
    widths_bits,
)
from cutegen.plan.geometry import by_warp, contiguity, fragment_loads
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.mainloop.cp_async import overlaid
from cutegen.plan.mainloop.programs import through_registers
from cutegen.plan.mma.fma import check_divides, grid_fix
from cutegen.plan.operands.choices import OperandChoices, vector_access, write_access
from cutegen.plan.operands.smem import Access, SmemRanking, choose_smem
from cutegen.plan.operands.stages import choose_plain_stages, pipeline_bytes
from cutegen.plan.parts import Draft, Mainloop, Memory, Roles
from cutegen.plan.smem_layouts import VECTOR_BYTES, all_options
from cutegen.plan.values.copies import VectorCopy, vector_copy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.fragments import FragmentCopy, PlainLoads
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import LAST_MODE, OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import G2sCopy, GemmSpec
from cutegen.spec.families import PLAIN_COPIES, PartKeys, family_with
from cutegen.support.words import extents, plural

# Rules for the copies of A and B: from global memory through registers to shared memory, and back to registers.


def choose_copies(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma) -> OperandChoices[VectorCopy]:
    """Choose the copy and shared layout with the fewest wavefronts; among equals, the fewest instructions.

    A wide vector must stay contiguous in shared memory, and reading it may cause bank conflicts.
    """
    given = spec.g2s.of(x.name)
    _check_given(spec, x, given, tiled_mma.threads)
    impossible: list[Rejected] = []
    possible: list[_Way] = []
    for bits in widths_bits(x.dtype.bits):
        copy = _copy(x, given, bits, tiled_mma.threads)
        if isinstance(copy, Rejected):
            impossible.append(copy)
        else:
            possible.append(_way(spec, x, copy, tiled_mma))
    if not possible:
        raise _no_copy(spec, x, given, impossible, tiled_mma.threads)
    chosen = min(possible, key=lambda way: (way.wavefronts, way.instructions))
    rejected = (*impossible, *(_why_not(way, chosen) for way in possible if way is not chosen))
    g2s = Choice(chosen.copy, _decision(x, given, chosen.copy, rejected))
    return OperandChoices(x, g2s, _s2r(spec, x, chosen.together, tiled_mma), chosen.smem)


@dataclass(frozen=True, slots=True)
class _Together:
    """Adjacent elements along one mode of the tile that one load reads."""

    elems: int
    mode: int


@dataclass(frozen=True, slots=True)
class _Way:
    """A copy with its best shared layout, and the elements `together` in each load from it.

    `instructions` are those of one thread for one k-tile.
    """

    copy: VectorCopy
    smem: Choice[SmemRanking]
    together: _Together
    instructions: int

    @property
    def wavefronts(self) -> int:
        return self.smem.value.chosen.wavefronts


def _way(spec: GemmSpec, x: OperandTile, copy: VectorCopy, tiled_mma: TiledMma) -> _Way:
    @cache
    def loads(together: _Together) -> Access:
        first = fragment_loads(tiled_mma, x.operand, x.extents, together.elems, together.mode)[..., 0]
        rows = x.extents[0] // tiled_mma.tile_of(x.operand)[0]
        return Access(by_warp(first), together.elems * x.dtype.bytes, shares=True, at_once=rows)

    def read(layout: LayoutExpr) -> Access:
        return loads(_together(x, layout, tiled_mma))

    # The compiler would merge a thread's consecutive stores of adjacent elements.
    turned = copy.bits == x.dtype.bits and size(modes(copy.threads)[1 - x.major_mode]) > 1
    options = all_options(x.extents, x.major_mode, x.dtype.bytes, copy.bits // 8, turned=turned)
    element = by_warp(fragment_loads(tiled_mma, x.operand, x.extents, 1)[..., 0])
    sliced = (vector_access(x, copy), Access(element, x.dtype.bytes), read)
    write = write_access(x, copy, tiled_mma)
    smem = choose_smem(spec, x, tiled_mma, write, read, sliced, copy.tiled_copy, options)
    together = _together(x, tile_to_shape(smem.value.chosen.atom, x.extents), tiled_mma)
    count = x.extents[0] * x.extents[1]
    copies = count // (copy.bits // x.dtype.bits * tiled_mma.threads)
    return _Way(copy, smem, together, 2 * copies + count // tiled_mma.tile_of(x.operand)[0] // together.elems)


def _together(x: OperandTile, layout: LayoutExpr, tiled_mma: TiledMma) -> _Together:
    """Return what one load can read: adjacent elements along K if they are contiguous, as the compiler also detects.

    If there is one thread along M (or N), its elements are adjacent there as well.
    """
    along = (LAST_MODE, 1 - LAST_MODE) if tiled_mma.tile_of(x.operand)[0] == 1 else (LAST_MODE,)
    most = VECTOR_BYTES // x.dtype.bytes
    found = (_Together(min(contiguity(layout, x.extents, mode), most), mode) for mode in along)
    return max(found, key=lambda together: together.elems)


def _s2r(spec: GemmSpec, x: OperandTile, together: _Together, tiled_mma: TiledMma) -> Choice[FragmentCopy]:
    """Choose plain loads: the rows of a thread are as far apart as there are threads along the mode."""
    asked = spec.s2r.of(x.name).atom
    if asked not in (None, UNIVERSAL):
        raise spec.error(
            f"s2r.{x.name}.atom",
            found=f'"{asked}"',
            expected=f'"{UNIVERSAL}": without tensor cores there are no fragments for ldmatrix to fill',
            fix="leave it out",
        )
    atom, elems = universal_atom(x.dtype.bits), together.elems
    tiled_copy = TiledCopy.for_mma(atom, tiled_mma, x.operand, x.dtype.bits)
    mode, step = x.modes[0], tiled_mma.tile_of(x.operand)[0]
    along = x.modes[together.mode]
    lie = f"{elems} elements along {along} are contiguous" if elems > 1 else "elements along k are not contiguous"
    why = f"{lie} in shared memory; a thread's elements along {mode} are {step} apart, by mma.threads"
    bits = elems * x.dtype.bits
    decision = Decision(f"s2r.{x.name}", f"{UNIVERSAL}, {bits} bits", why, given=asked is not None)
    loads = PlainLoads(atom=atom, bits=bits, tiled_copy=tiled_copy, rejected=(), along_mode=together.mode)
    return Choice(loads, decision)


def _copy(x: OperandTile, given: G2sCopy, bits: int, threads: int) -> VectorCopy | Rejected:
    """Return the copy of that width, or why there is none."""
    if given.bits not in (None, bits):
        return Rejected(f"{bits} bits", f"the spec requests {given.bits}")
    if bits > 8 * x.align_bytes:
        return Rejected(f"{bits} bits", f"the operand is aligned to {x.align_bytes} bytes")
    vector = bits // x.dtype.bits
    if vector > x.vector_elems:
        return Rejected(f"{bits} bits", f"the shared layout keeps only {plural(x.vector_elems, 'element')} together")
    grid = thread_grid(x.extents, x.major_mode, vector, threads) if given.threads is None else as_threads(given.threads)
    if grid is None or not _tiles(x, grid, vector):
        what = f"no grid of {threads} threads" if grid is None else f'"{given.threads}" does not'
        return Rejected(
            f"{bits} bits", f"{what} with {vector} elements each tile{'s' * (grid is None)} {extents(x.extents)}"
        )
    return vector_copy(universal_atom(bits), bits, grid, x.major_mode, x.dtype.bits)


def _tiles(x: OperandTile, grid: Layout, vector: int) -> bool:
    rows, columns = span(grid, x.major_mode, vector)
    return x.extents[0] % rows == 0 and x.extents[1] % columns == 0


def _check_given(spec: GemmSpec, x: OperandTile, given: G2sCopy, threads: int) -> None:
    """The preconditions of CuTe's gemm_device on tA and tB, by their names there."""
    if given.op not in (None, UNIVERSAL):
        raise spec.error(
            f"g2s.{x.name}.op",
            found=f'"{given.op}"',
            expected=f'"{UNIVERSAL}": plain loads and stores, through registers',
            fix=f'family = "{family_with(Instruction.CP_ASYNC)}" copies with cp.async',
        )
    if given.bits is not None and given.bits < x.dtype.bits:
        raise spec.error(
            f"g2s.{x.name}.bits",
            found=f"{given.bits}",
            expected=f"whole elements, and one {x.dtype.name} has {x.dtype.bits} bits",
            fix=f"bits = {x.dtype.bits}",
        )
    if given.threads is None:
        return
    key, name, layout = f"g2s.{x.name}.threads", f"t{x.operand}", as_threads(given.threads)
    vector = 1 if given.bits is None else given.bits // x.dtype.bits
    fix = grid_fix(x.extents, x.major_mode, vector, threads)
    if size(layout) != threads:
        raise spec.error(
            key,
            found=f'"{given.threads}", {plural(size(layout), "thread")}',
            expected=f"size({name}) == size(tC) = {threads}: all thread layouts have the same size",
            fix=fix,
        )
    for i, (mode, part) in enumerate(zip(x.modes, modes(layout), strict=True)):
        along = vector if i == x.major_mode else 1
        check_divides(spec, key, given.threads, name, mode.upper(), x.extents[i], size(part), fix, along)


def _no_copy(spec: GemmSpec, x: OperandTile, given: G2sCopy, impossible: list[Rejected], threads: int) -> SpecError:
    """Return the error: a given width is impossible, or the threads do not divide the tile evenly."""
    unasked = replace(given, bits=None)
    possible = [
        bits for bits in widths_bits(x.dtype.bits) if not isinstance(_copy(x, unasked, bits, threads), Rejected)
    ]
    if given.bits is not None and possible:
        why = next(row.why for row in impossible if row.what == f"{given.bits} bits")
        return spec.error(
            f"g2s.{x.name}.bits",
            found=f"{given.bits}, but {why}",
            expected="a width that alignment, shared layout and threads allow",
            fix=f"bits = {possible[0]} is the widest possible",
        )
    return spec.error(
        "tile.cta",
        found=f"{x.name.upper()}'s tile of {extents(x.extents)} for {threads} threads",
        expected="a tile that the threads divide evenly, one element each at a time",
        fix="use a larger K, or fewer threads in mma.threads",
    )


def _why_not(way: _Way, chosen: _Way) -> Rejected:
    what = f"{way.copy.bits} bits"
    if way.wavefronts > chosen.wavefronts:
        found = f"{way.wavefronts:,} wavefronts at best, against {chosen.wavefronts:,}"
        wider = way.copy.bits > chosen.copy.bits
        return Rejected(what, f"{found}, since shared memory must keep vectors whole" if wider else found)
    return Rejected(what, f"{way.instructions} instructions per thread, against {chosen.instructions}")


def _decision(x: OperandTile, given: G2sCopy, copy: VectorCopy, rejected: tuple[Rejected, ...]) -> Decision:
    count = x.extents[0] * x.extents[1] // (size(copy.threads) * (copy.bits // x.dtype.bits))
    why = f"{plural(count, 'load')} per thread; {contiguous(copy.threads, x.major_mode, copy.bits // 8)}"
    is_given = None not in (given.bits, given.threads)
    chosen = f"{UNIVERSAL} {copy.bits} bits, threads {spec_notation(copy.threads)}"
    return Decision(f"g2s.{x.name}", chosen, why, given=is_given, rejected=rejected)


@dataclass(frozen=True, slots=True)
class Plain(Mainloop):
    """Loads and stores that every target has: one stage, or a second one that is filled while the first is read."""

    keys: ClassVar[PartKeys] = PLAIN_COPIES

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[VectorCopy]:
        """The copy and the shared layout that cost the fewest wavefronts together."""
        return choose_copies(spec, x, mma.tiled_mma)

    def memory(self, draft: Draft) -> Memory:
        """One or two stages; C from registers, or through the stages' memory if the spec requests it."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        stages = choose_plain_stages(spec, target, draft.stage_bytes)
        stages_bytes = pipeline_bytes(draft.stage_bytes, stages.value)
        epilogue = choose_store(spec, draft.fusion, mma.tiled_mma, mma.cta_tile, target, stages_bytes)
        return overlaid(draft, stages, epilogue)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """A k-tile is multiplied as a whole: no fragments are kept."""
        (role,), (ab,) = roles.roles, memory.pipelines
        return through_registers(role, ab)
