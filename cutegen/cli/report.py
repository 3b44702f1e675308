"""`cutegen report`: one kernel on one problem, predicted and actual; or every kernel on this machine, to be sent."""

from typing import Annotated

import typer

from cutegen.analysis import machine
from cutegen.analysis.measured import Timing, measure, profile, rounds_in_all, why_not_measured
from cutegen.analysis.report import Report, execute
from cutegen.analysis.report import report as make_report
from cutegen.analysis.report_text import report_lines, report_table
from cutegen.bench.contenders import Entrant
from cutegen.cli import options
from cutegen.cli.output import Answer
from cutegen.cli.progress import progress
from cutegen.cli.progress import rounds as rounds_bar
from cutegen.cli.subject import named_subject
from cutegen.errors import RequestError
from cutegen.hardware.targeting import choose_target
from cutegen.spec import spec_path


def report(
    context: typer.Context,
    spec: options.OptionalKernel = None,
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    arch: options.ArchOption = None,
    execute_: Annotated[
        bool, typer.Option("--execute", help="Execute the PTX on the CPU for a small problem and compare the counts.")
    ] = False,
    machine_: Annotated[
        bool,
        typer.Option(
            "--machine",
            help="What this machine does with SPEC, or with every shipped spec for its target: counts, times and bits "
            "of results, with the GPU and the versions, as a file to send. It has no paths.",
        ),
    ] = False,
    rounds: options.RoundsOption = options.DEFAULT_ROUNDS,
    out: options.OutOption = None,
    json: options.JsonOption = False,
) -> None:
    """Compares predictions with results; adds times with a GPU, and hardware counters if ncu is on PATH."""
    answer = Answer.asked(json=json, out=out)
    if machine_:
        ignored = {"problem", "batch", "execute_"}
        options.refuse_options(context, ignored, "together with --machine, which has its own problems")
        _of_machine(spec, arch, rounds, answer)
        return
    if spec is None:
        raise RequestError("report: found no SPEC; expected one, or --machine for all shipped specs on this machine")
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


def _of_machine(spec: str | None, arch: str | None, rounds: int, answer: Answer) -> None:
    target = choose_target(arch)
    chosen = None if spec is None else (spec_path(spec).stem,)
    with progress("kernels") as tell:
        table = machine.report(target, chosen, rounds=rounds, tell=tell)
    answer.give(lambda: table, lambda: machine.lines(table))


def _measure(made: Report, entrant: Entrant, rounds: int) -> Timing:
    if why_not := why_not_measured(made):
        return Timing(None, (), why_not)
    with rounds_bar("ceilings", rounds_in_all(rounds)) as bar:
        return measure(made, entrant, rounds, after_round=bar.advance, begin=bar.begin)
