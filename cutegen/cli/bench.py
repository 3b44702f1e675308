"""`cutegen bench`: kernels beside torch, Triton and the hardware's ceilings, in one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from cutegen.api import compile_gemm
from cutegen.bench.benchmark import Entrant, Result, require_gpu
from cutegen.bench.benchmark import bench as run_bench
from cutegen.bench.ceilings import Ceilings, measure_ceilings, rounds_of_all
from cutegen.bench.measure import WARM_UP_ROUNDS
from cutegen.bench.roofline_svg import Point, Roof, roofline_svg
from cutegen.bench.suites import SUITES
from cutegen.cli.options import DEFAULT_PROBLEM, ArchOption, JsonOption, OutOption, complete_spec, parse_problem
from cutegen.cli.output import Answer, suffix_of, write_file
from cutegen.cli.progress import rounds as rounds_bar
from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError
from cutegen.hardware.lookup import find
from cutegen.run import Kernel
from cutegen.spec import load_spec
from cutegen.support.columns import aligned

RoundsOption: TypeAlias = Annotated[
    int, typer.Option("--rounds", metavar="N", min=1, help="Runs of each contender; the median is shown.")
]
DEFAULT_ROUNDS = 20


def bench(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC...",
            help="Spec files, names of shipped specs, or folders of built artifacts.",
            autocompletion=complete_spec,
        ),
    ],
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="M,N,K", help="May be given several times.", show_default=False),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="NAME", help=f"A list of problems: {', '.join(SUITES)}.", show_default=False),
    ] = None,
    rounds: RoundsOption = DEFAULT_ROUNDS,
    arch: ArchOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Write a roofline plot.", show_default=False)
    ] = None,
    cutlass: Annotated[
        Path | None,
        typer.Option(
            "--cutlass",
            metavar="FILE",
            help="Add CUTLASS's Ampere example of the CuTe DSL, tensorop_gemm.py, where a spec is fp16 TN.",
            show_default=False,
        ),
    ] = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """TFLOP/s beside torch.matmul, Triton and the measured ceilings, all in one run. Needs a GPU and torch."""
    answer = Answer.asked(json=json, out=out)
    suffix_of(plot, (".svg",), "--plot")
    problems = choose_problems(problem, suite)
    require_gpu()
    entrants = {extents: [_entrant(spec, arch, extents) for spec in specs] for extents in problems}
    _check_names(entrants[problems[0]])
    total = rounds_of_all() + len(problems) * (WARM_UP_ROUNDS + rounds)
    results: list[Result] = []
    with rounds_bar("ceilings", total) as bar:
        types = dict.fromkeys(x for each in entrants.values() for entrant in each for x in entrant.ceiling_types)
        ceilings = measure_ceilings(types, after_round=bar.advance)
        for extents in problems:
            bar.begin(str(extents))
            results += run_bench(entrants[extents], extents, rounds=rounds, cutlass=cutlass, after_round=bar.advance)
    if plot is not None:
        write_file("--plot", plot, roofline(ceilings, results).encode())
    answer.give(
        lambda: bench_table(ceilings, results),
        lambda: [*ceiling_lines(ceilings), *result_lines(ceilings, results)],
    )


def choose_problems(problems: Sequence[str] | None, suite: str | None) -> tuple[ProblemShape, ...]:
    """The problems that are asked for, each once: those of the suite, then those that are named.

    Raises RequestError for an unknown suite, or what is no problem.
    """
    named = [parse_problem(text) for text in problems or ()]
    found = (*(find(SUITES, suite, "--suite") if suite else ()), *named)
    return tuple(dict.fromkeys(found)) or (DEFAULT_PROBLEM,)


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


def _entrant(spec: str, arch: str | None, problem: ProblemShape) -> Entrant:
    """A built artifact's kernel, or that of a spec, what it leaves open chosen for the problem."""
    if (Path(spec) / "manifest.json").is_file():
        kernel = Kernel.open(spec)
        return Entrant(kernel.artifact.manifest.entry.removesuffix("_0"), kernel)
    loaded = load_spec(spec)
    return Entrant(loaded.name, compile_gemm(loaded, arch, problem=(problem.m, problem.n, problem.k)))


def _check_names(entrants: Sequence[Entrant]) -> None:
    names = [entrant.name for entrant in entrants]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise RequestError(f"bench: found two specs called {twice[0]}; expected names of their own; rename one file")


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(bench)
