"""`cutegen report`: one kernel on one problem, predicted and actual, and what limits it."""

from __future__ import annotations

from typing import Annotated

import typer

from cutegen.analysis.measured import Timing, measure, profile, rounds_in_all, why_not_measured
from cutegen.analysis.report import Report, execute
from cutegen.analysis.report import report as make_report
from cutegen.analysis.report_text import report_lines, report_table
from cutegen.bench.entrants import Entrant
from cutegen.cli import options
from cutegen.cli.output import Answer
from cutegen.cli.progress import rounds as rounds_bar
from cutegen.cli.subject import named_subject


def report(
    spec: options.KernelArgument,
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    arch: options.ArchOption = None,
    execute_: Annotated[
        bool, typer.Option("--execute", help="Execute the PTX on the CPU for a small problem and compare the counts.")
    ] = False,
    rounds: options.RoundsOption = options.DEFAULT_ROUNDS,
    out: options.OutOption = None,
    json: options.JsonOption = False,
) -> None:
    """Compares predictions with results; adds times with a GPU, and hardware counters if ncu is on PATH."""
    answer = Answer.asked(json=json, out=out)
    wanted = options.named_problem(problem, batch)
    extents = wanted or options.DEFAULT_PROBLEM
    subject = named_subject(spec, arch, wanted)
    plan, kernel = subject.gemm, subject.kernel()
    made = make_report(plan, kernel.artifact, extents)
    execution = execute(plan, kernel) if execute_ else None
    timing = _measure(made, Entrant(subject.name, kernel), rounds)
    counted = profile(made, spec)
    answer.give(
        lambda: report_table(made, execution, timing, counted),
        lambda: report_lines(made, execution, timing, counted),
    )


def _measure(made: Report, entrant: Entrant, rounds: int) -> Timing:
    if why_not := why_not_measured(made):
        return Timing(None, (), why_not)
    with rounds_bar("ceilings", rounds_in_all(rounds)) as bar:
        return measure(made, entrant, rounds, after_round=bar.advance, begin=bar.begin)
