"""A report for people and for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from cutegen.analysis.limits import Limit, multiplier, shares
from cutegen.analysis.measured import Profile, Timing
from cutegen.analysis.report import Execution, Report
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.tables import ceiling_lines, ceilings_table, result_lines, result_table
from cutegen.build.tables import instruction_lines, instruction_table
from cutegen.support.words import aligned, plural, wrapped

SHOWN_SASS = 12
NEARLY = 0.9


def report_lines(made: Report, execution: Execution | None, timing: Timing, profile: Profile) -> Iterator[str]:
    """Return the text for people."""
    yield f"{made.plan.spec.name} for {made.plan.target.name}, {made.problem}"
    yield from _resource_lines(made)
    yield from _access_lines(made)
    yield ""
    yield from instruction_lines(made.artifact.manifest.instructions)
    yield from _loop_lines(made)
    yield from _limit_lines(made, timing.ceilings)
    if execution is not None:
        yield from _execution_lines(execution)
    yield ""
    if timing.ceilings is None:
        yield from wrapped(f"Not measured: {timing.why_not}")
    else:
        yield from ceiling_lines(timing.ceilings)
        yield from result_lines(timing.ceilings, timing.results)
        yield from _wave_lines(made, timing.ceilings.sms)
    yield ""
    yield from _profile_lines(profile)


def _resource_lines(made: Report) -> Iterator[str]:
    predicted, obtained = made.plan.predictions.occupancy, made.occupancy
    rows = [
        ("registers per thread", f"{predicted.registers_per_thread}", f"{made.artifact.manifest.registers}"),
        ("spilled bytes per thread", "0", f"{made.artifact.manifest.spill_bytes:,}"),
        ("CTAs per SM", f"{predicted.ctas_per_sm}", f"{obtained.ctas_per_sm}"),
    ]
    yield from aligned(rows, header=("", "predicted", "obtained"), right={1, 2})
    limits = f"threads {obtained.by_threads}, shared memory {obtained.by_smem}, registers {obtained.by_registers}"
    yield from wrapped(
        f"{_ctas(made)} of {made.plan.threads} threads and {made.plan.smem_bytes:,} bytes of shared "
        f"memory, {plural(made.k_tiles, 'k-tile')} each; limits, in CTAs per SM: {limits}",
        first="  ",
        rest="  ",
    )


def _ctas(made: Report) -> str:
    return plural(made.ctas, "CTA" if not made.plan.scheduler.source.loops else "CTA tile")


def _access_lines(made: Report) -> Iterator[str]:
    predictions = made.plan.predictions
    yield ""
    yield "Memory accesses predicted per CTA: one k-tile of A and B, the whole tile of C"
    rows = []
    for kind, found in (
        ("wavefronts", predictions.wavefronts),
        ("line writes", predictions.line_writes),
        ("sectors", predictions.sectors),
    ):
        rows += [(kind, key, f"{count.predicted:,}", f"{count.ideal:,}") for key, count in found.items()]
    yield from aligned(rows, header=("", "access", "predicted", "ideal"), right={2, 3})


def _loop_lines(made: Report) -> Iterator[str]:
    yield ""
    if made.loop is None:
        yield from wrapped(f"Main loop not disassembled: {made.no_loop}")
        return
    total, mix = len(made.loop.instructions), list(made.loop.mix.items())
    turn = made.plan.loop.k_tiles_per_turn
    yield f"Main loop in SASS: {total} instructions per warp and {plural(turn, 'k-tile')}"
    rows = [(name, f"{count:,}", f"{count / total:.0%}") for name, count in mix[:SHOWN_SASS]]
    if rest := sum(count for _, count in mix[SHOWN_SASS:]):
        rows.append((plural(len(mix) - SHOWN_SASS, "other"), f"{rest:,}", f"{rest / total:.0%}"))
    yield from aligned(rows, right={1, 2})


def _limit_lines(made: Report, ceilings: Ceilings | None) -> Iterator[str]:
    found = made.limits(ceilings)
    share = shares(found)
    yield ""
    yield "SM cycles for one k-tile of one CTA" + (", at measured rates" if ceilings else "")
    yield from aligned(
        [_limit_row(limit, share.get(limit.resource)) for limit in found],
        header=("resource", "work", "", "per cycle", "cycles", "of the bottleneck"),
        right={1, 3, 4, 5},
    )
    yield from wrapped(_verdict(made, found, share, ceilings), first="  ", rest="  ")


def _limit_row(limit: Limit, share: float | None) -> tuple[str, ...]:
    known = limit.per_cycle is not None and limit.cycles is not None and share is not None
    rates = (f"{limit.per_cycle:,.4g}", f"{limit.cycles:,.0f}", f"{share:.0%}") if known else ("unknown", "", "")
    return (limit.resource, f"{limit.amount:,.0f}", limit.unit, *rates)


def _verdict(made: Report, found: tuple[Limit, ...], share: Mapping[str, float], ceilings: Ceilings | None) -> str:
    tightest = found[0]
    if (multiplies := multiplier(made.plan)) not in share:
        return f"The known bottleneck is {tightest.resource}; the rate of the {multiplies} is not known"
    near = [name for name, part in share.items() if part >= NEARLY and name != tightest.resource]
    close = f", with {' and '.join(near)} close" if near else ""
    at_most = share[multiplies]
    limit = f"{at_most:.0%} of {made.types.instruction} at most"
    said = f"The bottleneck is {tightest.resource}{close}: with all else hidden, {limit}"
    return said if ceilings is None else f"{said}, {at_most * ceilings.of(made.types).tflops:.0f} TFLOP/s"


def _execution_lines(execution: Execution) -> Iterator[str]:
    rows = [
        (kind.replace("_", " "), name, "" if count.predicted is None else f"{count.predicted:,}", f"{count.measured:,}")
        for kind, table in execution.counts.tables().items()
        for name, count in table.items()
    ]
    yield ""
    yield f"Executed on the CPU, {execution.problem}"
    yield from aligned(rows, header=("", "", "predicted", "counted"), right={2, 3})
    if differing := execution.counts.differing():
        yield from wrapped(f"not as predicted: {', '.join(differing)}", first="  ", rest="    ")


def _wave_lines(made: Report, sms: int) -> Iterator[str]:
    waves = made.waves(sms)
    used = waves / -(-waves // 1)
    yield f"  {_ctas(made)} on {sms} SMs are {waves:.2f} waves: {used:.0%} of the CTA slots are used"


def _profile_lines(profile: Profile) -> Iterator[str]:
    if profile.why_not:
        yield from wrapped(f"No hardware counters: {profile.why_not}")
        return
    rows = [(x.counter, f"{x.predicted:,}", f"{x.measured:,}", "yes" if x.equal else "no") for x in profile.rows]
    yield "Hardware counters of one launch (ncu)"
    yield from aligned(rows, header=("counter", "predicted", "measured", "equal"), right={1, 2})


def report_table(made: Report, execution: Execution | None, timing: Timing, profile: Profile) -> dict[str, Any]:
    """Return the report for programs."""
    predictions, manifest = made.plan.predictions, made.artifact.manifest
    return {
        "spec": made.plan.spec.name,
        "target": made.plan.target.name,
        "problem": [made.problem.m, made.problem.n, made.problem.k],
        "batch": made.problem.batch,
        "ctas": made.ctas,
        "k_tiles": made.k_tiles,
        "smem_bytes": made.plan.smem_bytes,
        "occupancy": {"predicted": asdict(predictions.occupancy), "obtained": asdict(made.occupancy)},
        "registers": manifest.registers,
        "spill_bytes": manifest.spill_bytes,
        "wavefronts": {key: asdict(value) for key, value in predictions.wavefronts.items()},
        "line_writes": {key: asdict(value) for key, value in predictions.line_writes.items()},
        "sectors": {key: asdict(value) for key, value in predictions.sectors.items()},
        "instructions": instruction_table(manifest.instructions),
        "main_loop": None if made.loop is None else dict(made.loop.mix),
        "no_main_loop": made.no_loop or None,
        "k_tiles_per_turn": made.plan.loop.k_tiles_per_turn,
        "limits": [_limit_table(limit) for limit in made.limits(timing.ceilings)],
        "executed": None if execution is None else _execution_table(execution),
        "ceilings": None if timing.ceilings is None else ceilings_table(timing.ceilings),
        "not_measured": timing.why_not or None,
        "results": []
        if timing.ceilings is None
        else [result_table(timing.ceilings, x, timing.results) for x in timing.results],
        "waves": None if timing.ceilings is None else made.waves(timing.ceilings.sms),
        "counters": [asdict(row) for row in profile.rows],
        "no_counters": profile.why_not or None,
    }


def _limit_table(limit: Limit) -> dict[str, Any]:
    return {**asdict(limit), "cycles": limit.cycles}


def _execution_table(execution: Execution) -> dict[str, Any]:
    problem = execution.problem
    return {
        "problem": [problem.m, problem.n, problem.k],
        "counts": {
            kind: {name: asdict(count) for name, count in table.items()}
            for kind, table in execution.counts.tables().items()
        },
    }
