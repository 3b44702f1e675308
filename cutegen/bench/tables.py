"""Ceilings and results in tables, for people and for programs, and as a roofline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from cutegen.bench.benchmark import Result
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.roofline_svg import Point, Roof, roofline_svg
from cutegen.support.columns import aligned


def ceiling_lines(ceilings: Ceilings) -> list[str]:
    """What the GPU can do at most, for people."""
    rows = [
        (
            row.types.title,
            f"{row.tflops:.0f} TFLOP/s, {row.flops_per_cycle:,.0f} operations a cycle and SM",
        )
        for row in ceilings.mma
    ]
    rows.append(("copy", f"{ceilings.copy_bytes_per_s / 1e12:.2f} TB/s, read and written bytes"))
    return [f"Ceilings measured on {ceilings.device}, {ceilings.sms} multiprocessors", *aligned(rows)]


def result_lines(ceilings: Ceilings, results: Sequence[Result]) -> Iterator[str]:
    """A table for each problem and setting, for people."""
    header = ("contender", "us", "TFLOP/s", "(least..most)", "of mma.sync", "of copy", "error")
    for (problem, setting), group in groupby(results, key=lambda result: (result.problem, result.setting)):
        rows = [_row(ceilings, result) for result in group]
        yield ""
        yield f"{problem}: {setting}"
        yield from aligned(rows, header=header, right=range(1, len(header)))


def _row(ceilings: Ceilings, result: Result) -> tuple[str, ...]:
    times = result.measurement
    least, most = result.tflops_in(times.max_us), result.tflops_in(times.min_us)
    return (
        result.contender,
        f"{times.median_us:,.1f}",
        f"{result.tflops:.1f}",
        f"({least:.1f}..{most:.1f})",
        f"{result.of_mma(ceilings):.0%}",
        f"{result.of_copy(ceilings):.0%}",
        f"{result.rel_error:.1e}",
    )


def bench_table(ceilings: Ceilings, results: Sequence[Result]) -> dict[str, Any]:
    """The same for programs."""
    return {"ceilings": ceilings_table(ceilings), "results": [result_table(ceilings, result) for result in results]}


def ceilings_table(ceilings: Ceilings) -> dict[str, Any]:
    """The ceilings for programs."""
    return {
        "device": ceilings.device,
        "sms": ceilings.sms,
        "copy_bytes_per_s": ceilings.copy_bytes_per_s,
        "mma": [
            {
                **asdict(row.types),
                "tflops": row.tflops,
                "flops_per_cycle_and_sm": row.flops_per_cycle,
                "clock_hz": ceilings.clock_hz(row.types),
            }
            for row in ceilings.mma
        ],
    }


def result_table(ceilings: Ceilings, result: Result) -> dict[str, Any]:
    """One result for programs."""
    return {
        "problem": [result.problem.m, result.problem.n, result.problem.k],
        "batch": result.problem.batch,
        "operands": [{"dtype": dtype, "major": major} for dtype, major in result.setting.tensors.values()],
        "accumulator": result.types.accumulator,
        "contender": result.contender,
        "ours": result.ours,
        **asdict(result.measurement),
        "tflops": result.tflops,
        "intensity": result.intensity,
        "of_mma": result.of_mma(ceilings),
        "of_copy": result.of_copy(ceilings),
        "rel_error": result.rel_error,
    }


def roofline(ceilings: Ceilings, results: Sequence[Result]) -> str:
    """The SVG of all results."""
    roofs = [
        Roof(f"{row.types.instruction}, {row.types.operands}, {row.types.accumulator}", row.tflops)
        for row in ceilings.mma
    ]
    points = [
        Point(result.contender, f"{result.problem}, {result.setting}", result.intensity, result.tflops)
        for result in results
    ]
    return roofline_svg(f"Roofline of {ceilings.device}, cold L2", roofs, ceilings.copy_bytes_per_s, points)
