"""Ceilings and results in tables, for people and for programs, and as a roofline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from cutegen.bench.benchmark import Result, x_torch
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.conditions import Conditions
from cutegen.bench.measure import Regime
from cutegen.bench.roofline_svg import Point, Roof, roofline_svg
from cutegen.support.columns import aligned


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
