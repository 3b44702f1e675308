"""Rules for the stages: k-tiles in flight, the memory that holds them, and the copies there and from there."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar

from cutegen.algebra import Extents, LayoutExpr, TiledMma
from cutegen.contract.launch import OPERANDS
from cutegen.errors import SpecError
from cutegen.hardware import UNIVERSAL, Instruction, Target, dtype
from cutegen.hardware.units import BANK_ROW_BYTES, LINE_BYTES
from cutegen.plan.geometry import Coordinates, along_and_across, by_warp, contiguity, joined, vectors
from cutegen.plan.kernel.pipeline import MBARRIER_BYTES
from cutegen.plan.kernel.scheduler import SUM_BYTES
from cutegen.plan.operands.shared_memory import Access, AccessOf, SmemRanking, choose_smem, lay_out
from cutegen.plan.predict import ctas_by_smem
from cutegen.plan.values.copies import TileCopy, VectorCopy, passing_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.fragments import FragmentCopy, Fragments, LdmatrixLoads, PlainLoads
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import LAST_MODE, OperandTile, align_bytes, k_tile_bytes_of_each
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.spec.families import family_with
from cutegen.spec.values import MOST_STAGES
from cutegen.support.words import either, plural, round_up

# Rules for the stages: how many k-tiles are in flight, and the shared memory and registers that hold them.


# Rules for the pipeline: how many k-tiles are in flight.


STAGES = range(1, 9)
"""Numbers of stages that are compared for a problem with `mma.sync`."""
DEEPEST = range(1, MOST_STAGES + 1)
"""The most stages of warpgroups, which release a stage late, while they multiply the next one."""
DEFAULT_MAX_STAGES = 4
"""The most stages chosen with `mma.sync`, except for tiles that a problem selects."""
DOUBLE_BUFFERED = 2
"""One k-tile is multiplied while the other is filled."""


def pipeline_bytes(stage_bytes: Iterable[int], stages: int) -> int:
    """Return the bytes of the stages of all operands; each operand's begin at a row of banks.

    >>> pipeline_bytes((8200, 4096), 2)
    24704
    """
    total = 0
    for each in stage_bytes:
        total += round_up(each * stages, BANK_ROW_BYTES)
    return total


def choose_stages(
    spec: GemmSpec,
    target: Target,
    stage_bytes: tuple[int, ...],
    ctas_by_registers: int,
    reserved_bytes: int = 0,
    *,
    asynchronous: bool = True,
    most: int = DEFAULT_MAX_STAGES,
    least: int = STAGES[0],
    why_least: str = "",
) -> Choice[int]:
    """Choose how many k-tiles shared memory holds at once, in addition to `reserved_bytes` for other data.

    Choose the deepest pipeline of `least` to `most` stages that keeps as many CTAs resident as registers allow; two
    stages if nothing is copied `asynchronous`ly, and one only if two do not fit.
    """
    totals = {stages: pipeline_bytes(stage_bytes, stages) + reserved_bytes for stages in DEEPEST}
    fitting = [stages for stages, total in totals.items() if stages >= least and total <= target.smem_per_cta_bytes]
    given = spec.tile.stages
    if given is not None and given < least:
        raise spec.error(
            "tile.stages",
            found=str(given),
            expected=f"{least} or more: {why_least}",
            fix=f"tile.stages = {least}",
        )
    if not fitting or given not in (None, *fitting):
        raise too_much(spec, target, stage_bytes, given or least, fitting, reserved_bytes)
    if given is not None:
        return Choice(given, Decision.as_given("tile.stages", str(given)))

    def resident(stages: int) -> int:
        return min(ctas_by_registers, ctas_by_smem(target, totals[stages]))

    most = most if asynchronous else DOUBLE_BUFFERED
    options = [stages for stages in fitting if DOUBLE_BUFFERED <= stages <= most] or fitting
    chosen = max(options, key=lambda stages: (resident(stages), stages))
    capacity = target.smem_per_cta_bytes
    rejected = [
        Rejected(plural(stages, "stage"), f"{plural(resident(stages), 'CTA')} per SM, {totals[stages]:,} bytes")
        for stages in options
        if stages != chosen
    ]
    rejected += [
        Rejected(plural(stages, "stage"), f"{totals[stages]:,} bytes > {capacity:,}")
        for stages in DEEPEST
        if options[-1] < stages <= most
    ]
    if not asynchronous:
        rejected.append(
            Rejected("more", "the next k-tile is held in registers, so more stages would not be filled sooner")
        )
    why = (
        f"the deepest of at most {most} that leaves {plural(resident(chosen), 'CTA')} per SM; "
        f"{sum(stage_bytes):,} bytes per stage"
    )
    return Choice(chosen, Decision("tile.stages", str(chosen), why, rejected=tuple(rejected)))


def check_stage(spec: GemmSpec, target: Target, cta_tile: Extents, reserved_bytes: int = 0) -> None:
    """Raise SpecError for a CTA tile of which not even one stage fits, whatever its layouts.

    It precedes the rules that look at every element: their tables take 50 times the tile's bytes.
    """
    stage_bytes = k_tile_bytes_of_each(spec, cta_tile)
    if pipeline_bytes(stage_bytes, 1) + reserved_bytes > target.smem_per_cta_bytes:
        raise too_much(spec, target, stage_bytes, spec.tile.stages or STAGES[0], [], reserved_bytes)


def too_much(
    spec: GemmSpec,
    target: Target,
    stage_bytes: tuple[int, ...],
    stages: int,
    fitting: list[int],
    reserved_bytes: int = 0,
) -> SpecError:
    """Return the error if so many stages do not fit in shared memory; `fitting` ones do."""
    total = pipeline_bytes(stage_bytes, stages) + reserved_bytes
    several = [count for count in fitting if count >= DOUBLE_BUFFERED]
    fits = f"{either([str(count) for count in several])} stages fit" if several else "one stage fits"
    beside = f" + {reserved_bytes:,}" if reserved_bytes else ""
    arithmetic = f"{stages} x ({' + '.join(f'{each:,}' for each in stage_bytes)}){beside} = {total:,} bytes"
    return spec.error(
        "tile.stages" if fitting else "tile.cta",
        found=f"{plural(stages, 'stage')}: {arithmetic} > {target.smem_per_cta_bytes:,}",
        expected=f"at most {target.smem_per_cta_bytes:,} bytes of shared memory per CTA on {target.name}",
        fix=fits if fitting else "not even one stage fits; use a smaller tile",
    )


# Shared memory of a CTA: A's and B's stages, then C's tile, and two barriers per stage at the end.
#
# If a cluster adds slices of K, the stages hold a tile's sums after the main loop: separate memory would cost stages,
# and a CTA rarely has more than one tile.


SWIZZLE_PERIOD_BYTES = 1024
"""Alignment of a tile's start: the longest period of a tensor map's swizzle, 8 rows of 128 bytes."""
FLAG_BYTES = 16
"""The flag of the CTA that arrived last, aligned like barriers of one more stage."""
MOST_BARRIERS_BYTES = 2 * MBARRIER_BYTES * (DEEPEST[-1] + 1)
"""Barriers of the stages, and two for warpgroups that take turns, or the flag of the CTA that arrived last."""


def stages_for_sums(mma: MmaPlan, stage_bytes: int) -> int:
    """The fewest stages that can hold a tile's sums if a cluster adds them; else 0."""
    m, n, _ = mma.cta_tile
    return -(-m * n * SUM_BYTES // stage_bytes) if mma.cluster[2] > 1 else 0


def most_gap_bytes(stage_bytes: Iterable[int]) -> int:
    """Return the most bytes between regions: the next one begins at a period of the swizzle, whatever the stages."""
    return SWIZZLE_PERIOD_BYTES * sum(each % SWIZZLE_PERIOD_BYTES > 0 for each in stage_bytes)


def capacity_bytes(target: Target) -> int:
    """Return the bytes for stages and C's tile: all but the barriers of the most stages."""
    return target.smem_per_cta_bytes - MOST_BARRIERS_BYTES


# Rule for the stages: one k-tile at a time, or the next one loaded to registers meanwhile.


PLAIN_STAGES = {
    1: "a k-tile is copied, then multiplied, with a barrier after each; loads from global memory are not overlapped",
    2: "the next k-tile is loaded to registers while this one is multiplied, with one barrier per k-tile",
}


def choose_plain_stages(spec: GemmSpec, target: Target, stage_bytes: tuple[int, ...]) -> Choice[int]:
    """Choose two stages if they fit. Raises SpecError for numbers other than one and two, and for what does not fit."""
    given = spec.tile.stages
    if given not in (None, *PLAIN_STAGES):
        raise spec.error(
            "tile.stages",
            found=str(given),
            expected="1 or 2: a thread's registers hold one k-tile in flight",
            fix=f'2 is the nearest; family = "{family_with(Instruction.CP_ASYNC)}" has deeper pipelines with cp.async',
        )
    fitting = [stages for stages in PLAIN_STAGES if pipeline_bytes(stage_bytes, stages) <= target.smem_per_cta_bytes]
    if not fitting or given not in (None, *fitting):
        raise too_much(spec, target, stage_bytes, given or 1, fitting)
    if given is not None:
        return Choice(given, Decision.as_given("tile.stages", str(given), PLAIN_STAGES[given]))
    chosen = fitting[-1]
    why_not = {1: PLAIN_STAGES[1], 2: f"{pipeline_bytes(stage_bytes, 2):,} bytes > {target.smem_per_cta_bytes:,}"}
    rejected = tuple(Rejected(f"{x} stage{'s' * (x > 1)}", why_not[x]) for x in PLAIN_STAGES if x != chosen)
    return Choice(chosen, Decision("tile.stages", str(chosen), PLAIN_STAGES[chosen], rejected=rejected))


# Registers that hold a k-tile on its way to shared memory, if plain loads and stores copy it.


NARROWEST_CP_ASYNC_BYTES = 4


def through_registers(spec: GemmSpec, name: str) -> bool:
    """Return whether plain loads and stores copy A or B: the spec requests it, or no cp.async is narrow enough."""
    given = spec.g2s.of(name)
    align = align_bytes(spec.problem.operand(name))
    widest_bytes = align if given.bits is None else min(align, given.bits // 8)
    return given.op == UNIVERSAL or (given.op is None and widest_bytes < NARROWEST_CP_ASYNC_BYTES)


def expected_registers(spec: GemmSpec, cta_tile: Extents, threads: int) -> int:
    """Return the registers per thread for the k-tiles of both operands, before their copies are settled."""
    total = 0
    for name, k_tile in zip(OPERANDS, k_tile_bytes_of_each(spec, cta_tile), strict=True):
        if through_registers(spec, name):
            operand = spec.problem.operand(name)
            bits = spec.g2s.of(name).bits or 8 * min(align_bytes(operand), 16)
            element = dtype(operand.dtype)
            total += passing_registers(k_tile // element.bytes, element.bits, bits, threads)
    return total


# Selections for A or B: its copies, and the shared layout that suits both best.


CopyT = TypeVar("CopyT", bound=TileCopy)


@dataclass(frozen=True, slots=True)
class OperandChoices(Generic[CopyT]):
    """Everything settled for A or B before the number of stages, which depends on a stage's bytes."""

    tile: OperandTile
    g2s: Choice[CopyT]
    s2r: Choice[Fragments]
    smem: Choice[SmemRanking]

    @property
    def stage_bytes(self) -> int:
        """Bytes of the tile in one stage."""
        return self.smem.value.chosen.tile_bytes

    @property
    def passing_registers(self) -> int:
        """Registers per thread for its share of a k-tile on the way to shared memory; only plain copies use any."""
        return self.g2s.value.passing_registers(self.tile.extents, self.tile.dtype)

    def plan(self, stages: int) -> OperandPath:
        """The operand's part of the plan."""
        x = self.tile
        return OperandPath(
            name=x.name,
            operand=x.operand,
            dtype=x.dtype,
            multiplied=x.multiplied,
            modes=x.modes,
            major=x.major,
            align_bytes=x.align_bytes,
            tile=x.extents,
            g2s=self.g2s.value,
            smem=lay_out(self.smem.value, x.extents, stages),
            s2r=self.s2r.value,
            block=x.block,
            block_elems=x.block_elems,
            box_step=x.box_step,
        )


def choose_layout(
    spec: GemmSpec, x: OperandTile, g2s: Choice[VectorCopy], s2r: Choice[FragmentCopy], tiled_mma: TiledMma
) -> OperandChoices[VectorCopy]:
    """Choose the shared layout for the two copies.

    A layout that the spec gives limits the copies; else the copies are chosen first and the layout is ranked for them.
    """
    of_chosen = fragment_access(x, s2r.value, tiled_mma)
    read = read_access(x, s2r.value, tiled_mma, of_chosen)
    # Each cp.async gets its own address; all other copies take a slice of the layout.
    sliced = (vector_access(x, g2s.value), of_chosen) if g2s.value.through_registers else (of_chosen,)
    write = write_access(x, g2s.value, tiled_mma)
    smem = choose_smem(spec, x, tiled_mma, write, read, sliced, g2s.value.tiled_copy)
    return OperandChoices(x, g2s, s2r, smem)


def vector_access(x: OperandTile, copy: VectorCopy) -> Access:
    """Return the addresses that the lanes of each store to shared memory have."""
    first = by_warp(vectors(copy.threads, copy.values, x.extents)[..., 0])
    source = source_bytes(x, first) if copy.bypasses_l1 else None
    return Access(first, copy.bits // 8, at_once=len(first), source_bytes=source)


def source_bytes(x: OperandTile, coordinates: Coordinates) -> Coordinates:
    """Return where elements of a tile lie in global memory; each row begins at a line."""
    along, across = along_and_across(coordinates, x.extents, x.major_mode)
    row_bytes = round_up(x.extents[x.major_mode] * x.dtype.bytes, LINE_BYTES)
    return across * row_bytes + along * x.dtype.bytes


def write_access(x: OperandTile, copy: VectorCopy, tiled_mma: TiledMma) -> AccessOf:
    """Return the addresses of the compiled stores: the compiler may merge those of `vector_access`."""
    plain = vector_access(x, copy)

    def of(layout: LayoutExpr) -> Access:
        if not copy.joins(x.dtype, tiled_mma):
            return plain
        first, lengths = joined(copy.threads, copy.values, layout, x.extents, x.dtype.bits)
        return Access(by_warp(first), lengths[0] * x.dtype.bytes) if len(set(lengths)) == 1 else plain

    return of


def fragment_access(x: OperandTile, s2r: FragmentCopy, tiled_mma: TiledMma) -> Access:
    """Return the addresses of the lanes of each fragment load: for ldmatrix, one lane per row."""
    loads = s2r.table(x.operand, x.extents, x.dtype, tiled_mma)
    return Access(loads.addressed, loads.access_bytes)


def read_access(x: OperandTile, s2r: FragmentCopy, tiled_mma: TiledMma, of_chosen: Access) -> Access | AccessOf:
    """Return the same for any layout: plain loads are as wide as the runs along K that it keeps contiguous.

    If the spec requests no layout, all compared layouts keep as many together as the chosen loads need.
    """

    def plain(loads: PlainLoads) -> Access | AccessOf:
        wide = cache(lambda bits: fragment_access(x, replace(loads, bits=bits), tiled_mma))
        return lambda layout: wide(min(loads.bits, contiguity(layout, x.extents, LAST_MODE) * x.dtype.bits))

    def by_ldmatrix(_: LdmatrixLoads) -> Access | AccessOf:
        return of_chosen

    return s2r.by_kind(ldmatrix=by_ldmatrix, plain=plain) if x.requested else of_chosen
