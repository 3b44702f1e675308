"""`cutegen show`: the layouts of a plan, part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

import typer

from cutegen.cli.options import DEFAULT_PROBLEM, ArchOption, JsonOption, ProblemOption, SpecArgument, parse_problem
from cutegen.cli.output import print_json, print_lines
from cutegen.cli.views.epilogue import epilogue
from cutegen.cli.views.g2s import g2s
from cutegen.cli.views.mma import mma
from cutegen.cli.views.overview import overview
from cutegen.cli.views.partitions import partitions
from cutegen.cli.views.s2r import s2r
from cutegen.cli.views.smem import smem
from cutegen.cli.views.view import View
from cutegen.errors import RequestError
from cutegen.plan import GemmPlan
from cutegen.plan import plan as make_plan
from cutegen.plan.partitions import Problem
from cutegen.spec import load_spec


class Part(StrEnum):
    """What can be shown."""

    MMA = "mma"
    SMEM = "smem"
    G2S = "g2s"
    S2R = "s2r"
    EPILOGUE = "epilogue"
    PARTITIONS = "partitions"


class Format(StrEnum):
    """How it can be shown."""

    TEXT = "text"


VIEWS: Mapping[Part | None, Callable[[GemmPlan, int, Problem], View]] = MappingProxyType(
    {
        None: overview,
        Part.MMA: mma,
        Part.SMEM: smem,
        Part.G2S: g2s,
        Part.S2R: s2r,
        Part.EPILOGUE: epilogue,
        Part.PARTITIONS: partitions,
    }
)


def show(
    spec: SpecArgument,
    part: Annotated[
        Part | None,
        typer.Argument(metavar="PART", help=f"One of {' '.join(Part)}; without it, an overview.", show_default=False),
    ] = None,
    thread: Annotated[int, typer.Option("--thread", metavar="T", help="The thread whose share is shown.")] = 0,
    problem: ProblemOption = None,
    arch: ArchOption = None,
    format_: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
    json: JsonOption = False,
) -> None:
    """Layouts as CuTe C++ prints them, who holds what, swizzled offsets and banks."""
    extents = DEFAULT_PROBLEM if problem is None else parse_problem(problem)
    plan = make_plan(load_spec(spec), arch)
    if not 0 <= thread < plan.threads:
        raise RequestError(f"--thread: found {thread}; expected 0 to {plan.threads - 1}, a thread of the CTA")
    view = VIEWS[part](plan, thread, extents)
    if json:
        print_json(view.table)
    else:
        print_lines(view.lines)


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(show)
