"""`cutegen build`: find the kernel in the cache, or compile it."""

from __future__ import annotations

from typing import Annotated

import typer

from cutegen.api import build_request
from cutegen.build import Cache, explain_miss
from cutegen.build import build as build_artifact
from cutegen.build.tables import build_lines, build_table
from cutegen.cli.options import (
    ArchOption,
    BatchOption,
    JsonOption,
    OutOption,
    ProblemOption,
    SpecArgument,
    named_problem,
)
from cutegen.cli.output import Answer
from cutegen.spec import load_spec


def build(
    spec: SpecArgument,
    problem: ProblemOption = None,
    batch: BatchOption = None,
    arch: ArchOption = None,
    with_source: Annotated[
        bool, typer.Option("--explain-miss", help="Show how the nearest cached source differs.")
    ] = False,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Compiles it, or finds it: key, path, sizes, registers, spills, predicted against emitted instructions."""
    answer = Answer.asked(json=json, out=out)
    loaded, cache = load_spec(spec), Cache.from_environment()
    request = build_request(loaded, arch, problem=named_problem(problem, batch))
    miss = None if cache.holds(request.inputs.key) else explain_miss(cache, request)
    artifact = build_artifact(request, cache)
    answer.give(
        lambda: build_table(artifact, request.target.name, miss),
        lambda: build_lines(artifact, f"{loaded.name} for {request.target.name}", miss, with_source=with_source),
    )


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(build)
