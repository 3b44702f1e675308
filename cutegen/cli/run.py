"""`cutegen run`: build a kernel, run it on random data, hold it against float64; or execute any PTX on the CPU."""

from __future__ import annotations

import json as json_text
import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, TypeAlias

import typer

from cutegen.cli.options import DEFAULT_PROBLEM, ArchOption, JsonOption, OptionalSpec, ProblemOption, parse_problem
from cutegen.cli.output import print_json, print_lines
from cutegen.cli.run_ptx import (
    ArgumentOption,
    BlockOption,
    EntryOption,
    FileOption,
    GridOption,
    JobsOption,
    PolicyOption,
    PtxLaunch,
    SaveOption,
    SmemOption,
    StepsOption,
    run_ptx,
)
from cutegen.errors import CheckError, DeviceError, RequestError
from cutegen.plan.columns import aligned
from cutegen.ptx.program import DEFAULT_MAX_STEPS
from cutegen.run import Comparison, Kernel, compare, float64_reference, random_operands
from cutegen.spec import load_spec
from cutegen.straight_line import compile as compile_spec
from cutegen.targeting import present_target


class Device(StrEnum):
    """Where a kernel runs."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


DeviceOption: TypeAlias = Annotated[
    Device, typer.Option("--device", help="auto: cuda where there is a GPU and torch, else cpu.")
]
SeedOption: TypeAlias = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Seed of the random operands.")]


def run(
    spec: OptionalSpec = None,
    problem: ProblemOption = None,
    device: DeviceOption = Device.AUTO,
    seed: SeedOption = 0,
    arch: ArchOption = None,
    json: JsonOption = False,
    ptx: FileOption = None,
    entry: EntryOption = None,
    grid: GridOption = "1",
    block: BlockOption = "32",
    arg: ArgumentOption = None,
    smem: SmemOption = 0,
    policy: PolicyOption = "in-order",
    max_steps: StepsOption = DEFAULT_MAX_STEPS,
    jobs: JobsOption = 1,
    save: SaveOption = None,
) -> None:
    """Builds, runs on random data, compares with a float64 reference. Exit 1 if the result is wrong."""
    if (spec is None) == (ptx is None):
        raise RequestError(
            "run: found " + ("neither" if spec is None else "both") + "; expected either SPEC or --ptx FILE"
        )
    if ptx is not None:
        launch = PtxLaunch(
            file=ptx,
            entry=entry,
            grid=grid,
            block=block,
            arguments=tuple(arg or ()),
            smem_bytes=smem,
            policy=policy,
            max_steps=max_steps,
            jobs=jobs,
            seed=seed,
            save=save,
        )
        run_ptx(launch, json=json)
        return
    assert spec is not None
    kernel = compile_spec(load_spec(spec), arch)
    where = _choose_device(device)
    trial = _try(kernel, where, _choose_problem(problem, kernel, where), seed)
    _show(trial, kernel, json=json)
    if not trial.comparison.ok:
        raise CheckError(_complaint(trial))


@dataclass(frozen=True, slots=True)
class Trial:
    """One run and what came of it."""

    device: str
    problem: tuple[int, int, int]
    seed: int
    comparison: Comparison


def _choose_device(asked: Device) -> Device:
    if asked is Device.CUDA and find_spec("torch") is None:
        raise DeviceError(
            "--device cuda: operands on a GPU are made with torch, which is not installed; pip install torch"
        )
    if asked is not Device.AUTO:
        return asked
    return Device.CUDA if present_target() is not None and find_spec("torch") is not None else Device.CPU


def _choose_problem(asked: str | None, kernel: Kernel, device: Device) -> tuple[int, int, int]:
    """The problem that is asked for, else one that suits the device: on the CPU a single CTA and two k-tiles."""
    if asked is not None:
        return parse_problem(asked)
    if device is Device.CUDA:
        return DEFAULT_PROBLEM
    m, n, k = json_text.loads(kernel.artifact.plan_json)["tile"]
    return m, n, 2 * k


def _try(kernel: Kernel, device: Device, problem: tuple[int, int, int], seed: int) -> Trial:
    framework = "torch" if device is Device.CUDA else "numpy"
    a, b, out = random_operands(kernel.contract, *problem, seed=seed, framework=framework, device=device.value)
    kernel(a, b, out=out)
    accumulator = json_text.loads(kernel.artifact.plan_json)["mma"]["accumulator"]
    dtype = kernel.contract.tensors[2].dtype
    comparison = compare(out, float64_reference(a, b), dtype=dtype, accumulator=accumulator)
    return Trial(device.value, problem, seed, comparison)


def _show(trial: Trial, kernel: Kernel, *, json: bool) -> None:
    found = trial.comparison
    if json:
        wrong = None if found.first_wrong is None else {k: _number(v) for k, v in asdict(found.first_wrong).items()}
        print_json(
            {
                "device": trial.device,
                "problem": list(trial.problem),
                "seed": trial.seed,
                "rel_error": _number(found.rel_error),
                "max_abs_error": _number(found.max_abs_error),
                "ok": found.ok,
                "first_wrong": wrong,
            }
        )
        return
    facts = [
        ("kernel", f"{kernel.contract.entry}, {kernel.artifact.manifest.inputs.gpu_arch}, {kernel.artifact.key[:16]}"),
        ("device", trial.device),
        ("problem", "M {}, N {}, K {}".format(*trial.problem)),
        ("seed", f"{trial.seed}"),
        ("relative error", f"{found.rel_error:.3g}"),
        ("largest error", f"{found.max_abs_error:.3g}"),
        ("result", "ok, every element within its bound" if found.ok else f"wrong, {found.wrong:,} elements"),
    ]
    print_lines(aligned(facts, indent=0))


def _complaint(trial: Trial) -> str:
    first, (m, n, _) = trial.comparison.first_wrong, trial.problem
    assert first is not None
    return (
        f"{trial.comparison.wrong:,} of {m * n:,} elements are wrong; the first is ({first.row}, {first.column}): "
        f"found {first.found:g}; expected {first.expected:g} within {first.allowed_error:.3g}"
    )


def _number(value: float) -> float | None:
    """JSON has neither NaN nor infinity: null stands for them."""
    return value if math.isfinite(value) else None


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(run)
