"""`cutegen build`: find kernels in the cache, or compile them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, explain_miss
from cutegen.build import build as build_artifact
from cutegen.build.tables import build_lines, build_table
from cutegen.cli.many import built, named_kernels, refuse_failures
from cutegen.cli.options import (
    ArchsOption,
    BatchOption,
    CompilersOption,
    JsonOption,
    ListOption,
    ProblemsOption,
    SchedulerOption,
    SpecsArgument,
)
from cutegen.cli.output import Answer
from cutegen.pack.building import Outcome
from cutegen.pack.making import copy_artifacts
from cutegen.pack.tables import outcome_lines, outcome_table
from cutegen.pack.wanted import Wanted


def build(
    specs: SpecsArgument = None,
    problem: ProblemsOption = None,
    batch: BatchOption = None,
    arch: ArchsOption = None,
    listed: ListOption = None,
    with_source: Annotated[
        bool, typer.Option("--explain-miss", help="Show how the nearest cached source differs.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE or FOLDER",
            help="Write the answer there: .txt for text, .json for JSON. A name without a suffix is a folder, "
            "which gets a folder for each kernel: source, plan, PTX, cubin, manifest.",
            show_default=False,
        ),
    ] = None,
    jobs: CompilersOption = None,
    scheduler: SchedulerOption = None,
    json: JsonOption = False,
) -> None:
    """Compiles it, or finds it: key, path, sizes, registers, spills, predicted against emitted instructions.

    Several specs, problems or targets are compiled beside each other; a kernel that fails stops no other.
    """
    folder = out if out is not None and not out.suffix else None
    answer = Answer.asked(json=json, out=None if folder else out)
    wanted = named_kernels(specs, problem, batch, arch, listed, verb="build")
    if len(wanted) == 1:
        _build_one(wanted[0], folder, answer, jobs, scheduler, with_source=with_source)
        return
    outcomes = built(wanted, jobs, scheduler)
    _give_all(outcomes, folder, answer)
    refuse_failures(outcomes, "the others are built")


def _build_one(
    wanted: Wanted, folder: Path | None, answer: Answer, jobs: int | None, scheduler: str | None, *, with_source: bool
) -> None:
    cache = Cache.from_environment()
    request = build_request(wanted.spec, wanted.target, problem=wanted.problem)
    miss = None if cache.holds(request.inputs.key) else explain_miss(cache, request)
    artifact = build_artifact(request, cache) if scheduler is None else _built_by_others(wanted, jobs, scheduler)
    if folder is not None:
        copy_artifacts(folder, [Outcome(wanted, artifact)])
    answer.give(
        lambda: build_table(artifact, request.target.name, miss),
        lambda: build_lines(artifact, f"{wanted.name} for {request.target.name}", miss, with_source=with_source),
    )


def _built_by_others(wanted: Wanted, jobs: int | None, scheduler: str) -> Artifact:
    outcomes = built([wanted], jobs, scheduler)
    refuse_failures(outcomes, "there is nothing to show")
    artifact = outcomes[0].artifact
    assert artifact is not None
    return artifact


def _give_all(outcomes: tuple[Outcome, ...], folder: Path | None, answer: Answer) -> None:
    paths = None if folder is None else copy_artifacts(folder, outcomes)
    answer.give(lambda: outcome_table(outcomes), lambda: outcome_lines(outcomes, paths))


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(build)
