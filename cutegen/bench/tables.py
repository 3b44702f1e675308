"""Ceilings, results and times of recorded calls in tables: for people, for a page, and for programs."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from cutegen.bench.benchmark import Result, x_torch
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.conditions import Conditions
from cutegen.bench.measure import Regime
from cutegen.bench.recorded import CallTimes, Totals, totals
from cutegen.bench.roofline_svg import Point, Roof, roofline_svg
from cutegen.support.words import aligned, plural

# Ceilings and results in tables, for people and for programs, and as a roofline.


def ceiling_lines(ceilings: Ceilings) -> list[str]:
    """Write the GPU's ceilings, for people."""
    rows = [
        (
            row.types.title,
            f"{row.tflops:.0f} TFLOP/s, {row.flops_per_cycle:,.0f} operations per cycle and SM",
        )
        for row in ceilings.mma
    ]
    rows.append(("reading", f"{ceilings.read_bytes_per_s / 1e12:.2f} TB/s"))
    rows.append(("copy", f"{ceilings.copy_bytes_per_s / 1e12:.2f} TB/s, bytes read plus bytes written"))
    return [f"Ceilings measured on {ceilings.device}, {ceilings.sms} SMs", *aligned(rows)]


REGIMES = {
    Regime.LAUNCH: "one launch, L2 cache cold and clean",
    Regime.GRAPH: "launches in a CUDA graph, operands larger than the L2 cache",
}


def result_lines(ceilings: Ceilings, results: Sequence[Result]) -> Iterator[str]:
    """Write a table per problem, setting and regime, for people."""
    header = ("contender", "us", "(least..most)", "x torch", "TFLOP/s", "of ceiling", "of reading", "error")
    groups = groupby(results, key=lambda result: (result.problem, result.regime, result.setting))
    for (problem, regime, setting), group in groups:
        of_problem = list(group)
        rows = [_row(ceilings, result, results) for result in of_problem]
        sizes = "" if of_problem[0].sizes is None else f", {of_problem[0].sizes.name}"
        yield ""
        yield f"{problem}{sizes}: {setting}; {REGIMES[regime]}"
        yield from aligned(rows, header=header, right=range(1, len(header)))


def _row(ceilings: Ceilings, result: Result, results: Sequence[Result]) -> tuple[str, ...]:
    times, ratio = result.measurement, x_torch(result, results)
    return (
        result.contender,
        f"{times.median_us:,.1f}",
        f"({times.min_us:,.1f}..{times.max_us:,.1f})",
        "" if ratio is None else f"{ratio:.2f}",
        f"{result.tflops:.1f}",
        f"{result.of_mma(ceilings):.0%}",
        f"{result.of_read(ceilings):.0%}",
        f"{result.rel_error:.1e}",
    )


def bench_table(ceilings: Ceilings, results: Sequence[Result], made_with: Conditions) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "conditions": asdict(made_with),
        "ceilings": ceilings_table(ceilings),
        "results": [result_table(ceilings, result, results) for result in results],
    }


def ceilings_table(ceilings: Ceilings) -> dict[str, Any]:
    """Return the ceilings for programs."""
    return {
        "device": ceilings.device,
        "sms": ceilings.sms,
        "read_bytes_per_s": ceilings.read_bytes_per_s,
        "copy_bytes_per_s": ceilings.copy_bytes_per_s,
        "mma": [
            {
                "instruction": row.types.instruction,
                "operands": row.types.operands,
                "accumulator": row.types.accumulator,
                "tflops": row.tflops,
                "flops_per_cycle_and_sm": row.flops_per_cycle,
                "clock_hz": ceilings.clock_hz(row.types),
            }
            for row in ceilings.mma
        ],
    }


def result_table(ceilings: Ceilings, result: Result, results: Sequence[Result]) -> dict[str, Any]:
    """Return one result for programs, with its ratio to torch.matmul's."""
    return {
        "problem": [result.problem.m, result.problem.n, result.problem.k],
        "batch": result.problem.batch,
        **({} if result.sizes is None else {"sizes": list(result.sizes.values), "sizes_name": result.sizes.name}),
        "operands": [{"dtype": dtype, "major": major} for dtype, major in result.setting.tensors.values()],
        "accumulator": result.types.accumulator,
        "instruction": result.types.instruction,
        "contender": result.contender,
        "ours": result.ours,
        "regime": result.regime,
        **asdict(result.measurement),
        "x_torch": x_torch(result, results),
        "tflops": result.tflops,
        "intensity": result.intensity,
        "of_mma": result.of_mma(ceilings),
        "of_read": result.of_read(ceilings),
        "of_copy": result.of_copy(ceilings),
        "rel_error": result.rel_error,
        "state": None if result.state is None else asdict(result.state),
    }


def roofline(ceilings: Ceilings, results: Sequence[Result]) -> str:
    """Return the SVG of all results."""
    roofs = [
        Roof(f"{row.types.instruction}, {row.types.operands}, {row.types.accumulator}", row.tflops)
        for row in ceilings.mma
    ]
    points = [
        Point(f"{result.contender}", f"{result.problem}, {result.setting}", result.intensity, result.tflops)
        for result in results
        if result.regime is results[0].regime
    ]
    return roofline_svg(
        f"Roofline of {ceilings.device}, {REGIMES[results[0].regime]}", roofs, ceilings.read_bytes_per_s, points
    )


# Times of recorded calls in tables: for people, for a page in Markdown, as CSV, and for programs.


_HEADER = ("call", "problem", "times", "torch, us", "cutegen, us", "x torch", "share", "from")
"""Short, so that a line of 100 columns holds the kernel's source; the share is that of the time of all calls."""
_RIGHT = range(2, 7)


def calls_lines(times: Sequence[CallTimes], device: str) -> Iterator[str]:
    """Write a table for each regime, the calls that take longest first, for people."""
    yield f"{plural(len({each.call for each in times}), 'call')} measured on {device}"
    for total in totals(times):
        rows = _rows(times, total)
        yield ""
        yield f"{REGIMES[total.regime]}: {_said(total)}"
        yield from aligned(rows, header=_HEADER, right=_RIGHT)


def calls_markdown(times: Sequence[CallTimes], device: str) -> str:
    """Write the same as Markdown."""
    lines = [f"Measured on {device}."]
    for total in totals(times):
        marks = ["---:" if i in _RIGHT else "---" for i in range(len(_HEADER))]
        table = [_HEADER, marks, *_rows(times, total)]
        title = REGIMES[total.regime]
        lines += ["", f"{title[0].upper()}{title[1:]}: {_said(total)}.", ""]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def calls_csv(times: Sequence[CallTimes]) -> str:
    """Write one row per call and regime as CSV; microseconds are medians, empty where there is no time."""
    text = io.StringIO()
    rows = [_record(each) for each in times]
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def calls_table(times: Sequence[CallTimes], made_with: Conditions) -> dict[str, Any]:
    """Return calls and totals for programs."""
    return {
        "conditions": asdict(made_with),
        "calls": [
            {
                **_record(each),
                "rel_error": None if each.ours is None else each.ours.rel_error,
                "torch_rel_error": None if each.torch is None else each.torch.rel_error,
                "state": None if each.ours is None or each.ours.state is None else asdict(each.ours.state),
            }
            for each in times
        ],
        "totals": [{**asdict(each), "x_torch": each.x_torch} for each in totals(times)],
    }


def _record(each: CallTimes) -> dict[str, Any]:
    problem = each.call.problem
    return {
        "name": each.call.wanted.name,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "batch": problem.batch,
        "times": each.call.times,
        "regime": str(each.regime),
        "torch_us": None if each.torch is None else each.torch.measurement.median_us,
        "cutegen_us": None if each.ours is None else each.ours.measurement.median_us,
        "x_torch": each.x_torch,
        "provider": each.provider or None,
        "why": each.why or None,
    }


def _rows(times: Sequence[CallTimes], total: Totals) -> list[tuple[str, ...]]:
    """Return the cells of a regime's calls, those that take longest first, and the totals."""
    mine = [each for each in times if each.regime is total.regime]
    mine.sort(key=lambda each: -_share(each, total))
    rows = [
        (
            each.call.wanted.name if each.call.request is None else each.call.request.name,
            str(each.call.problem),
            f"{each.call.times:,}",
            "" if each.torch is None else f"{each.torch.measurement.median_us:,.1f}",
            "" if each.ours is None else f"{each.ours.measurement.median_us:,.1f}",
            "" if each.x_torch is None else f"{each.x_torch:.2f}",
            "" if each.x_torch is None else f"{_share(each, total):.0%}",
            each.why or each.provider,
        )
        for each in mine
    ]
    said = "" if total.x_torch is None else f"{total.x_torch:.2f}"
    last = ("total", "", f"{total.calls:,}", f"{total.torch_us:,.1f}", f"{total.ours_us:,.1f}", said, "", "")
    return [*rows, last]


def _share(each: CallTimes, total: Totals) -> float:
    """Return the share of cutegen's total time."""
    if each.ours is None or each.torch is None:
        return 0.0
    return each.call.times * each.ours.measurement.median_us / total.ours_us


def _said(total: Totals) -> str:
    """Say the result in a line."""
    said = "no call was computed by both" if total.x_torch is None else f"{total.x_torch:.2f} of torch's speed"
    return said + (f"; {plural(total.left_out, 'call')} left out of the totals" if total.left_out else "")
