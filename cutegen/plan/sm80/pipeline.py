"""Rules for the pipeline and the tile order: how many k-tiles are in flight, and in which order CTAs visit C."""

from __future__ import annotations

from cutegen.arch import Target
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import RasterPlan
from cutegen.plan.text import plural
from cutegen.spec import GemmSpec, Raster

MIN_STAGES, MAX_STAGES, DEFAULT_MAX_STAGES = 2, 8, 4
SMEM_ALIGN_BYTES = 128
DEFAULT_RASTER_GROUP = 8


def smem_offsets(stage_bytes: tuple[int, int], stages: int) -> tuple[int, int]:
    """(offset of B, total) in bytes: A's stages, then B's, each starting at a whole line of banks."""
    offset_b = round_up(stage_bytes[0] * stages, SMEM_ALIGN_BYTES)
    return offset_b, round_up(offset_b + stage_bytes[1] * stages, SMEM_ALIGN_BYTES)


def round_up(value: int, unit: int) -> int:
    """The least multiple of `unit` that is at least `value`."""
    return -(-value // unit) * unit


def choose_stages(spec: GemmSpec, target: Target, stage_bytes: tuple[int, int], ctas_by_registers: int) -> Choice[int]:
    """How many k-tiles shared memory holds at once.

    The deepest pipeline of at most four stages that keeps as many CTAs resident as registers allow.
    """
    capacity = target.smem_per_cta_bytes
    fitting = [count for count in range(MIN_STAGES, MAX_STAGES + 1) if smem_offsets(stage_bytes, count)[1] <= capacity]
    if spec.tile.stages is not None:
        if spec.tile.stages not in fitting:
            raise _too_much(spec, target, stage_bytes, spec.tile.stages, fitting)
        return Choice(spec.tile.stages, Decision("tile.stages", str(spec.tile.stages), "given", given=True))
    if not fitting:
        raise _too_much(spec, target, stage_bytes, MIN_STAGES, fitting)
    options = [count for count in fitting if count <= DEFAULT_MAX_STAGES]

    def resident(count: int) -> int:
        return min(
            ctas_by_registers,
            target.smem_per_sm_bytes // (smem_offsets(stage_bytes, count)[1] + target.smem_reserved_per_cta_bytes),
        )

    chosen = max(options, key=lambda count: (resident(count), count))
    rejected = [
        Rejected(
            plural(count, "stage"),
            f"{plural(resident(count), 'CTA')} a multiprocessor, {smem_offsets(stage_bytes, count)[1]:,} bytes",
        )
        for count in options
        if count != chosen
    ]
    rejected += [
        Rejected(plural(count, "stage"), f"{smem_offsets(stage_bytes, count)[1]:,} bytes > {capacity:,}")
        for count in range(MIN_STAGES, DEFAULT_MAX_STAGES + 1)
        if count not in fitting
    ]
    why = (
        f"the deepest of at most {DEFAULT_MAX_STAGES} with {plural(resident(chosen), 'CTA')} a multiprocessor; "
        f"{sum(stage_bytes):,} bytes a stage"
    )
    return Choice(chosen, Decision("tile.stages", str(chosen), why, rejected=tuple(rejected)))


def _too_much(
    spec: GemmSpec, target: Target, stage_bytes: tuple[int, int], stages: int, fitting: list[int]
) -> Exception:
    total = smem_offsets(stage_bytes, stages)[1]
    arithmetic = f"{stages} x ({stage_bytes[0]:,} + {stage_bytes[1]:,}) = {total:,} bytes"
    return spec.error(
        "tile.stages" if fitting else "tile.cta",
        found=f"{stages} stages: {arithmetic} > {target.smem_per_cta_bytes:,}",
        expected=f"at most {target.smem_per_cta_bytes:,} bytes of shared memory a CTA on {target.name}",
        fix=f"{' or '.join(map(str, fitting))} stages fit" if fitting else "not even 2 stages fit; use a smaller tile",
    )


def choose_raster(spec: GemmSpec) -> Choice[RasterPlan]:
    """The order in which CTAs visit tiles of C: bands of neighbouring tiles, so that CTAs in flight share operands in L2."""
    given = spec.schedule.raster or Raster()
    plan = RasterPlan(
        along=given.along or "n",
        group=given.group if given.group is not None else DEFAULT_RASTER_GROUP,
        zigzag=bool(given.zigzag),
    )
    other = "m" if plan.along == "n" else "n"
    chosen = f"{plan.group} tiles along {plan.along}, then along {other}" + (", zigzag" if plan.zigzag else "")
    why = (
        f"CTAs in flight cover a block {plan.group} tiles wide, so that they read fewer different rows of A and B than a "
        f"single row of tiles would"
        if plan.group > 1
        else "one column of tiles after the other"
    )
    all_given = None not in (given.along, given.group, given.zigzag)
    return Choice(plan, Decision("schedule.raster", chosen, why, given=all_given))
