"""Main loops whose k-tiles every thread copies: by cp.async, or by plain loads and stores."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from cutegen.algebra import Layout, LayoutExpr, TiledCopy, TiledMma, modes, size, spec_notation, tile_to_shape
from cutegen.errors import SpecError
from cutegen.hardware import UNIVERSAL, Instruction, Target, cp_async_atom, universal_atom
from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.plan.epilogue import store
from cutegen.plan.geometry import by_warp, contiguity, fragment_loads
from cutegen.plan.kernel.memory import Phase, allocate, result_region
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.mainloop.programs import copied_by_threads, pipelined, through_registers
from cutegen.plan.mma.fma import check_divides, grid_fix
from cutegen.plan.operands import staging
from cutegen.plan.operands.s2r import choose_s2r
from cutegen.plan.operands.shared_memory import Access, SmemRanking, choose_smem
from cutegen.plan.parts import Draft, Mainloop, Memory, Roles
from cutegen.plan.predict import ctas_by_registers
from cutegen.plan.schedule.groups import beginning_anywhere
from cutegen.plan.smem_layouts import VECTOR_BYTES, all_options
from cutegen.plan.values.copies import VectorCopy, fetches_of, vector_copy
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.fragments import FragmentCopy, PlainLoads
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import LAST_MODE, OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import G2sCopy, GemmSpec
from cutegen.spec.families import PLAIN_COPIES, VECTORS, PartKeys, family_with
from cutegen.support.words import alternatives, extents, plural

# Vector copies by every thread: cp.async, or plain loads and stores, and fragments by ldmatrix or plain loads.


# Rule for the copy from global to shared memory: `cp.async` or plain loads and stores, width, and threads.


def choose_g2s(spec: GemmSpec, x: OperandTile, threads: int) -> Choice[VectorCopy]:
    """Choose the widest copy that global alignment and shared layout allow and whose threads tile the operand exactly.

    Use cp.async for 4 bytes and more; plain loads and stores for 1 or 2 bytes.
    """
    given = spec.g2s.of(x.name)
    if wrong := _impossible(spec, x, given, threads):
        raise wrong
    rejected: list[Rejected] = []
    for bits in store.widths_bits(x.dtype.bits):
        grid = _grid(x, given, bits, threads)
        if (why := _why_not(x, given, bits, grid, threads)) is None:
            assert grid is not None
            return _chosen(x, given, bits, grid, rejected)
        rejected.append(Rejected(f"{bits} bits", why))
    raise _no_width(spec, x, given, rejected, threads)


def _grid(x: OperandTile, given: G2sCopy, bits: int, threads: int) -> Layout | None:
    """Return the spec's thread grid, else the one with the most threads along the contiguous mode, if any."""
    if given.threads is None:
        return store.thread_grid(x.extents, x.major_mode, bits // x.dtype.bits, threads)
    return store.as_threads(given.threads)


def _why_not(x: OperandTile, given: G2sCopy, bits: int, grid: Layout | None, threads: int) -> str | None:
    """Return why the copy is not `bits` wide; None when it can be."""
    if given.bits not in (None, bits):
        return f"the spec requests {given.bits}"
    if given.op == "cp.async.cg" and bits != 128:
        return "cp.async.cg copies 16 bytes only"
    if given.op == "cp.async.ca" and bits < 8 * staging.NARROWEST_CP_ASYNC_BYTES:
        return f"cp.async.ca copies at least {staging.NARROWEST_CP_ASYNC_BYTES} bytes"
    if (why := _narrow(x, bits)) is not None:
        return why
    vector = bits // x.dtype.bits
    if grid is None:
        return f"no grid of {threads} threads with {vector} elements each tiles {extents(x.extents)}"
    rows, columns = store.span(grid, x.major_mode, vector)
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
    if given.op == "cp.async.ca" and _widest_bytes(x) < staging.NARROWEST_CP_ASYNC_BYTES:
        return spec.error(
            f"g2s.{x.name}.op",
            found=f'"{given.op}", but {_narrow(x, 8 * staging.NARROWEST_CP_ASYNC_BYTES)}',
            expected=f'"{UNIVERSAL}": cp.async copies 4, 8 or 16 bytes between addresses aligned to that size',
            fix=f'op = "{UNIVERSAL}", or leave it out',
        )
    covered = threads if given.threads is None else size(store.as_threads(given.threads))
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
    narrower = "cp.async.ca" if widest >= staging.NARROWEST_CP_ASYNC_BYTES and given.op != UNIVERSAL else UNIVERSAL
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
    widths = alternatives([bits // 8 for bits in reversed(store.widths_bits(x.dtype.bits))])
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
    for bits in store.widths_bits(x.dtype.bits):
        grid = store.thread_grid(x.extents, x.major_mode, bits // x.dtype.bits, threads)
        if bits <= 8 * _widest_bytes(x) and grid is not None:
            return f'threads = "{spec_notation(grid)}" with bits = {bits} covers {extents(x.extents)} exactly'
    return "use a larger tile, or fewer warps in mma.atom_layout"


def _op_of(bits: int) -> str:
    if bits == 128:
        return "cp.async.cg"
    return "cp.async.ca" if bits >= 8 * staging.NARROWEST_CP_ASYNC_BYTES else UNIVERSAL


def _chosen(x: OperandTile, given: G2sCopy, bits: int, grid: Layout, rejected: list[Rejected]) -> Choice[VectorCopy]:
    op = given.op or _op_of(bits)
    why = store.contiguous(grid, x.major_mode, bits // 8)
    if given.op is None:
        if op == "cp.async.cg":
            why += "; cg, since a copy to shared memory can bypass L1"
            rejected.append(Rejected("cp.async.ca", "it would also fill L1 with data that is not read from L1 again"))
        elif op == UNIVERSAL:
            why += f"; plain loads and stores, since cp.async copies at least {staging.NARROWEST_CP_ASYNC_BYTES} bytes"
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

    def operand(
        self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target
    ) -> staging.OperandChoices[VectorCopy]:
        """The widest copy, the fragments' loads, and the shared layout that suits both best."""
        g2s, s2r = choose_g2s(spec, x, mma.tiled_mma.threads), choose_s2r(spec, x, mma.tiled_mma, target)
        return staging.choose_layout(spec, x, g2s, s2r, mma.tiled_mma)

    def memory(self, draft: Draft) -> Memory:
        """As many stages as keep the CTAs that registers allow resident; C's tile reuses them after the main loop."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        resident = ctas_by_registers(target, mma.tiled_mma.threads, draft.roles.registers_at_launch)
        asynchronous = not all(each.g2s.value.through_registers for each in draft.operands)
        stages = staging.choose_stages(spec, target, draft.stage_bytes, resident, asynchronous=asynchronous)
        epilogue = store.choose_epilogue(spec, draft.fusion, mma.tiled_mma, mma.cta_tile, target.smem_per_cta_bytes)
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


# Plain copies by every thread, one k-tile at a time, and plain loads straight from shared memory.


# Rules for the copies of A and B: from global memory through registers to shared memory, and back to registers.


def choose_copies(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma) -> staging.OperandChoices[VectorCopy]:
    """Choose the copy and shared layout with the fewest wavefronts; among equals, the fewest instructions.

    A wide vector must stay contiguous in shared memory, and reading it may cause bank conflicts.
    """
    given = spec.g2s.of(x.name)
    _check_given(spec, x, given, tiled_mma.threads)
    impossible: list[Rejected] = []
    possible: list[_Way] = []
    for bits in store.widths_bits(x.dtype.bits):
        copy = _copy(x, given, bits, tiled_mma.threads)
        if isinstance(copy, Rejected):
            impossible.append(copy)
        else:
            possible.append(_way(spec, x, copy, tiled_mma))
    if not possible:
        raise _no_copy(spec, x, given, impossible, tiled_mma.threads)
    chosen = min(possible, key=lambda way: (way.wavefronts, way.instructions))
    rejected = (*impossible, *(_why_not_plain(way, chosen) for way in possible if way is not chosen))
    g2s = Choice(chosen.copy, _decision(x, given, chosen.copy, rejected))
    return staging.OperandChoices(x, g2s, _s2r(spec, x, chosen.together, tiled_mma), chosen.smem)


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
    sliced = (staging.vector_access(x, copy), Access(element, x.dtype.bytes), read)
    write = staging.write_access(x, copy, tiled_mma)
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
    grid = (
        store.thread_grid(x.extents, x.major_mode, vector, threads)
        if given.threads is None
        else store.as_threads(given.threads)
    )
    if grid is None or not _tiles(x, grid, vector):
        what = f"no grid of {threads} threads" if grid is None else f'"{given.threads}" does not'
        return Rejected(
            f"{bits} bits", f"{what} with {vector} elements each tile{'s' * (grid is None)} {extents(x.extents)}"
        )
    return vector_copy(universal_atom(bits), bits, grid, x.major_mode, x.dtype.bits)


def _tiles(x: OperandTile, grid: Layout, vector: int) -> bool:
    rows, columns = store.span(grid, x.major_mode, vector)
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
    key, name, layout = f"g2s.{x.name}.threads", f"t{x.operand}", store.as_threads(given.threads)
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
        bits for bits in store.widths_bits(x.dtype.bits) if not isinstance(_copy(x, unasked, bits, threads), Rejected)
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


def _why_not_plain(way: _Way, chosen: _Way) -> Rejected:
    what = f"{way.copy.bits} bits"
    if way.wavefronts > chosen.wavefronts:
        found = f"{way.wavefronts:,} wavefronts at best, against {chosen.wavefronts:,}"
        wider = way.copy.bits > chosen.copy.bits
        return Rejected(what, f"{found}, since shared memory must keep vectors whole" if wider else found)
    return Rejected(what, f"{way.instructions} instructions per thread, against {chosen.instructions}")


def _decision(x: OperandTile, given: G2sCopy, copy: VectorCopy, rejected: tuple[Rejected, ...]) -> Decision:
    count = x.extents[0] * x.extents[1] // (size(copy.threads) * (copy.bits // x.dtype.bits))
    why = f"{plural(count, 'load')} per thread; {store.contiguous(copy.threads, x.major_mode, copy.bits // 8)}"
    is_given = None not in (given.bits, given.threads)
    chosen = f"{UNIVERSAL} {copy.bits} bits, threads {spec_notation(copy.threads)}"
    return Decision(f"g2s.{x.name}", chosen, why, given=is_given, rejected=rejected)


@dataclass(frozen=True, slots=True)
class Plain(Mainloop):
    """Loads and stores that every target has: one stage, or a second one that is filled while the first is read."""

    keys: ClassVar[PartKeys] = PLAIN_COPIES

    def operand(
        self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target
    ) -> staging.OperandChoices[VectorCopy]:
        """The copy and the shared layout that cost the fewest wavefronts together."""
        return choose_copies(spec, x, mma.tiled_mma)

    def memory(self, draft: Draft) -> Memory:
        """One or two stages; C from registers, or through the stages' memory if the spec requests it."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        stages = staging.choose_plain_stages(spec, target, draft.stage_bytes)
        stages_bytes = staging.pipeline_bytes(draft.stage_bytes, stages.value)
        epilogue = store.choose_store(spec, draft.fusion, mma.tiled_mma, mma.cta_tile, target, stages_bytes)
        return overlaid(draft, stages, epilogue)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """A k-tile is multiplied as a whole: no fragments are kept."""
        (role,), (ab,) = roles.roles, memory.pipelines
        return through_registers(role, ab)
