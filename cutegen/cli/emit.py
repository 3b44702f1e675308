"""`cutegen emit`: the generated kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cutegen.api import plan as make_plan
from cutegen.cli.options import ArchOption, BatchOption, JsonOption, ProblemOption, SpecArgument, named_problem
from cutegen.cli.output import JSON_SUFFIX, Answer, suffix_of, write_file
from cutegen.render import render
from cutegen.spec import load_spec


def emit(
    spec: SpecArgument,
    problem: ProblemOption = None,
    batch: BatchOption = None,
    arch: ArchOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output",
            "-o",
            metavar="FILE",
            help="Write it there: .py for the kernel alone, .json for JSON.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """The generated CuTe DSL kernel, a standalone Python file."""
    as_json = suffix_of(out, (".py", JSON_SUFFIX)) == JSON_SUFFIX
    plan = make_plan(load_spec(spec), arch, named_problem(problem, batch))
    source = render(plan)
    if out is not None and not as_json:
        write_file("--out", out, source.text.encode())
    if json or as_json:
        table = {"spec": plan.spec.name, "target": plan.target.name, "entry": source.entry, "source": source.text}
        Answer(json=True, out=out if as_json else None).give(lambda: table, list)
    elif out is None:
        sys.stdout.write(source.text)


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(emit)
