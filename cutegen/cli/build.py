"""`cutegen build`: find kernels in the cache, or compile them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cutegen.api import build_request, read_file, request_of_file
from cutegen.build import Artifact, BuildRequest, Cache, explain_miss
from cutegen.build import build as build_artifact
from cutegen.build.tables import build_lines, build_table
from cutegen.cli import options
from cutegen.cli.many import built, named_kernels, refuse_failures
from cutegen.cli.output import Answer, complain
from cutegen.cli.subject import KERNEL_SUFFIX
from cutegen.errors import RequestError
from cutegen.pack.building import Outcome, check_folders, copy_artifacts
from cutegen.pack.kernel_list import RequestedKernel
from cutegen.pack.tables import outcome_lines, outcome_table

OF_SPECS = frozenset({"problem", "batch", "groups", "listed", "scheduler"})
Make = Callable[[BuildRequest, Cache], Artifact]


@dataclass(frozen=True, slots=True)
class _Shown:
    """Form in which the result is shown."""

    answer: Answer
    with_source: bool


def build(
    context: typer.Context,
    specs: options.KernelsArgument = None,
    problem: options.ProblemsOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    arch: options.ArchsOption = None,
    listed: options.ListOption = None,
    with_source: Annotated[
        bool, typer.Option("--explain-miss", help="Show how the nearest cached source differs.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE or FOLDER",
            help="Write the result there: .txt for text, .json for JSON. A name without a suffix is a folder "
            "with one folder per kernel: source, plan, PTX, cubin, manifest.",
            show_default=False,
        ),
    ] = None,
    jobs: options.CompilersOption = None,
    scheduler: options.SchedulerOption = None,
    json: options.JsonOption = False,
) -> None:
    """Compiles a kernel or finds it: key, path, sizes, registers, spills, predicted and emitted instruction counts.

    Several specs, problems or targets are compiled in parallel; a failing kernel does not stop the others. A kernel.py,
    edited or not, is compiled as it is.
    """
    folder = out if out is not None and not out.suffix else None
    answer = Answer.asked(json=json, out=None if folder else out)
    shown = _Shown(answer, with_source)
    if files := [words for words in specs or () if words.endswith(KERNEL_SUFFIX)]:
        if len(specs or ()) > 1:
            raise RequestError(f"build: found {files[0]} together with others; expected one kernel file alone")
        options.refuse_options(context, OF_SPECS, f"together with {files[0]}, which defines all of it")
        _build_one(*_of_file(files[0], arch), build_artifact, folder, shown)
        return
    wanted = named_kernels(specs, problem, batch, groups, arch, listed, verb="build")
    if folder is not None:
        check_folders(folder, wanted)  # before anything is compiled
    if len(wanted) == 1:
        one = wanted[0]
        make = build_artifact if scheduler is None else lambda *_: _built_by_others(one, jobs, scheduler)
        _build_one(one, build_request(one.spec, one.target, problem=one.problem), make, folder, shown)
        return
    outcomes = built(wanted, jobs, scheduler)
    _give_all(outcomes, folder, answer)
    refuse_failures(outcomes, "the others are built")


def _build_one(wanted: RequestedKernel, request: BuildRequest, make: Make, folder: Path | None, shown: _Shown) -> None:
    cache = Cache.from_environment()
    miss = None if cache.holds(request.inputs.key) else explain_miss(cache, request)
    artifact = make(request, cache)
    if folder is not None:
        copy_artifacts(folder, [Outcome(wanted, artifact)])
    title = f"{wanted.name} for {request.target.name}"
    shown.answer.give(
        lambda: build_table(artifact, request.target.name, miss),
        lambda: build_lines(artifact, title, miss, with_source=shown.with_source),
    )


def _of_file(words: str, arch: str | None) -> tuple[RequestedKernel, BuildRequest]:
    """Build a kernel file as `emit` wrote it or as edited since; differences from its plan go to stderr."""
    found = read_file(Path(words), arch)
    for note in found.notes:
        complain("note", f"{words}: {note}")
    plan = found.plan
    name = plan.spec.name or Path(words).stem
    return RequestedKernel(name=name, spec=plan.spec, problem=None, target=plan.target.name), request_of_file(found)


def _built_by_others(wanted: RequestedKernel, jobs: int | None, scheduler: str) -> Artifact:
    outcomes = built([wanted], jobs, scheduler)
    refuse_failures(outcomes, "there is nothing to show")
    artifact = outcomes[0].artifact
    assert artifact is not None
    return artifact


def _give_all(outcomes: tuple[Outcome, ...], folder: Path | None, answer: Answer) -> None:
    paths = None if folder is None else copy_artifacts(folder, outcomes)
    answer.give(lambda: outcome_table(outcomes), lambda: outcome_lines(outcomes, paths))
