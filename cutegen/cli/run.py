"""`cutegen run`: runs a kernel on random data and checks it against float64, or executes a PTX file on the CPU."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import typer

from cutegen.cli import options
from cutegen.cli.groups import GivenGroups, named_groups
from cutegen.cli.options import ExecutionOptions
from cutegen.cli.output import Answer, complain
from cutegen.cli.progress import progress
from cutegen.cli.subject import Subject, named_subject
from cutegen.contract import ProblemShape
from cutegen.errors import CheckError, DeviceError, OutsideError, PtxFault, RequestError
from cutegen.hardware.targeting import present_target
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.ptx import Program
from cutegen.run import Probe
from cutegen.run.foreign import ForeignLaunch, of_file, read_ptx, words_launch
from cutegen.support.words import plural
from cutegen.verify.cost_estimate import LONG_S, LONGEST_S, duration, estimate_s, worthwhile_jobs
from cutegen.verify.foreign_report import launch_lines
from cutegen.verify.probes import probe_lines, probe_table, try_probe, wrong_probe
from cutegen.verify.trial import Asked, Execution, small_problem, try_kernel
from cutegen.verify.trial_report import other_counts, trial_lines, trial_table, wrong_result

OF_A_SPEC = frozenset({"problem", "batch", "groups", "sizes", "device", "arch", "strict", "yes"})
OF_PTX = frozenset({"entry", "grid", "block", "cluster", "arg", "smem", "save"})
OF_A_GEMM = frozenset({"batch", "groups", "sizes", "yes"})
PTX_SUFFIX = ".ptx"


def run(
    context: typer.Context,
    spec: options.OptionalKernel = None,
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    sizes: options.SizesOption = None,
    device: options.DeviceOption = options.Device.AUTO,
    seed: options.SeedOption = 0,
    arch: options.ArchOption = None,
    strict: options.StrictOption = False,
    yes: options.YesOption = False,
    out: options.OutOption = None,
    json: options.JsonOption = False,
    policy: options.PolicyOption = None,
    max_steps: options.StepsOption = None,
    jobs: options.JobsOption = None,
    ptx: options.FileOption = None,
    entry: options.EntryOption = None,
    grid: options.GridOption = "1",
    block: options.BlockOption = "32",
    cluster: options.ClusterOption = None,
    arg: options.ArgumentOption = None,
    smem: options.SmemOption = 0,
    save: options.SaveOption = None,
) -> None:
    """Builds, runs on random data and compares with a float64 reference. Exit 1 if the result is wrong.

    On the CPU, it executes the compiled PTX and checks the counts against the plan.
    """
    if spec is not None and ptx is None and Path(spec).suffix == PTX_SUFFIX:
        ptx, spec = Path(spec), None
    if (spec is None) == (ptx is None):
        raise RequestError(
            "run: found " + ("neither" if spec is None else "both") + "; expected either SPEC or --ptx FILE"
        )
    answer = Answer.asked(json=json, out=out)
    execution = options.ExecutionOptions(policy=policy, max_steps=max_steps, jobs=jobs)
    if ptx is not None:
        options.refuse_options(context, OF_A_SPEC, "together with --ptx, to which it does not apply")
        launch = words_launch(entry=entry, grid=grid, block=block, cluster=cluster, smem_bytes=smem, words=arg or ())
        run_ptx(ptx, launch, execution, seed=seed, save=save, answer=answer)
        return
    assert spec is not None
    options.refuse_options(context, OF_PTX, "without --ptx; the plan defines the launch of a spec's kernel")
    wanted = Wanted(device=device, seed=seed, arch=arch, strict=strict, execution=execution, answer=answer)
    of_groups = named_groups(groups, sizes)
    _run_spec(context, spec, problem, batch, of_groups, wanted, yes=yes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Request for a run of a kernel or a probe; `device` is not AUTO once a plan exists."""

    device: options.Device
    seed: int
    arch: str | None
    strict: bool
    execution: options.ExecutionOptions
    answer: Answer


def _run_spec(
    context: typer.Context,
    spec: str,
    problem: str | None,
    batch: int | None,
    groups: GivenGroups,
    wanted: Wanted,
    *,
    yes: bool,
) -> None:
    named = None if problem is None else options.named_problem(problem, batch, groups.number)
    subject = named_subject(spec, wanted.arch, named)
    wanted = replace(wanted, device=choose_device(wanted.device, wanted.execution))
    if isinstance(subject.plan, ProbePlan):
        options.refuse_options(context, OF_A_GEMM, "with a probe, which loads once in one CTA")
        run_probe(subject.plan, problem, wanted, subject.probe)
    else:
        _run_gemm(subject, named, batch, groups, wanted, yes=yes)


def _run_gemm(
    subject: Subject,
    named: ProblemShape | None,
    batch: int | None,
    groups: GivenGroups,
    wanted: Wanted,
    *,
    yes: bool,
) -> None:
    planned, where, execution = subject.gemm, wanted.device, wanted.execution
    shape = named or _default_problem(planned, where, batch or 1)
    sizes = groups.of_problem(planned.launch.groups, shape, wanted.seed, multiple=planned.launch.begin_multiple)
    shape = replace(shape, groups=len(sizes) or None)
    if where is options.Device.CPU:
        execution = _be_patient(planned, shape, execution, yes=yes)
    kernel = subject.kernel()
    asked = Asked(device=where.value, problem=shape, batch=batch, seed=wanted.seed, sizes=sizes)
    trial = try_kernel(kernel, planned, asked, options=execution.keywords(), progress=progress)
    wanted.answer.give(lambda: trial_table(trial), lambda: trial_lines(trial, kernel))
    if not trial.ok:
        raise CheckError(wrong_result(trial))
    _complain_of_counts(trial.execution, strict=wanted.strict)


def run_probe(planned: ProbePlan, problem: str | None, wanted: Wanted, make: Callable[[], Probe]) -> None:
    """Build and execute a planned probe and return the result. Raises CheckError for a wrong register."""
    if problem is not None and options.parse_problem(problem) != ProblemShape(*planned.extents):
        size = ",".join(map(str, planned.extents))
        raise RequestError(
            f"--problem: found {problem}; a probe always uses {size}, which fills its stages; leave it out"
        )
    probe = make()
    trial = try_probe(planned, probe, wanted.device.value, wanted.seed, wanted.execution.keywords())
    wanted.answer.give(lambda: probe_table(trial), lambda: probe_lines(trial, probe))
    if not trial.ok:
        raise CheckError(wrong_probe(trial))
    _complain_of_counts(trial.execution, strict=wanted.strict)


def _complain_of_counts(execution: Execution | None, *, strict: bool) -> None:
    if execution is not None and execution.differing:
        if strict:
            raise CheckError(other_counts(execution))
        complain("warning", other_counts(execution))


def choose_device(asked: options.Device, execution: options.ExecutionOptions) -> options.Device:
    """Choose where to run. Raises DeviceError without torch on a GPU, RequestError for options of the CPU executor."""
    if asked is options.Device.CUDA and find_spec("torch") is None:
        raise DeviceError("--device cuda: GPU operands need torch, which is not installed; pip install torch")
    if asked is options.Device.AUTO:
        asked = (
            options.Device.CUDA
            if present_target() is not None and find_spec("torch") is not None
            else options.Device.CPU
        )
    if asked is options.Device.CUDA and execution.given:
        raise RequestError(f"{', '.join(execution.given)}: found with a run on a GPU; expected --device cpu")
    return asked


def _default_problem(planned: GemmPlan, device: options.Device, batch: int) -> ProblemShape:
    """Return the default problem, one that suits the device."""
    return replace(options.DEFAULT_PROBLEM if device is options.Device.CUDA else small_problem(planned), batch=batch)


def _be_patient(
    planned: GemmPlan, shape: ProblemShape, execution: options.ExecutionOptions, *, yes: bool
) -> options.ExecutionOptions:
    """Return the options with a number of jobs; announce a long run, refuse a very long one and say what helps."""
    seconds = estimate_s(planned, shape)
    # CTAs that split a tile's K must see each other's sums: they cannot be spread over processes.
    jobs = execution.jobs or (1 if planned.split_k else worthwhile_jobs(seconds))
    seconds /= jobs
    asked, small = (",".join(map(str, some.extents.values())) for some in (shape, small_problem(planned)))
    way_out = f"--problem {small} takes seconds"
    if seconds > LONGEST_S and not yes:
        raise RequestError(
            f"--problem: found {asked}, about {duration(seconds)} on the CPU with {plural(jobs, 'job')}; expected at "
            f"most {duration(LONGEST_S)}; {way_out}, a GPU runs it at once, and --yes runs it here anyway"
        )
    if seconds > LONG_S:
        took = f"about {duration(seconds)} on the CPU with {plural(jobs, 'job')}"
        complain("note", f"--problem {asked} takes {took}; {way_out}")
    return replace(execution, jobs=jobs)


# `cutegen run --ptx`: a PTX file, executed on the CPU, with a report of what it did.


def run_ptx(
    file: Path, launch: ForeignLaunch, execution: ExecutionOptions, *, seed: int, save: Path | None, answer: Answer
) -> None:
    """Execute, report, and save the arrays on request. Raises RequestError, PtxFault, OutsideError."""
    with of_file(file):
        program = Program.parse(read_ptx(file))
    generator = np.random.default_rng(seed)
    values = [make(generator) for make in launch.make]
    launch.entry_of(program)  # before the progress begins
    printed: list[str] = []
    try:
        with progress() as told, of_file(file):
            report = launch.run(program, values, progress=told, printed=printed.append, **execution.keywords())
    except PtxFault:
        typer.echo("".join(printed), nl=False, err=True)  # what it said before
        raise
    saved = [] if save is None else _save(save, values)
    answer.give(
        lambda: {**asdict(report), "saved": saved},
        lambda: [*launch_lines(report), *(f"saved {path}" for path in saved)],
    )


def _save(directory: Path, values: list[Any]) -> list[str]:
    """Save each array as DIR/argN.npy."""
    saved = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for i, value in enumerate(values):
            if isinstance(value, np.ndarray):
                path = directory / f"arg{i}.npy"
                np.save(path, value)
                saved.append(str(path))
    except OSError as error:
        raise OutsideError(f"--save: {directory} cannot be written: {error.strerror}") from error
    return saved
