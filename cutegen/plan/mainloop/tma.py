"""Bulk tensor copies (TMA) by one producer warp, into tiles that the tensor core reads, or that ldmatrix loads.

`TmaSs` is for an instruction that reads both operands in shared memory; `TmaRs` loads fragments to registers.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cutegen.algebra import ComposedLayout, LayoutExpr, tile_to_shape
from cutegen.contract.launch import OPERANDS
from cutegen.errors import SpecError
from cutegen.hardware import Instruction, MmaAtom, Target, gmma, targets_with
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.plan.epilogue.store import choose_parted_epilogue, choose_staged_epilogue
from cutegen.plan.geometry import Coordinates
from cutegen.plan.kernel.memory import (
    ALWAYS,
    BARRIERS,
    Phase,
    Region,
    allocate,
    largest_region,
    result_region,
    slices_region,
)
from cutegen.plan.kernel.pipeline import IDLE, MBARRIER_BYTES, PRODUCER, Pipeline, Role, Scope, mbarriers_bytes
from cutegen.plan.kernel.program import Action, KernelLoop
from cutegen.plan.kernel.scheduler import SUM_BYTES, SplitK
from cutegen.plan.mainloop import programs
from cutegen.plan.mainloop.l2 import choose_eviction, choose_pace, choose_prefetch, choose_programmatic
from cutegen.plan.operands import shared_memory, staging
from cutegen.plan.operands.factors import choose_factors
from cutegen.plan.operands.s2r import choose_s2r, targets_transposing, transposing
from cutegen.plan.parts import CopyPolicy, Draft, Mainloop, Memory, Operands, Roles
from cutegen.plan.predict import available_registers
from cutegen.plan.schedule.consumers import LEAST_TO_COPY, split_registers
from cutegen.plan.schedule.order import InFlight
from cutegen.plan.smem_layouts import looks_like_bytes, rows_of
from cutegen.plan.values.copies import BulkTensorCopy, fetches_of
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.fragments import ByDescriptor, Fragments
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import OperandTile, SmemCandidate
from cutegen.plan.values.path import OperandPath
from cutegen.spec import FAMILIES, GemmSpec
from cutegen.spec.families import COPIED_BOXES, DESCRIBED_BOXES, PartKeys, family_with
from cutegen.support.words import either, extents, plural, round_up

# Rule for shared memory that wgmma reads through a descriptor: a wgmma layout that boxes can write.
#
# A bulk tensor copy writes rows of 128, 64, 32 or 16 bytes, swizzled as wgmma reads them: both support the same layouts
# (`cutegen/hardware/gmma.py`). The widest rows need the fewest copies; none has bank conflicts.


@dataclass(frozen=True, slots=True)
class _Option:
    """One of wgmma's layouts as boxes write it: each box is all rows of the tile, one row of the layout's wide."""

    layout: gmma.GmmaLayout
    x: OperandTile

    @property
    def box(self) -> LayoutExpr:
        """A box: (X, K) -> offset in elements."""
        x, width = self.x, self.layout.width(self.x.dtype.bits)
        affine = rows_of(x.extents[1 - x.major_mode], width, x.major_mode)
        swizzle = self.layout.mode.swizzle(x.dtype.bits)
        return affine if swizzle is None else ComposedLayout(swizzle, affine)

    @property
    def tile(self) -> LayoutExpr:
        """The boxes side by side: (X, K) -> offset in elements."""
        return tile_to_shape(self.box, self.x.extents)

    @property
    def boxes(self) -> int:
        """Number of boxes of the tile."""
        return self.x.extents[self.x.major_mode] // self.layout.width(self.x.dtype.bits)

    def refusal(self, atom: MmaAtom) -> str:
        """Return why no descriptor describes it, or nothing: an instruction's rows may end within a row of boxes."""
        try:
            gmma.operand_descriptors(self.tile, self.x.major_mode, self.x.dtype.bytes, _rows(self.x, atom))
        except gmma.NoDescriptorError as error:
            return f"no matrix descriptor: {error}"
        return ""

    def candidate(self) -> SmemCandidate:
        """Return its row in the ranking: the writes of the copies, and one read by the tensor core."""
        x = self.x
        return SmemCandidate(
            name=self.layout.name,
            atom=self.box,
            swizzle=self.layout.mode.swizzle(x.dtype.bits),
            pad_elems=0,
            tile_bytes=x.extents[0] * x.extents[1] * x.dtype.bytes,
            write=shared_memory.full_lines(x),
            read=shared_memory.Access(core_matrices(x), gmma.VECTOR_BYTES).count(self.tile, x.dtype.bytes),
        )


def core_matrices(x: OperandTile) -> Coordinates:
    """Elements that begin the rows of each core matrix, int64[matrix, 1, row], in column-major coordinates of the tile.

    A core matrix is what the tensor core reads from shared memory at once, 8 rows of 16 bytes along the contiguous mode
    (PTX ISA, "Shared Memory Matrix Layout").
    """
    along, across = x.extents[x.major_mode], x.extents[1 - x.major_mode]
    begin, row = np.arange(0, along, gmma.VECTOR_BYTES // x.dtype.bytes), np.arange(across)
    strides = (1, x.extents[0]) if x.major_mode == 0 else (x.extents[0], 1)
    table: Coordinates = begin[:, None] * strides[0] + row * strides[1]  # [vector along, row across]
    return table.reshape(-1, 1, gmma.ATOM_ROWS)


def choose_described(
    spec: GemmSpec, x: OperandTile, mma: MmaPlan
) -> tuple[Choice[shared_memory.SmemRanking], Choice[Fragments]]:
    """Choose the widest layout that tiles the operand, or the one that the spec requests, and its descriptor.

    Raises SpecError if the tile has none, or the spec requests one without a descriptor or that no box writes.
    """
    layouts = gmma.gmma_layouts(x.extents, x.major_mode, x.dtype.bits)
    if x.run_elems is not None:  # a box's row is contiguous in global memory
        layouts = tuple(layout for layout in layouts if x.run_elems % layout.width(x.dtype.bits) == 0)
    fitting = tuple(_Option(layout, x) for layout in layouts)
    reasons = {option.layout.name: option.refusal(mma.atom) for option in fitting}
    options = tuple(option for option in fitting if not reasons[option.layout.name])
    if not options:
        raise spec.error(
            "tile.cta",
            found=f"{extents(x.extents)} {x.dtype.name} for {x.name.upper()}",
            expected=f"rows of a multiple of {gmma.VECTOR_BYTES} bytes along {x.major}, and {gmma.ATOM_ROWS} or more "
            "of them: the layouts of a matrix descriptor",
        )
    asked = _asked(spec, x, options, mma.atom)
    chosen = asked or options[0]
    rows = tuple(option.candidate() for option in options)
    why = f"{_copies(chosen.boxes)} of rows of {chosen.layout.mode.row_bytes} bytes"
    why += "; the tensor core reads 8 rows of 16 bytes at once, without bank conflicts"
    rejected = tuple(
        Rejected(other.layout.name, reasons[other.layout.name] or _why_not(other, chosen))
        for other in fitting
        if other is not chosen
    )
    smem = Decision(x.smem_key, chosen.layout.name, f"given; {why}" if asked else why, bool(asked), rejected)
    ranking = shared_memory.SmemRanking(chosen.candidate(), rows)
    return Choice(ranking, smem), _described(x, chosen, mma)


def _why_not(other: _Option, chosen: _Option) -> str:
    if other.boxes > chosen.boxes:
        return f"{_copies(other.boxes)} instead of {chosen.boxes}"
    return "not what the spec requests, though it needs fewer copies"


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _described(x: OperandTile, option: _Option, mma: MmaPlan) -> Choice[Fragments]:
    """Return the tile's descriptor, and how often instructions read the tile."""
    m, n, _ = mma.multiplied
    atom_m, atom_n, _ = mma.atom.shape_mnk
    times = n // atom_n if x.name == "a" else m // atom_m
    found = gmma.operand_descriptors(option.tile, x.major_mode, x.dtype.bytes, _rows(x, mma.atom))
    first = replace(found.first, version=mma.atom.multiply.descriptor_version)
    layout = option.layout
    source = ByDescriptor(layout=layout, first=first, times=times)
    why = (
        f"{_name(mma.atom)} reads {x.name.upper()} from shared memory: no thread loads or holds fragments; "
        f"{plural(times, 'time')} per k-tile"
    )
    return Choice(source, Decision(f"descriptor.{x.name}", f"{layout.name} by matrix descriptor", why))


def _name(atom: MmaAtom) -> str:
    return atom.instruction.partition(".")[0]


def _rows(x: OperandTile, atom: MmaAtom) -> int:
    """Rows of the block that one instruction reads."""
    return atom.rows(x.operand)


def _asked(spec: GemmSpec, x: OperandTile, options: tuple[_Option, ...], atom: MmaAtom) -> _Option | None:
    """Return the option that the spec requests; None if it leaves the layout open."""
    if not x.requested:
        return None
    for option in options:
        if shared_memory.is_requested(spec, x, option.layout.mode.swizzle(x.dtype.bits), option.box):
            return option
    raise _not_described(spec, x, options, atom)


def _not_described(spec: GemmSpec, x: OperandTile, options: tuple[_Option, ...], atom: MmaAtom) -> SpecError:
    """Return the refusal of a layout that no descriptor describes, or that no bulk tensor copy writes."""
    layout = tile_to_shape(x.requested[0].atom, x.extents)
    try:
        gmma.operand_descriptors(layout, x.major_mode, x.dtype.bytes, _rows(x, atom))
        reason = "a descriptor describes it, but bulk tensor copies write another layout"
    except gmma.NoDescriptorError as error:
        reason = f"no matrix descriptor: {error}"
    offered = [option.layout.mode.swizzle(x.dtype.bits) for option in options]
    fix = looks_like_bytes(x.requested[0].swizzle, x.dtype.bytes, offered.__contains__) or shared_memory.swizzle_fix(
        offered[0]
    )
    other = family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR)
    return spec.error(
        x.smem_key,
        found=f"{x.requested[0].name}: {reason}",
        expected=f"one for both {_name(atom)} and tensor maps: {', '.join(option.layout.name for option in options)}",
        fix=f'{fix}; family = "{other}" loads fragments from any layout of boxes',
    )


# Bulk tensor copies (TMA) that one producer warp issues.
#
# The producer warp and the MMA warps synchronize through two mbarriers per stage; no thread waits for a whole CTA. The
# MMA warps load fragments of a stage (`TmaRs`), or read it in shared memory (`TmaSs`).


INSTRUCTIONS = {
    Instruction.WGMMA: "wgmma",
    Instruction.TCGEN05: "tcgen05",
    Instruction.BULK_TENSOR: "bulk tensor copies",
}
"""Names of instructions that a target may lack, the rarest first."""


class Bulk(Mainloop):
    """One warp of a separate warpgroup copies: registers are reallocated per warpgroup.

    A subclass says how the MMA warps read a stage and store C. `to_copy` are the registers that a thread of the
    producer warpgroup may keep; `least_stages` are the fewest that avoid a deadlock.
    """

    __slots__ = ()
    reserved_bytes: ClassVar[int] = staging.MOST_BARRIERS_BYTES
    begins_at_vectors: ClassVar[bool] = False
    to_copy: ClassVar[tuple[int, ...]]
    least_stages: ClassVar[int]
    most_stages: ClassVar[int]

    @abstractmethod
    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Choose the store path of C, given the bytes of a stage and the registers per thread."""

    @abstractmethod
    def c_store(self, mma: Role, epilogue: EpiloguePlan) -> Pipeline | None:
        """Return the pipeline of C's buffers, if C is stored from shared memory."""

    def check(self, spec: GemmSpec, target: Target, family: str) -> None:
        """Raise SpecError for a target that lacks an instruction of the family, or an operand that TMA cannot address.

        These are the operands of calls: a refusal names them before `schedule.swap` exchanges them.
        """
        needs, by_threads = FAMILIES[family].needs, family_with(Instruction.MMA_SYNC, Instruction.CP_ASYNC)
        if target.has(*needs):
            for name in OPERANDS:
                shared_memory.check_align(spec, name, f"{spec.in_family(by_threads)} copies from any address")
                check = shared_memory.check_begins_at_vectors if self.begins_at_vectors else shared_memory.check_begins
                check(spec, name, f"{spec.in_family(by_threads)} copies from any address")
            return
        having = targets_with(*needs)
        lacking = next((words for each, words in INSTRUCTIONS.items() if each in needs and not target.has(each)), "")
        others = (family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR), by_threads, *FAMILIES)
        fits = [each for each in others if target.has(*FAMILIES[each].needs) and not spec.lacked_by(each)]
        raise spec.error(
            "family",
            found=f'"{family}" for {target.name}',
            expected=f"{either(having)}, which {'has' if len(having) == 1 else 'have'} {lacking}",
            fix=f"--arch {having[0]}" + (f', or family = "{fits[0]}"' if fits else ""),
        )

    def roles(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Roles:
        """Split all registers of an SM between the consumers and the warpgroup of the producer warp."""
        threads = mma.threads + WARPGROUP
        if threads > target.threads_per_cta:
            raise spec.error(
                "mma.atom_layout",
                found=f"{mma.threads} consumer threads and {WARPGROUP} producer threads",
                expected=f"at most {target.threads_per_cta} threads in total",
            )
        split, decision = split_registers(target, mma.threads, to_copy=self.to_copy, wanted=estimate)
        of_mma, kept = (split.mma, split.producer) if split else (None, None)
        return Roles(
            roles=(
                replace(mma.role, registers=of_mma),
                Role(name=PRODUCER, threads=WARP, registers=kept),
                Role(name=IDLE, threads=WARPGROUP - WARP, registers=kept),
            ),
            registers_at_launch=available_registers(target, threads),
            decisions=(decision,),
        )

    def memory(self, draft: Draft) -> Memory:
        """Place C after the stages, which the next tile's copies fill while C is stored."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        stage_bytes, gaps_bytes = sum(draft.stage_bytes), staging.most_gap_bytes(draft.stage_bytes)
        largest_bytes = _largest_bytes(draft.fusion, mma)
        capacity = staging.capacity_bytes(target) - gaps_bytes - largest_bytes
        role, producer, _ = draft.roles.roles
        of_thread = role.registers or draft.roles.registers_at_launch
        epilogue = self.epilogue(spec, draft.fusion, mma, of_thread, stage_bytes, capacity)
        c = epilogue.value.smem
        c_bytes = round_up(c.bytes, staging.SWIZZLE_PERIOD_BYTES) if c else 0
        reserved_bytes = c_bytes + largest_bytes + staging.MOST_BARRIERS_BYTES + gaps_bytes
        least, why = self.least_stages, "a stage is released while the next one is being multiplied"
        if (for_sums := staging.stages_for_sums(mma, stage_bytes)) > least:
            least, why = for_sums, "the stages hold a tile's sums while a cluster adds them"
        stages = staging.choose_stages(
            spec, target, draft.stage_bytes, 1, reserved_bytes, most=self.most_stages, least=least, why_least=why
        )
        (m, n, k), (tile_m, tile_n, _) = mma.cluster, mma.cta_tile
        fetches = fetches_of(each.g2s.value for each in draft.operands)
        boxes_bytes = sum(each.stage_bytes for each in draft.operands if each.g2s.value.fetch is Action.BULK_FETCH)
        ab = programs.copied_in_bulk(role, stages.value, boxes_bytes, ctas=m + n - 1, fetches=fetches)
        store, sums_bytes = self.c_store(role, epilogue.value), tile_m * tile_n * SUM_BYTES
        added = (programs.slices_in_cluster(role, producer, sums_bytes, ctas=m * n * k),) if k > 1 else ()
        pipelines = (ab, *programs.turns(role), *((store,) if store else ()), *added)
        # One thread tells others by a flag that its CTA was the last.
        barriers_bytes = mbarriers_bytes(pipelines) + (staging.FLAG_BYTES if spec.schedule.slices > 1 else 0)
        # No k-tile is copied while a cluster adds.
        filled = ALWAYS - {Phase.SLICES} if added else ALWAYS
        regions = [*draft.stage_regions(stages.value, staging.SWIZZLE_PERIOD_BYTES, filled)]
        if added:
            regions.append(slices_region(sums_bytes, staging.SWIZZLE_PERIOD_BYTES))
        if c is not None:
            regions.append(result_region(c_bytes, staging.SWIZZLE_PERIOD_BYTES))
        if largest_bytes:
            regions.append(largest_region(largest_bytes))
        regions.append(
            Region(
                name=BARRIERS,
                owner=BARRIERS,
                bytes=barriers_bytes,
                align_bytes=MBARRIER_BYTES,
            )
        )
        return Memory(stages=stages, epilogue=epilogue, regions=allocate(regions), pipelines=pipelines)


def _largest_bytes(fusion: Fusion, mma: MmaPlan) -> int:
    """Return the memory in which warps find the largest magnitudes of a quantized C, of all tiles in flight."""
    if fusion.quantization is None:
        return 0
    tiles = mma.threads // mma.tiled_mma.threads
    return tiles * fusion.quantization.largest_bytes(fusion.tile_of_c(mma.cta_tile[:2]))


# Loads fragments by ldmatrix from tiles of bulk tensor copies; stores C's whole tile through shared memory.


@dataclass(frozen=True, slots=True)
class TmaRs(Bulk):
    """Warps read a stage, and each releases it when its last fragments are in registers."""

    keys: ClassVar[PartKeys] = COPIED_BOXES
    to_copy: ClassVar[tuple[int, ...]] = (LEAST_TO_COPY,)
    least_stages: ClassVar[int] = 1
    most_stages: ClassVar[int] = staging.DEFAULT_MAX_STAGES

    def operand(
        self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target
    ) -> staging.OperandChoices[BulkTensorCopy]:
        """Fragments decide the shared layout, and the layout decides the boxes."""
        shared_memory.check_rows(spec, x)
        s2r = choose_s2r(spec, x, mma.tiled_mma, target)
        if not s2r.value.by_ldmatrix:
            open_layout = replace(x, requested=(), vector_elems=gmma.VECTOR_BYTES // x.dtype.bytes)
            by_layout = choose_s2r(spec, open_layout, mma.tiled_mma, target).value.by_ldmatrix
            raise _no_plain_loads(spec, x, s2r.decision, target, by_layout=by_layout)
        read = staging.fragment_access(x, s2r.value, mma.tiled_mma)
        smem = shared_memory.rank_boxes(spec, x, mma.tiled_mma, shared_memory.full_lines(x), read)
        return staging.OperandChoices(x, shared_memory.choose_bulk_copy(spec, x, smem.value.chosen.atom), s2r, smem)

    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Store all of C's tile at once, if that leaves enough stages."""
        return choose_staged_epilogue(spec, fusion, mma.tiled_mma, mma.cta_tile, stage_bytes, capacity_bytes)

    def c_store(self, mma: Role, epilogue: EpiloguePlan) -> Pipeline | None:
        """One buffer for all of C's tile, which all MMA warps write."""
        if epilogue.smem is None:
            return None
        return programs.stored_in_bulk(mma, 1, epilogue.smem.bytes, scope=Scope.CTA)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """Fragments are loaded one k-block ahead."""
        return programs.produced(roles.roles, memory.pipelines, mma.k_blocks, programs.epilogue(memory.pipelines, 1))


def _no_plain_loads(
    spec: GemmSpec, x: OperandTile, decision: Decision, target: Target, *, by_layout: bool
) -> SpecError:
    """Return the error if ldmatrix cannot load fragments, at the key of the atom, the shared layout or the major.

    `by_layout` if it could without the layout that the spec gives.
    """
    fix = f'family = "{family_with(Instruction.CP_ASYNC)}" has plain loads'
    if decision.given:
        return spec.error(f"s2r.{x.name}.atom", found='"universal"', expected="an ldmatrix", fix=fix)
    if by_layout:
        way_out = f"leave {x.smem_key} out, or {fix}"
        return spec.error(x.smem_key, found=decision.why, expected="what ldmatrix can load", fix=way_out)
    elsewhere = "" if transposing(x.dtype.bits, target) else targets_transposing(x.dtype.bits)
    return spec.error(
        f"problem.{x.name}.major",
        found=f'"{x.major}" for {target.name}: {decision.why}',
        expected='"k", or an operand that ldmatrix transposes',
        fix=f"{fix}, and {elsewhere} an ldmatrix for {x.dtype.name}" if elsewhere else fix,
    )


# Operands that the tensor core reads in shared memory, and C stored in parts, each by one warpgroup.
#
# A warpgroup releases a stage when its multiplications are done, which it learns one k-tile later.


@dataclass(frozen=True, slots=True)
class TmaSs(Bulk):
    """Only sums are in registers, so the producer warps can keep a few more."""

    keys: ClassVar[PartKeys] = DESCRIBED_BOXES
    begins_at_vectors: ClassVar[bool] = True
    to_copy: ClassVar[tuple[int, ...]] = (40, 32, LEAST_TO_COPY)
    least_stages: ClassVar[int] = 2
    most_stages: ClassVar[int] = staging.DEEPEST[-1]

    def operands(self, spec: GemmSpec, mma: MmaPlan, target: Target) -> Operands:
        """A and B, and the factors of their blocks."""
        return (*Mainloop.operands(self, spec, mma, target), *choose_factors(spec, mma, by_lanes=True))

    def operand(
        self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target
    ) -> staging.OperandChoices[BulkTensorCopy]:
        """The layout decides the boxes and the descriptor."""
        shared_memory.check_rows(spec, x)
        smem, described = choose_described(spec, x, mma)
        g2s = shared_memory.choose_bulk_copy(spec, x, smem.value.chosen.atom, mma.sharing[OPERANDS.index(x.name)])
        return staging.OperandChoices(x, g2s, described, smem)

    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Two parts per warpgroup, to leave memory for stages."""
        return choose_parted_epilogue(spec, fusion, mma, registers, stage_bytes, capacity_bytes)

    def c_store(self, mma: Role, epilogue: EpiloguePlan) -> Pipeline | None:
        """The buffers of each warpgroup, which writes them alone."""
        if epilogue.smem is None or epilogue.parts is None:
            return None
        buffers = epilogue.parts.buffers * epilogue.parts.warpgroups
        return programs.stored_in_bulk(mma, buffers // mma.groups, epilogue.smem.bytes // buffers, scope=Scope.GROUP)

    def policy(
        self, spec: GemmSpec, target: Target, mma: MmaPlan, split_k: SplitK | None, in_flight: InFlight | None
    ) -> CopyPolicy:
        """The producer warp has a policy of the L2 cache, the warps that wait prefetch, and any of them can wait."""
        evicted_first, l2_decisions = choose_eviction(spec, in_flight)
        prefetched, prefetch_decisions = choose_prefetch(spec, mma, in_flight, evicted_first)
        pace, pace_decisions = choose_pace(spec, target, mma)
        beginning, launch_decisions = choose_programmatic(spec, mma, split_k)
        return CopyPolicy(
            evicted_first=evicted_first,
            prefetched=prefetched,
            pace=pace,
            programmatic=beginning.programmatic,
            ahead=beginning.ahead,
            of_l2=(*l2_decisions, *prefetch_decisions),
            of_time=(*pace_decisions, *launch_decisions),
        )

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """One group of multiplications per k-tile, with a wait for each if its sums may be promoted."""
        parts = memory.epilogue.value.parts
        assert parts is not None  # warpgroups store C only in parts
        kernel = roles.roles, memory.pipelines, mma.k_blocks, programs.epilogue(memory.pipelines, parts.of_cta)
        if (promotion := mma.accumulator.promotion) is not None:
            return programs.promoted(*kernel, promotion=promotion, fetches=fetches_of(x.g2s for x in operands))
        return programs.multiplied_from_shared(*kernel)
