"""Rules for the pipeline: how many k-tiles are in flight."""

from __future__ import annotations

from collections.abc import Iterable

from cutegen.algebra import Extents
from cutegen.errors import SpecError
from cutegen.hardware import Target
from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.plan.predict.occupancy import ctas_by_smem
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.operand import k_tile_bytes
from cutegen.spec import GemmSpec
from cutegen.spec.values import MOST_STAGES
from cutegen.support.words import either, plural, round_up

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
    stage_bytes = k_tile_bytes(spec, cta_tile)
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
