"""`cutegen check`: a kernel that is not ours, in several orders, on the CPU."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cutegen.cli.options import JsonOption, OutOption
from cutegen.cli.output import Answer
from cutegen.cli.run_ptx import (
    ArgumentOption,
    BlockOption,
    ClusterOption,
    EntryOption,
    GridOption,
    SmemOption,
    StepsOption,
)
from cutegen.errors import RequestError
from cutegen.ptx import Program
from cutegen.ptx.checking import Finding
from cutegen.ptx.program import DEFAULT_MAX_STEPS
from cutegen.run.foreign import ForeignCheck, check_foreign, file_launch, read_ptx, words_launch
from cutegen.support.words import plural

OF_WORDS = ("entry", "grid", "block", "cluster", "arg", "smem")


def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="PTX of any compiler.")],
    entry: EntryOption = None,
    grid: GridOption = "1",
    block: BlockOption = "32",
    cluster: ClusterOption = None,
    arg: ArgumentOption = None,
    smem: SmemOption = 0,
    launch: Annotated[
        Path | None, typer.Option("--launch", metavar="FILE", help="A TOML file with all of that instead.")
    ] = None,
    policies: Annotated[int, typer.Option("--policies", metavar="N", min=1, help="Orders to try.")] = 5,
    seed: Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Of random arguments and orders.")] = 0,
    max_steps: StepsOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 also for what PTX does not order and kernels rely on.")
    ] = False,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Executes PTX in several orders of CTAs, warps and copies, and tells what is undefined. Exit 1 if anything is."""
    answer = Answer.asked(json=json, out=out)
    if launch is not None:
        _refuse_words(context)
        asked = file_launch(launch)
    else:
        words = tuple(arg or ())
        asked = words_launch(entry=entry, grid=grid, block=block, cluster=cluster, smem_bytes=smem, words=words)
    found = check_foreign(
        Program.parse(read_ptx(file)),
        asked,
        policies=policies,
        seed=seed,
        max_steps=DEFAULT_MAX_STEPS if max_steps is None else max_steps,
    )
    answer.give(lambda: _table(found, strict=strict), lambda: _lines(found, strict=strict))
    raise typer.Exit(0 if found.is_clean(strict=strict) else 1)


def _refuse_words(context: typer.Context) -> None:
    given = [name for name in OF_WORDS if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    if given:
        raise RequestError(f"--{given[0]}: found beside --launch; expected it in the file")


def _table(found: ForeignCheck, *, strict: bool) -> dict[str, Any]:
    return {
        "entry": found.entry,
        "policies": list(found.policies),
        "clean": found.is_clean(strict=strict),
        "findings": [
            {**asdict(finding.violation), "kind": finding.violation.kind.value, "policies": list(finding.policies)}
            for finding in found.findings
        ],
        "wrong": [asdict(result) for result in found.wrong],
    }


def _lines(found: ForeignCheck, *, strict: bool) -> list[str]:
    errors = [finding for finding in found.findings if not finding.is_convention]
    conventions = [finding for finding in found.findings if finding.is_convention]
    said = "nothing undefined" if not errors else plural(len(errors), "violation")
    if conventions:
        said += f", {plural(len(conventions), 'convention')}{'' if strict else ' that PTX does not order'}"
    lines = [f"{found.entry}: {said} in {plural(len(found.policies), 'order')}: {', '.join(found.policies)}"]
    for finding in (*errors, *conventions):
        lines += ["", *_told(finding, len(found.policies))]
    lines += [f"wrong result: argument {w.argument} under {w.policy}: {w.message}" for w in found.wrong]
    return lines


def _told(finding: Finding, policies: int) -> list[str]:
    violation = finding.violation
    orders = "every order" if len(finding.policies) == policies else ", ".join(finding.policies)
    return [
        f"line {violation.line}: {violation.instruction}",
        f"  {violation}",
        f"  in {orders}" + (f", {violation.count:,} times in the first" if violation.count > 1 else ""),
    ]


def register(application: typer.Typer) -> None:
    """Adds the verb."""
    application.command()(check)
