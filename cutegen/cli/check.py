"""`cutegen check`: a foreign kernel, executed in several orders on the CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cutegen.cli import options
from cutegen.cli.output import Answer
from cutegen.cli.progress import progress
from cutegen.ptx import Program
from cutegen.ptx.program import DEFAULT_MAX_STEPS
from cutegen.ptx.text.source_lines import source_lines
from cutegen.run.foreign import check_foreign, of_file, read_ptx, words_launch
from cutegen.run.launch_file import file_launch
from cutegen.verify.foreign_report import check_lines, check_table

MOST_POLICIES = 10_000
OF_WORDS = ("entry", "grid", "block", "cluster", "arg", "smem")


def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="PTX from any compiler.")],
    entry: options.EntryOption = None,
    grid: options.GridOption = "1",
    block: options.BlockOption = "32",
    cluster: options.ClusterOption = None,
    arg: options.ArgumentOption = None,
    smem: options.SmemOption = 0,
    launch: Annotated[
        Path | None, typer.Option("--launch", metavar="FILE", help="A TOML file that defines the launch.")
    ] = None,
    policies: Annotated[
        int, typer.Option("--policies", metavar="N", min=1, max=MOST_POLICIES, help="Number of orders to try.")
    ] = 5,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="S", min=0, max=options.LARGEST_SEED, help="Seed of random arguments and orders."
        ),
    ] = 0,
    max_steps: options.StepsOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 also if a kernel relies on an order that PTX does not guarantee.")
    ] = False,
    programmatic: Annotated[
        bool,
        typer.Option("--programmatic", help="The grid before may run until griddepcontrol.wait, and use all arrays."),
    ] = False,
    source: Annotated[
        bool,
        typer.Option("--source", help="Name the source lines of findings, if the PTX has them (nvcc -lineinfo)."),
    ] = False,
    out: options.OutOption = None,
    json: options.JsonOption = False,
) -> None:
    """Executes PTX in several orders of CTAs, warps and copies. Exit 1 if it finds undefined behavior."""
    answer = Answer.asked(json=json, out=out)
    if launch is not None:
        options.refuse_options(context, OF_WORDS, "together with --launch, whose file defines it")
        asked = file_launch(launch)
    else:
        asked = words_launch(entry=entry, grid=grid, block=block, cluster=cluster, smem_bytes=smem, words=arg or ())
    if programmatic and asked.programmatic is False:
        asked = replace(asked, programmatic=True)
    with of_file(file):
        text = read_ptx(file)
        program = Program.parse(text)
    with progress() as told, of_file(file):
        found = check_foreign(
            program,
            asked,
            progress=told,
            policies=policies,
            seed=seed,
            max_steps=DEFAULT_MAX_STEPS if max_steps is None else max_steps,
        )
    sources = source_lines(text) if source else None
    answer.give(
        lambda: check_table(found, strict=strict, sources=sources),
        lambda: check_lines(found, strict=strict, sources=sources),
    )
    raise typer.Exit(0 if found.is_clean(strict=strict) else 1)
