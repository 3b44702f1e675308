"""`cutegen run --ptx`: any PTX, executed on the CPU, with a report of what it did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutegen.cli.options import ExecutionOptions
from cutegen.cli.output import Answer
from cutegen.cli.progress import progress
from cutegen.errors import OutsideError
from cutegen.ptx import Program
from cutegen.run.foreign import only_entry, parse_argument, parse_extents, read_ptx
<<<<<<< HEAD
from cutegen.support.columns import aligned
from cutegen.support.words import plural

_CPU_PANEL = "CPU executor"
PolicyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="ORDER",
        help="Order of CTAs, warps and sides of a branch: in-order (the default), reversed, random or random:SEED.",
        rich_help_panel=_CPU_PANEL,
    ),
]
StepsOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--max-steps", metavar="N", min=1, help="Limit of warp instructions.", rich_help_panel=_CPU_PANEL),
]
JobsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Processes to spread the CTAs over; default: 1, and for a long run of SPEC the cores, up to 4.",
        rich_help_panel=_CPU_PANEL,
    ),
]

_PANEL = "Foreign PTX"
FileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--ptx", metavar="FILE", help="Execute this PTX on the CPU instead.", rich_help_panel=_PANEL),
]
EntryOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--entry", metavar="NAME", help="Its entry; the only one need not be named.", rich_help_panel=_PANEL),
]
GridOption: TypeAlias = Annotated[str, typer.Option("--grid", metavar="X[,Y,Z]", help="CTAs.", rich_help_panel=_PANEL)]
BlockOption: TypeAlias = Annotated[
    str, typer.Option("--block", metavar="X[,Y,Z]", help="Threads of a CTA.", rich_help_panel=_PANEL)
]
ClusterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="X[,Y,Z]", help="CTAs of a cluster, if the kernel does not say.", rich_help_panel=_PANEL
    ),
]
ArgumentOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="ARG",
        help="One for each parameter, in order: i32:5, f32:1.5, f16\\[1024]:random, f32\\[64]:zeros, or a .npy file.",
        rich_help_panel=_PANEL,
    ),
]
SmemOption: TypeAlias = Annotated[
    int, typer.Option("--smem", metavar="BYTES", min=0, help="Dynamic shared memory.", rich_help_panel=_PANEL)
]
SaveOption: TypeAlias = Annotated[
    Path | None, typer.Option("--save", metavar="DIR", help="Save the arrays there afterwards.", rich_help_panel=_PANEL)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """What is asked of the CPU executor; None leaves it to cutegen."""

    policy: str | None
    max_steps: int | None
    jobs: int | None

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were written down."""
        asked = {"--policy": self.policy, "--max-steps": self.max_steps, "--jobs": self.jobs}
        return tuple(name for name, value in asked.items() if value is not None)

    def keywords(self) -> dict[str, Any]:
        """Keyword arguments for `Program.launch` and `Kernel.execute`."""
        return {name: value for name, value in asdict(self).items() if value is not None}
=======
from cutegen.verify.foreign_report import launch_lines
>>>>>>> show


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxLaunch:
    """What the options ask for."""

    file: Path
    entry: str | None
    grid: str
    block: str
    arguments: tuple[str, ...]
    smem_bytes: int
    seed: int
    save: Path | None
    execution: ExecutionOptions


def run_ptx(launch: PtxLaunch, answer: Answer) -> None:
    """Execute, report, and save the arrays if asked to. Raises RequestError, PtxFault, OutsideError."""
    program = Program.parse(read_ptx(launch.file))
    generator = np.random.default_rng(launch.seed)
    values = [parse_argument(text, generator) for text in launch.arguments]
    with progress() as told:
        report = program.launch(
            only_entry(program, launch.entry),
            grid=parse_extents("--grid", launch.grid),
            block=parse_extents("--block", launch.block),
            args=values,
            dynamic_smem_bytes=launch.smem_bytes,
            progress=told,
            **launch.execution.keywords(),
        )
    saved = [] if launch.save is None else _save(launch.save, values)
    answer.give(
        lambda: {**asdict(report), "saved": saved},
        lambda: [*launch_lines(report), *(f"saved {path}" for path in saved)],
    )


def _save(directory: Path, values: list[Any]) -> list[str]:
    """Each array as DIR/argN.npy."""
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
