"""`cutegen bench`: kernels against torch, Triton and the hardware's ceilings, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cutegen.bench.benchmark import Result, require_gpu
from cutegen.bench.benchmark import bench as run_bench
from cutegen.bench.ceilings import measure_ceilings, rounds_of_all
from cutegen.bench.conditions import conditions
from cutegen.bench.entrants import Entrant
from cutegen.bench.measure import WARM_UP_ROUNDS, Regime
from cutegen.bench.suites import SUITES
from cutegen.bench.tables import bench_table, ceiling_lines, result_lines, roofline
from cutegen.cli.options import (
    DEFAULT_PROBLEM,
    DEFAULT_ROUNDS,
    ArchOption,
    JsonOption,
    OutOption,
    RoundsOption,
    complete_spec,
    named_file,
    parse_problem,
)
from cutegen.cli.output import Answer, require_folder, suffix_of, write_file
from cutegen.cli.progress import rounds as rounds_bar
from cutegen.cli.subject import KERNEL_SUFFIX, named_subject
from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError
from cutegen.hardware.lookup import find


def bench(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC...",
            help="Spec files, names of shipped specs, `build --out` folders, or kernel.py files (edited or not).",
            autocompletion=complete_spec,
        ),
    ],
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="M,N,K", help="Repeatable.", show_default=False),
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
    regime: Annotated[
        Regime | None,
        typer.Option(
            "--regime",
            help="One launch with a cold L2, or back-to-back launches in a CUDA graph; default: both.",
        ),
    ] = None,
    cutlass: Annotated[
        list[Path] | None,
        typer.Option(
            "--cutlass",
            metavar="FILE",
            help="Add a CUTLASS CuTe DSL example for fp16 TN specs: Hopper's dense_gemm_persistent.py or "
            "Ampere's tensorop_gemm.py. Repeatable.",
            show_default=False,
        ),
    ] = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Times kernels, torch.matmul, Triton, QuACK and the measured ceilings in one run. Needs a GPU and torch."""
    answer = Answer.asked(json=json, out=out)
    suffix_of(plot, (".svg",), "--plot")
    require_folder("--plot", plot)
    for path in cutlass or ():
        named_file("--cutlass", path, "an example of the CuTe DSL in CUTLASS's repository, examples/python/CuTeDSL")
    problems = choose_problems(problem, suite)
    require_gpu()
    entrants = {extents: [_entrant(spec, arch, extents) for spec in specs] for extents in problems}
    _check_names(entrants[problems[0]])
    regimes = (regime,) if regime else tuple(Regime)
    total = rounds_of_all() + len(problems) * len(regimes) * (WARM_UP_ROUNDS + rounds)
    results: list[Result] = []
    with rounds_bar("ceilings", total) as bar:
        types = dict.fromkeys(x for each in entrants.values() for entrant in each for x in entrant.ceiling_types)
        ceilings = measure_ceilings(types, after_round=bar.advance)
        for extents in problems:
            bar.begin(str(extents))
            results += run_bench(
                entrants[extents],
                extents,
                rounds=rounds,
                regimes=regimes,
                cutlass=tuple(cutlass or ()),
                after_round=bar.advance,
            )
    answer.give(
        lambda: bench_table(ceilings, results, conditions()),
        lambda: [*ceiling_lines(ceilings), *result_lines(ceilings, results)],
    )
    if plot is not None:
        write_file("--plot", plot, roofline(ceilings, results).encode())


def choose_problems(problems: Sequence[str] | None, suite: str | None) -> tuple[ProblemShape, ...]:
    """Return the requested problems without duplicates: those of the suite, then those named on the command line.

    Raises RequestError for an unknown suite or an invalid problem.
    """
    named = [parse_problem(text) for text in problems or ()]
    found = (*(find(SUITES, suite, "--suite") if suite else ()), *named)
    return tuple(dict.fromkeys(found)) or (DEFAULT_PROBLEM,)


def _entrant(spec: str, arch: str | None, problem: ProblemShape) -> Entrant:
    """Return the kernel of an artifact, an edited file, or a spec with its open parts chosen for the problem."""
    subject = named_subject(spec, arch, replace(problem, batch=1))
    # One kernel may come from several files, each edited differently.
    file = f" ({Path(spec).name})" if spec.endswith(KERNEL_SUFFIX) else ""
    return Entrant(f"{subject.name}{file}", subject.kernel())


def _check_names(entrants: Sequence[Entrant]) -> None:
    names = [entrant.name for entrant in entrants]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise RequestError(f"bench: found two specs called {twice[0]}; expected unique names; rename one file")
