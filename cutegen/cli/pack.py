"""`cutegen pack`: many kernels compiled ahead of time into one file, or the contents of such a file."""

import os
from pathlib import Path
from typing import Annotated

import typer

from cutegen.build.pack_file import MAGIC, SUFFIX, PackFile, check_identities, read_pack
from cutegen.cli import options
from cutegen.cli.many import built, named_kernels, refuse_failures
from cutegen.cli.output import Answer
from cutegen.errors import RequestError
from cutegen.pack.building import Outcome, make_pack
from cutegen.pack.tables import outcome_lines, outcome_table, pack_lines, pack_table, packed_line

OF_MAKING = frozenset({"specs", "problem", "batch", "groups", "arch", "listed", "out", "partial", "jobs", "scheduler"})


def pack(
    context: typer.Context,
    specs: options.SpecsArgument = None,
    problem: options.ProblemsOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    arch: options.ArchsOption = None,
    listed: options.ListOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.cutepack", help="The pack to write.", show_default=False),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="If kernels fail, write the others; the exit code is not 0."),
    ] = False,
    jobs: options.CompilersOption = None,
    scheduler: options.SchedulerOption = None,
    shown: Annotated[
        Path | None,
        typer.Option(
            "--list", metavar="FILE.cutepack", help="Verify a pack and list its contents.", show_default=False
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Compiles specs x problems x targets, without a GPU, into one file for `cutegen.load_pack`.

    Kernels that were built stay in the cache, even if others fail.
    """
    answer = Answer.asked(json=json)
    if shown is not None:
        options.refuse_options(context, OF_MAKING, "together with --list, which builds nothing")
        file, size_bytes = _named_pack(shown), shown.stat().st_size
        answer.give(lambda: pack_table(shown, file.index, size_bytes), lambda: pack_lines(file, size_bytes))
        return
    path = _asked_path(out)
    wanted = named_kernels(specs, problem, batch, groups, arch, listed, verb="pack")
    check_identities(each.identity for each in wanted)  # before anything is compiled
    outcomes = built(wanted, jobs, scheduler)
    if not partial:
        refuse_failures(outcomes, f"{path} was not written, and the others are in the cache; --partial packs them")
    _write(path, outcomes, answer)
    refuse_failures(outcomes, f"{path} holds the others")


def _named_pack(path: Path) -> PackFile:
    """Open the pack that --list names. Raises RequestError if it is not a pack, ArtifactError if it is damaged."""
    try:
        with options.named_file("--list", path, f"a FILE{SUFFIX}").open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as error:
        raise RequestError(f"--list: {path} cannot be read: {error.strerror}") from error
    if begins != MAGIC:
        raise RequestError(f"--list: found {path}, which is not a pack; expected a FILE{SUFFIX} made by `cutegen pack`")
    return read_pack(path)


def _asked_path(out: Path | None) -> Path:
    if out is None:
        raise RequestError(f"pack: found no --out; expected --out FILE{SUFFIX}; --list FILE{SUFFIX} shows one")
    if out.suffix != SUFFIX:
        raise RequestError(f"--out: found {out}; expected a name that ends with {SUFFIX}")
    if not os.path.isdir(out.parent):  # before anything is compiled
        raise RequestError(f"--out: found {out}, but {out.parent} is not a folder; expected an existing folder")
    return out


def _write(path: Path, outcomes: tuple[Outcome, ...], answer: Answer) -> None:
    index = make_pack(path, outcomes)
    size_bytes = path.stat().st_size
    table = {**pack_table(path, index, size_bytes), **outcome_table(outcomes)}
    answer.give(lambda: table, lambda: [*outcome_lines(outcomes), "", packed_line(path, index, size_bytes)])
