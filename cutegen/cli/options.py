"""Arguments and options that several verbs share."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from cutegen.contract import ProblemShape
from cutegen.contract.problem import MAX_EXTENT
from cutegen.errors import RequestError
from cutegen.hardware import TARGETS
from cutegen.hardware.naming import GPU_NAMES
from cutegen.spec import shipped_specs

DEFAULT_PROBLEM = ProblemShape(4096, 4096, 4096)


def complete_spec(begun: str) -> list[str]:
    """The shipped specs whose names begin so: what a shell offers; where it is none, the shell offers files."""
    return [name for name in shipped_specs() if name.startswith(begun)]


def complete_arch(begun: str) -> list[str]:
    """The targets and the GPUs whose names begin so."""
    return [name for name in (*TARGETS, *GPU_NAMES) if name.startswith(begun.lower())]


_SPEC = typer.Argument(
    metavar="SPEC",
    help="A spec file, or the name of a shipped spec.",
    show_default=False,
    autocompletion=complete_spec,
)
SpecArgument: TypeAlias = Annotated[str, _SPEC]
OptionalSpec: TypeAlias = Annotated[str | None, _SPEC]
_KERNEL = typer.Argument(
    metavar="SPEC",
    help="A spec file, the name of a shipped spec, a folder of `build --out`, or a kernel.py, edited or not.",
    show_default=False,
    autocompletion=complete_spec,
)
KernelArgument: TypeAlias = Annotated[str, _KERNEL]
OptionalKernel: TypeAlias = Annotated[str | None, _KERNEL]
ArchOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="ARCH",
        help="Target: sm_80, sm_86, sm_89, sm_90a, sm_100a or sm_120a, or a GPU's name such as h100; default: the "
        "present GPU's, else the first that knows the spec's element types.",
        autocompletion=complete_arch,
        show_default=False,
    ),
]
OutOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Write it there: .txt for text, .json for JSON.", show_default=False
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
ProblemOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--problem",
        metavar="M,N,K",
        help="The problem; what the spec leaves open is chosen for it.",
        show_default=False,
    ),
]
BatchOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--batch", metavar="L", min=1, help="L such problems in one launch.", show_default=False),
]
_SPECS = typer.Argument(
    metavar="SPEC...",
    help="Spec files, or names of shipped specs.",
    show_default=False,
    autocompletion=complete_spec,
)
SpecsArgument: TypeAlias = Annotated[list[str] | None, _SPECS]
_KERNELS = typer.Argument(
    metavar="SPEC...",
    help="Spec files, or names of shipped specs; or one kernel.py, edited or not.",
    show_default=False,
    autocompletion=complete_spec,
)
KernelsArgument: TypeAlias = Annotated[list[str] | None, _KERNELS]
ArchsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="ARCH[,ARCH...]",
        help="Targets: sm_80, sm_90a and the like, or GPUs' names; default: the present GPU's, else the first that "
        "knows a spec's element types.",
        show_default=False,
    ),
]
ProblemsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--problem",
        metavar="M,N,K",
        help="A problem that kernels are chosen for; may be given several times.",
        show_default=False,
    ),
]
ListOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="LIST.toml",
        help="Kernels from a list, as CUTEGEN_RECORD writes it.",
        show_default=False,
    ),
]
CompilersOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Compilers at a time; default: the cores, up to 16.",
        show_default=False,
    ),
]
SchedulerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Use the workers of this Dask scheduler, such as tcp://10.0.0.1:8786, on one machine or many.",
        show_default=False,
    ),
]
RoundsOption: TypeAlias = Annotated[
    int, typer.Option("--rounds", metavar="N", min=1, help="Runs of each contender; the median is shown.")
]
DEFAULT_ROUNDS = 20


class Device(StrEnum):
    """Device that a kernel runs on."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


DeviceOption: TypeAlias = Annotated[
    Device, typer.Option("--device", help="auto: cuda where there is a GPU and torch, else cpu.")
]
SeedOption: TypeAlias = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Seed of the random operands.")]
StrictOption: TypeAlias = Annotated[
    bool, typer.Option("--strict", help="Exit 1 also when counts are not as predicted, which is else a warning.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Run on the CPU even if it takes hours.")]

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
    """Options of the CPU executor; None leaves the choice to cutegen."""

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


def refuse_options(context: typer.Context, names: Collection[str], why: str) -> None:
    """Raise RequestError for the first of the parameters `names` that was given: it would be passed over in silence."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise RequestError(f"{parameter.opts[0]}: found {why}; leave it out")


def named_file(option: str, path: Path, expected: str) -> Path:
    """The path of a file that is to be read. Raises RequestError where there is none, before it is called damaged."""
    if not os.path.isfile(path):  # unlike Path's, of any name
        raise RequestError(f"{option}: found no file {path}; expected {expected}")
    return path


def named_problem(problem: str | None, batch: int | None = None) -> ProblemShape | None:
    """The problem that a plan is to be made for; None where none is named. Raises RequestError."""
    if problem is None:
        if batch is not None:
            raise RequestError(f"--batch: found {batch} without --problem; expected --problem M,N,K beside it")
        return None
    return replace(parse_problem(problem), batch=batch or 1)


def named_problems(problems: Sequence[str] | None, batch: int | None = None) -> tuple[ProblemShape, ...]:
    """The problems that kernels are to be chosen for; none where none is named. Raises RequestError."""
    if not problems:
        named_problem(None, batch)
    return tuple(replace(parse_problem(each), batch=batch or 1) for each in problems or ())


def named_archs(text: str | None) -> tuple[str, ...]:
    """The names in a list with commas. Raises RequestError for an empty one.

    >>> named_archs("sm_80, h100"), named_archs(None)
    (('sm_80', 'h100'), ())
    """
    names = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    if "" in names:
        raise RequestError(f"--arch: found {text!r}; expected targets with commas between them, as in sm_80,sm_90a")
    return names


def parse_problem(text: str) -> ProblemShape:
    """M, N and K out of `M,N,K`. Raises RequestError.

    >>> parse_problem("5120,5120,4096")
    ProblemShape(m=5120, n=5120, k=4096, batch=1)
    """
    parts = text.split(",")
    if len(parts) == 3 and all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        m, n, k = map(int, parts)
        if all(1 <= extent <= MAX_EXTENT for extent in (m, n, k)):
            return ProblemShape(m, n, k)
    raise RequestError(
        f"--problem: found {text!r}; expected three integers M,N,K from 1 to {MAX_EXTENT}, such as 4096,4096,4096"
    )
