"""`cutegen compare`: two or more specs side by side, differences first."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cutegen.analysis.comparison import Comparison, Finished, with_artifacts, with_times
from cutegen.analysis.comparison import compare as make_comparison
from cutegen.analysis.comparison_picture import picture
from cutegen.analysis.comparison_text import comparison_lines, comparison_table
from cutegen.api import request_of
from cutegen.bench.benchmark import bench, require_gpu
from cutegen.bench.ceilings import measure_ceilings, rounds_of_all
from cutegen.bench.contenders import TORCH, Entrant, only
from cutegen.bench.measure import WARM_UP_ROUNDS, Regime
from cutegen.build import Artifact, Cache, build
from cutegen.cli import options
from cutegen.cli.output import Answer
from cutegen.cli.pictures import Format, FormatOption, choose_format, deliver
from cutegen.cli.progress import rounds as rounds_bar
from cutegen.cli.subject import KERNEL_SUFFIX, named_subject, says_all
from cutegen.errors import DeviceError, RequestError
from cutegen.hardware.targeting import present_target
from cutegen.plan import GemmPlan
from cutegen.run import Kernel


def compare(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC SPEC...",
            help="Spec files, names of shipped specs, `build --out` folders, or kernel.py files (edited or not).",
            autocompletion=options.complete_spec,
        ),
    ],
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    arch: options.ArchOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Also show what is equal.")] = False,
    build_: Annotated[
        bool, typer.Option("--build", help="Compile specs that are not cached, for registers, spills and occupancy.")
    ] = False,
    time: Annotated[
        bool | None,
        typer.Option(
            "--time/--no-time",
            help="Measure on the GPU, with torch.matmul; default: if a GPU is present that all specs target.",
            show_default=False,
        ),
    ] = None,
    rounds: options.RoundsOption = options.DEFAULT_ROUNDS,
    format_: FormatOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output file; .txt, .json, .svg, .tex or .png selects the form.",
            show_default=False,
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Compares specs: decisions, layouts, conflicts, instructions, registers, bounds, and times with a GPU."""
    how = choose_format(format_, out)
    if how is Format.HTML:
        expected = "text, svg, latex or png: a comparison has no page; use `cutegen show SPEC --format html`"
        raise RequestError(f"--format: found html; expected {expected}")
    if json and how is not Format.TEXT:
        raise RequestError(f"--json: found together with a picture in {how}; expected only one of them")
    if len(specs) < 2:
        raise RequestError(f"compare: found {specs[0]} alone; expected at least two specs; `cutegen plan` shows one")
    wanted, cache = options.named_problem(problem, batch), Cache.from_environment()
    asked = [_finished(words, arch) if says_all(words) else options.named_spec(words) for words in specs]
    made = make_comparison(asked, arch, wanted, default=options.DEFAULT_PROBLEM, cache=cache)
    why_not = _why_not_timed(made)
    if time and why_not:
        raise DeviceError(f"--time: {why_not}; --no-time compares without")
    timed = not why_not if time is None else time
    if build_ or timed:
        made = with_artifacts(made, lambda plan: _built(plan, cache))
    reason = why_not if time is None else "--no-time"
    made = _timed(made, rounds) if timed else replace(made, why_not_measured=reason)
    if how is not Format.TEXT:
        deliver(picture(made), " and ".join(x.name for x in made.specs), how, out)
    else:
        Answer.asked(json=json, out=out).give(
            lambda: comparison_table(made), lambda: comparison_lines(made, everything=everything)
        )


def _finished(words: str, arch: str | None) -> Finished:
    """Return the kernel of a folder or a file, which is what it is for every problem."""
    subject = named_subject(words, arch)
    file = f" ({Path(words).name})" if words.endswith(KERNEL_SUFFIX) else ""
    made = subject.make
    return Finished(
        name=f"{subject.name}{file}", plan=subject.gemm, make=lambda: made().artifact, built=os.path.isdir(words)
    )


def _built(plan: GemmPlan, cache: Cache) -> Artifact:
    return build(request_of(plan), cache)


def _why_not_timed(made: Comparison) -> str:
    """Return what is missing here for timing; empty if nothing is."""
    try:
        require_gpu()
    except DeviceError as error:
        return str(error).partition(";")[0]
    present = present_target()
    others = [x.name for x in made.specs if x.plan is not None and x.plan.target != present]
    return f"{' and '.join(others)} {'is' if len(others) == 1 else 'are'} not for this GPU" if others else ""


def _timed(made: Comparison, rounds: int) -> Comparison:
    """Time every kernel and torch.matmul, in both regimes and in random order."""
    entrants = [Entrant(x.name, Kernel(x.artifact)) for x in made.specs if x.artifact is not None]
    regimes = tuple(Regime)
    with rounds_bar("ceilings", rounds_of_all() + len(regimes) * (WARM_UP_ROUNDS + rounds)) as bar:
        types = dict.fromkeys(kind for entrant in entrants for kind in entrant.ceiling_types)
        ceilings = measure_ceilings(types, after_round=bar.advance)
        bar.begin(str(made.problem))
        results = bench(
            entrants, made.problem, rounds=rounds, regimes=regimes, against=only(TORCH), after_round=bar.advance
        )
    return with_times(made, ceilings, results)
