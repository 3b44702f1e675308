"""Rules for the pipeline and the tile order: how many k-tiles are in flight, and in which order CTAs visit C."""

from __future__ import annotations

from cutegen.arch import Target
from cutegen.errors import SpecError
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import RasterPlan
from cutegen.plan.occupancy import ctas_by_smem
from cutegen.plan.text import plural, round_up
from cutegen.spec import GemmSpec, Raster

STAGES = range(1, 9)
DEFAULT_MAX_STAGES = 4
DOUBLE_BUFFERED = 2
SMEM_ALIGN_BYTES = 128
DEFAULT_RASTER_GROUP = 8


def smem_offsets(stage_bytes: tuple[int, int], stages: int) -> tuple[int, int]:
    """(offset of B, total) in bytes: A's stages, then B's, each starting at a whole line of banks."""
    offset_b = round_up(stage_bytes[0] * stages, SMEM_ALIGN_BYTES)
    return offset_b, round_up(offset_b + stage_bytes[1] * stages, SMEM_ALIGN_BYTES)


def choose_stages(
    spec: GemmSpec,
    target: Target,
    stage_bytes: tuple[int, int],
    ctas_by_registers: int,
    reserved_bytes: int = 0,
    *,
    asynchronous: bool = True,
) -> Choice[int]:
    """How many k-tiles shared memory holds at once, beside `reserved_bytes` for other things.

    The deepest pipeline of at most four stages that keeps as many CTAs resident as registers allow; of two stages when
    nothing is copied `asynchronous`ly. A single stage only where two do not fit.
    """
    totals = {stages: smem_offsets(stage_bytes, stages)[1] + reserved_bytes for stages in STAGES}
    fitting = [stages for stages, total in totals.items() if total <= target.smem_per_cta_bytes]
    given = spec.tile.stages
    if not fitting or given not in (None, *fitting):
        raise too_much(spec, target, stage_bytes, given or STAGES[0], fitting, reserved_bytes)
    if given is not None:
        return Choice(given, Decision("tile.stages", str(given), "given", given=True))

    def resident(stages: int) -> int:
        return min(ctas_by_registers, ctas_by_smem(target, totals[stages]))

    most = DEFAULT_MAX_STAGES if asynchronous else DOUBLE_BUFFERED
    options = [stages for stages in fitting if DOUBLE_BUFFERED <= stages <= most] or fitting[:1]
    chosen = max(options, key=lambda stages: (resident(stages), stages))
    capacity = target.smem_per_cta_bytes
    rejected = [
        Rejected(
            plural(stages, "stage"), f"{plural(resident(stages), 'CTA')} a multiprocessor, {totals[stages]:,} bytes"
        )
        for stages in options
        if stages != chosen
    ]
    rejected += [
        Rejected(plural(stages, "stage"), f"{totals[stages]:,} bytes > {capacity:,}")
        for stages in STAGES
        if options[-1] < stages <= most
    ]
    if not asynchronous:
        rejected.append(
            Rejected("more", "the k-tile that is on its way is in registers, so nothing would fill them sooner")
        )
    why = (
        f"the deepest of at most {most} that leaves {plural(resident(chosen), 'CTA')} a multiprocessor; "
        f"{sum(stage_bytes):,} bytes a stage"
    )
    return Choice(chosen, Decision("tile.stages", str(chosen), why, rejected=tuple(rejected)))


def too_much(
    spec: GemmSpec,
    target: Target,
    stage_bytes: tuple[int, int],
    stages: int,
    fitting: list[int],
    reserved_bytes: int = 0,
) -> SpecError:
    """The error when so many stages do not fit shared memory, where `fitting` ones do."""
    total = smem_offsets(stage_bytes, stages)[1] + reserved_bytes
    several = [count for count in fitting if count >= DOUBLE_BUFFERED]
    fits = f"{' or '.join(map(str, several))} stages fit" if several else "one stage fits"
    beside = f" + {reserved_bytes:,}" if reserved_bytes else ""
    arithmetic = f"{stages} x ({stage_bytes[0]:,} + {stage_bytes[1]:,}){beside} = {total:,} bytes"
    return spec.error(
        "tile.stages" if fitting else "tile.cta",
        found=f"{plural(stages, 'stage')}: {arithmetic} > {target.smem_per_cta_bytes:,}",
        expected=f"at most {target.smem_per_cta_bytes:,} bytes of shared memory a CTA on {target.name}",
        fix=fits if fitting else "not even one stage fits; use a smaller tile",
    )


def choose_raster(spec: GemmSpec) -> Choice[RasterPlan]:
    """The order in which CTAs visit tiles of C: bands of neighbours, so that CTAs in flight share operands in L2."""
    given = spec.schedule.raster or Raster()
    plan = RasterPlan(
        along=given.along or "n",
        group=given.group if given.group is not None else DEFAULT_RASTER_GROUP,
        zigzag=bool(given.zigzag),
    )
    other = "m" if plan.along == "n" else "n"
    if plan.group == 1:
        chosen = f"one tile after the other along {other}, then the next along {plan.along}"
        shared, own = ("B", "A") if plan.along == "n" else ("A", "B")
        why = f"CTAs in flight share their rows of {shared}, and each reads its own rows of {own}"
    else:
        chosen = f"bands of {plan.group} tiles along {plan.along}, each swept along {other}"
        why = (
            f"CTAs in flight cover a block {plan.group} tiles wide, so that they read fewer different rows of A and B "
            "than a single line of tiles would"
        )
    if plan.zigzag:
        chosen += ", every second one backwards"
    all_given = None not in (given.along, given.group, given.zigzag)
    return Choice(plan, Decision("schedule.raster", chosen, why, given=all_given))
