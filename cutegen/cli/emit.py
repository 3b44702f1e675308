"""`cutegen emit`: the generated kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cutegen.cli.options import ArchOption, BatchOption, JsonOption, ProblemOption, SpecArgument, named_problem
from cutegen.cli.output import print_json, write_file
from cutegen.plan import plan as make_plan
from cutegen.render import render
from cutegen.spec import load_spec


def emit(
    spec: SpecArgument,
    problem: ProblemOption = None,
    batch: BatchOption = None,
    arch: ArchOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.", show_default=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """The generated CuTe DSL kernel, a standalone Python file."""
    plan = make_plan(load_spec(spec), arch, named_problem(problem, batch))
    source = render(plan)
    if output is not None:
        write_file("--output", output, source.text.encode())
    if json:
        table = {"spec": plan.spec.name, "target": plan.target.name, "entry": source.entry, "source": source.text}
        print_json(table)
    elif output is None:
        sys.stdout.write(source.text)


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(emit)
