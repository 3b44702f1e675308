"""Vector copies by every thread: cp.async, or plain loads and stores, and fragments by ldmatrix or plain loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.algebra import Layout, size, spec_notation
from cutegen.errors import SpecError
from cutegen.hardware import UNIVERSAL, Target, cp_async_atom, universal_atom
from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.plan.epilogue.store import (
    as_threads,
    choose_epilogue,
    contiguous,
    span,
    thread_grid,
    widths_bits,
)
from cutegen.plan.kernel.memory import Phase, allocate, result_region
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.mainloop.programs import copied_by_threads, pipelined
from cutegen.plan.operands.choices import OperandChoices, choose_layout
from cutegen.plan.operands.s2r import choose_s2r
from cutegen.plan.operands.stages import NARROWEST_CP_ASYNC_BYTES, choose_stages
from cutegen.plan.parts import Draft, Mainloop, Memory, Roles
from cutegen.plan.predict import ctas_by_registers
from cutegen.plan.schedule.groups import beginning_anywhere
from cutegen.plan.values.copies import VectorCopy, fetches_of, vector_copy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import G2sCopy, GemmSpec
from cutegen.spec.families import VECTORS, PartKeys
from cutegen.support.literals import alternatives
from cutegen.support.words import extents

# Rule for the copy from global to shared memory: `cp.async` or plain loads and stores, width, and threads.


def choose_g2s(spec: GemmSpec, x: OperandTile, threads: int) -> Choice[VectorCopy]:
    """Choose the widest copy that global alignment and shared layout allow and whose threads tile the operand exactly.

    Use cp.async for 4 bytes and more; plain loads and stores for 1 or 2 bytes.
    """
    given = spec.g2s.of(x.name)
    if wrong := _impossible(spec, x, given, threads):
        raise wrong
    rejected: list[Rejected] = []
    for bits in widths_bits(x.dtype.bits):
        grid = _grid(x, given, bits, threads)
        if (why := _why_not(x, given, bits, grid, threads)) is None:
            assert grid is not None
            return _chosen(x, given, bits, grid, rejected)
        rejected.append(Rejected(f"{bits} bits", why))
    raise _no_width(spec, x, given, rejected, threads)


def _grid(x: OperandTile, given: G2sCopy, bits: int, threads: int) -> Layout | None:
    """Return the spec's thread grid, else the one with the most threads along the contiguous mode, if any."""
    if given.threads is None:
        return thread_grid(x.extents, x.major_mode, bits // x.dtype.bits, threads)
    return as_threads(given.threads)


def _why_not(x: OperandTile, given: G2sCopy, bits: int, grid: Layout | None, threads: int) -> str | None:
    """Return why the copy is not `bits` wide; None when it can be."""
    if given.bits not in (None, bits):
        return f"the spec requests {given.bits}"
    if given.op == "cp.async.cg" and bits != 128:
        return "cp.async.cg copies 16 bytes only"
    if given.op == "cp.async.ca" and bits < 8 * NARROWEST_CP_ASYNC_BYTES:
        return f"cp.async.ca copies at least {NARROWEST_CP_ASYNC_BYTES} bytes"
    if (why := _narrow(x, bits)) is not None:
        return why
    vector = bits // x.dtype.bits
    if grid is None:
        return f"no grid of {threads} threads with {vector} elements each tiles {extents(x.extents)}"
    rows, columns = span(grid, x.major_mode, vector)
    if x.extents[0] % rows or x.extents[1] % columns:
        return f"the threads span {extents((rows, columns))}, which does not divide {extents(x.extents)}"
    return None


def _impossible(spec: GemmSpec, x: OperandTile, given: G2sCopy, threads: int) -> SpecError | None:
    """Return the error that no value of the open keys could fix, at the key at fault."""
    if given.bits is not None and given.bits < x.dtype.bits:
        return spec.error(
            f"g2s.{x.name}.bits",
            found=str(given.bits),
            expected=f"at least {x.dtype.bits}, one {x.dtype.name} of {x.name.upper()}",
        )
    bits = given.bits or (128 if given.op == "cp.async.cg" else None)
    if bits is not None and bits > 8 * _widest_bytes(x):
        return _too_wide(spec, x, given, bits)
    if given.op == "cp.async.ca" and _widest_bytes(x) < NARROWEST_CP_ASYNC_BYTES:
        return spec.error(
            f"g2s.{x.name}.op",
            found=f'"{given.op}", but {_narrow(x, 8 * NARROWEST_CP_ASYNC_BYTES)}',
            expected=f'"{UNIVERSAL}": cp.async copies 4, 8 or 16 bytes between addresses aligned to that size',
            fix=f'op = "{UNIVERSAL}", or leave it out',
        )
    covered = threads if given.threads is None else size(as_threads(given.threads))
    if covered != threads:
        return spec.error(
            f"g2s.{x.name}.threads",
            found=f'"{given.threads}", which covers {covered} of {threads} threads',
            expected=f"every one of the {threads} threads once",
            fix=_suggestion(x, threads),
        )
    return None


def _too_wide(spec: GemmSpec, x: OperandTile, given: G2sCopy, bits: int) -> SpecError:
    key = "bits" if given.bits else "op"
    asked = f"{bits} bits" if given.bits else f'"{given.op}"'
    widest = _widest_bytes(x)
    narrower = "cp.async.ca" if widest >= NARROWEST_CP_ASYNC_BYTES and given.op != UNIVERSAL else UNIVERSAL
    ways_out = [f'op = "{narrower}" with bits = {8 * widest}']
    if bits > 8 * x.align_bytes:
        ways_out.append(f"problem.{x.name}.align = {bits // 8} if the operand has that alignment")
    else:
        ways_out.append(f"a layout that keeps {bits // 8} bytes together")
    return spec.error(
        f"g2s.{x.name}.{key}",
        found=f"{asked}, {bits // 8} bytes at once, but {_narrow(x, bits)}",
        expected=f"at most {widest} bytes at once",
        fix=", or ".join(ways_out),
    )


def _together_bytes(x: OperandTile) -> int:
    return x.vector_elems * x.dtype.bytes


def _widest_bytes(x: OperandTile) -> int:
    return min(x.align_bytes, _together_bytes(x))


def _narrow(x: OperandTile, bits: int) -> str | None:
    """Return why an access of `bits` would not be aligned; None when it is."""
    if bits > 8 * x.align_bytes:
        return f"the operand is aligned to {x.align_bytes} bytes"
    if bits > 8 * _together_bytes(x):
        return f"the shared layout keeps only {_together_bytes(x)} bytes together"
    return None


def _no_width(spec: GemmSpec, x: OperandTile, given: G2sCopy, rejected: list[Rejected], threads: int) -> SpecError:
    """Return the error if threads and tile do not match; the key is the most specific one that the spec gives."""
    reasons = "; ".join(f"{row.what}: {row.why}" for row in rejected)
    suggestion = _suggestion(x, threads)
    widths = alternatives([bits // 8 for bits in reversed(widths_bits(x.dtype.bits))])
    if given.threads is not None:
        return spec.error(
            f"g2s.{x.name}.threads",
            found=f'"{given.threads}": {reasons}',
            expected=f"a grid that tiles {extents(x.extents)} with one vector per thread",
            fix=suggestion,
        )
    return spec.error(
        f"g2s.{x.name}.{'bits' if given.bits else 'op'}" if given.bits or given.op else "tile.cta",
        found=f"{x.name.upper()}'s tile of {extents(x.extents)} for {threads} threads",
        expected=f"a copy of {widths} bytes that each thread issues equally often ({reasons})",
        fix=suggestion if given.bits or given.op else "use a larger tile, or fewer warps in mma.atom_layout",
    )


def _suggestion(x: OperandTile, threads: int) -> str:
    """Return the grid that would be chosen, as the spec writes it."""
    for bits in widths_bits(x.dtype.bits):
        grid = thread_grid(x.extents, x.major_mode, bits // x.dtype.bits, threads)
        if bits <= 8 * _widest_bytes(x) and grid is not None:
            return f'threads = "{spec_notation(grid)}" with bits = {bits} covers {extents(x.extents)} exactly'
    return "use a larger tile, or fewer warps in mma.atom_layout"


def _op_of(bits: int) -> str:
    if bits == 128:
        return "cp.async.cg"
    return "cp.async.ca" if bits >= 8 * NARROWEST_CP_ASYNC_BYTES else UNIVERSAL


def _chosen(x: OperandTile, given: G2sCopy, bits: int, grid: Layout, rejected: list[Rejected]) -> Choice[VectorCopy]:
    op = given.op or _op_of(bits)
    why = contiguous(grid, x.major_mode, bits // 8)
    if given.op is None:
        if op == "cp.async.cg":
            why += "; cg, since a copy to shared memory can bypass L1"
            rejected.append(Rejected("cp.async.ca", "it would also fill L1 with data that is not read from L1 again"))
        elif op == UNIVERSAL:
            why += f"; plain loads and stores, since cp.async copies at least {NARROWEST_CP_ASYNC_BYTES} bytes"
        else:
            why += "; ca, since cg copies 16 bytes only"
    elif op == UNIVERSAL:
        why += "; then through registers to shared memory"
    atom = universal_atom(bits) if op == UNIVERSAL else cp_async_atom(op, bits)
    copy = vector_copy(atom, bits, grid, x.major_mode, x.dtype.bits)
    asked = [name for name in ("op", "bits", "threads") if getattr(given, name) is not None]
    is_given = len(asked) == 3
    if asked and not is_given:
        why = f"{' and '.join(asked)} given; {why}"
    chosen = f"{op} {bits} bits, threads {spec_notation(grid)}"
    return Choice(copy, Decision(f"g2s.{x.name}", chosen, why, given=is_given, rejected=tuple(rejected)))


@dataclass(frozen=True, slots=True)
class CpAsync(Mainloop):
    """A pipeline of as many stages as fit, and fragments that are loaded to registers."""

    keys: ClassVar[PartKeys] = VECTORS
    has_probe: ClassVar[bool] = True

    def as_copied(self, spec: GemmSpec) -> GemmSpec:
        """Return the spec with elements that align to nothing more where a vector of a group begins anywhere."""
        return beginning_anywhere(spec)

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[VectorCopy]:
        """The widest copy, the fragments' loads, and the shared layout that suits both best."""
        g2s, s2r = choose_g2s(spec, x, mma.tiled_mma.threads), choose_s2r(spec, x, mma.tiled_mma, target)
        return choose_layout(spec, x, g2s, s2r, mma.tiled_mma)

    def memory(self, draft: Draft) -> Memory:
        """As many stages as keep the CTAs that registers allow resident; C's tile reuses them after the main loop."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        resident = ctas_by_registers(target, mma.tiled_mma.threads, draft.roles.registers_at_launch)
        asynchronous = not all(each.g2s.value.through_registers for each in draft.operands)
        stages = choose_stages(spec, target, draft.stage_bytes, resident, asynchronous=asynchronous)
        epilogue = choose_epilogue(spec, draft.fusion, mma.tiled_mma, mma.cta_tile, target.smem_per_cta_bytes)
        return overlaid(draft, stages, epilogue)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """Return as many k-tiles per turn as there are stages, so that stages are constants in the addresses.

        On an H200 that is up to 10 % faster than one k-tile per turn (docs/performance.md). Plain copies hold a k-tile
        in registers, which leaves no room for the addresses of several.
        """
        (role,), (ab,) = roles.roles, memory.pipelines
        per_turn = 1 if any(x.g2s.through_registers for x in operands) else ab.stages
        return pipelined(role, ab, mma.k_blocks, per_turn, fetches_of(x.g2s for x in operands))


def overlaid(draft: Draft, stages: Choice[int], epilogue: Choice[EpiloguePlan]) -> Memory:
    """The stages of the operands, and C's tile in their place: a CTA has one tile, and stores C after its main loop."""
    c, (role,) = epilogue.value.smem, draft.roles.roles
    regions = [*draft.stage_regions(stages.value, BANK_ROW_BYTES, frozenset({Phase.K_TILES}))]
    if c is not None:
        regions.append(result_region(c.bytes, epilogue.value.dtype.bytes))
    return Memory(
        stages=stages,
        epilogue=epilogue,
        regions=allocate(regions),
        pipelines=(copied_by_threads(role, stages.value, sum(draft.stage_bytes)),),
    )
