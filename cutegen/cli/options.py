"""Arguments and options that several verbs share."""

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from cutegen.contract import ProblemShape
from cutegen.contract.problem import MAX_BATCH, MAX_EXTENT, Distribution
from cutegen.errors import RequestError
from cutegen.hardware import TARGETS
from cutegen.hardware.naming import GPU_NAMES
from cutegen.spec import GemmSpec, load_spec, parse_spec, shipped_specs
from cutegen.support.words import naturals

MOST_JOBS = 1024
MOST_ROUNDS = 10_000
MOST_SMEM_BYTES = 1 << 20
"""Limit of shared memory, above what any GPU has."""
MOST_SPEC_CHARACTERS = 1 << 20
DEFAULT_PROBLEM = ProblemShape(4096, 4096, 4096)


def complete_spec(begun: str) -> list[str]:
    """Return the shipped specs that begin with the word, for completion; if none does, shells offer files."""
    return [name for name in shipped_specs() if name.startswith(begun)]


def complete_arch(begun: str) -> list[str]:
    """Return the targets and GPUs whose names begin with the word."""
    return [name for name in (*TARGETS, *GPU_NAMES) if name.startswith(begun.lower())]


_SPEC = typer.Argument(
    metavar="SPEC",
    help="A spec file, the name of a shipped spec, or - for stdin.",
    show_default=False,
    autocompletion=complete_spec,
)
SpecArgument: TypeAlias = Annotated[str, _SPEC]
OptionalSpec: TypeAlias = Annotated[str | None, _SPEC]
_KERNEL = typer.Argument(
    metavar="SPEC",
    help="A spec file, the name of a shipped spec, a `build --out` folder, a kernel.py (edited or not), or - (stdin).",
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
        help="Target: sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_103a or sm_120a, or a GPU's name such as h100; default: "
        "the GPU in this machine, else the first target that supports the spec's element types.",
        autocompletion=complete_arch,
        show_default=False,
    ),
]
OutOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Output file: .txt for text, .json for JSON.", show_default=False),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
ProblemOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--problem",
        metavar="M,N,K",
        help="The problem; open parts of the spec are chosen for it.",
        show_default=False,
    ),
]
BatchOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="L",
        min=1,
        max=MAX_BATCH,
        help="Batch size: L such problems in one launch.",
        show_default=False,
    ),
]
GroupsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--groups",
        metavar="G",
        min=1,
        max=MAX_EXTENT,
        help="Number of groups, for a spec with problem.groups: the grouped mode of --problem is the room for all of "
        "them, or for each if they are padded.",
        show_default=False,
    ),
]
SizesOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--sizes",
        metavar="S,S,...|NAME",
        help="Sizes of the groups, for a spec with problem.groups, or how all rows are spread over packed ones, "
        f"4 without --groups: {', '.join(Distribution)}; default: all the same.",
        show_default=False,
    ),
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
    help="Spec files, or names of shipped specs; or one kernel.py (edited or not).",
    show_default=False,
    autocompletion=complete_spec,
)
KernelsArgument: TypeAlias = Annotated[list[str] | None, _KERNELS]
ArchsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="ARCH[,ARCH...]",
        help="Targets: sm_80, sm_90a and the like, or GPU names; default: the GPU in this machine, else the first "
        "target that supports a spec's element types.",
        show_default=False,
    ),
]
ProblemsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--problem",
        metavar="M,N,K",
        help="A problem that kernels are chosen for. Repeatable.",
        show_default=False,
    ),
]
ListOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="LIST.toml",
        help="Kernels from a list that CUTEGEN_RECORD wrote.",
        show_default=False,
    ),
]
CompilersOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=MOST_JOBS,
        help="Parallel compilers; default: the number of cores, up to 16.",
        show_default=False,
    ),
]
SchedulerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Use the workers of this Dask scheduler, such as tcp://10.0.0.1:8786.",
        show_default=False,
    ),
]
RoundsOption: TypeAlias = Annotated[
    int, typer.Option("--rounds", metavar="N", min=1, max=MOST_ROUNDS, help="Runs per contender; the median is shown.")
]
DEFAULT_ROUNDS = 20


class Device(StrEnum):
    """Device that runs a kernel."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


DeviceOption: TypeAlias = Annotated[
    Device, typer.Option("--device", help="auto: cuda if a GPU and torch are available, else cpu.")
]
LARGEST_SEED = 2**63 - 1
SeedOption: TypeAlias = Annotated[
    int, typer.Option("--seed", metavar="S", min=0, max=LARGEST_SEED, help="Seed of the random operands.")
]
StrictOption: TypeAlias = Annotated[
    bool, typer.Option("--strict", help="Exit 1 also if counts differ from the prediction, otherwise a warning.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Run on the CPU even if that takes hours.")]

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
    typer.Option("--max-steps", metavar="N", min=1, help="Limit on warp instructions.", rich_help_panel=_CPU_PANEL),
]
JobsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=MOST_JOBS,
        help="Processes that share the CTAs; default: 1, for a long run of SPEC the number of cores, up to 4.",
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
    typer.Option("--entry", metavar="NAME", help="Its entry; optional if it has only one.", rich_help_panel=_PANEL),
]
GridOption: TypeAlias = Annotated[str, typer.Option("--grid", metavar="X[,Y,Z]", help="CTAs.", rich_help_panel=_PANEL)]
BlockOption: TypeAlias = Annotated[
    str, typer.Option("--block", metavar="X[,Y,Z]", help="Threads per CTA.", rich_help_panel=_PANEL)
]
ClusterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="X[,Y,Z]", help="CTAs per cluster, if the kernel does not set it.", rich_help_panel=_PANEL
    ),
]
ArgumentOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="ARG",
        help="One per parameter, in order: i32:5, f32:1.5, f16\\[1024]:random, f32\\[64]:zeros, or a .npy file.",
        rich_help_panel=_PANEL,
    ),
]
SmemOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--smem", metavar="BYTES", min=0, max=MOST_SMEM_BYTES, help="Dynamic shared memory.", rich_help_panel=_PANEL
    ),
]
SaveOption: TypeAlias = Annotated[
    Path | None, typer.Option("--save", metavar="DIR", help="Save the resulting arrays there.", rich_help_panel=_PANEL)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """Options of the CPU executor; with None, cutegen decides."""

    policy: str | None
    max_steps: int | None
    jobs: int | None

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given on the command line."""
        asked = {"--policy": self.policy, "--max-steps": self.max_steps, "--jobs": self.jobs}
        return tuple(name for name, value in asked.items() if value is not None)

    def keywords(self) -> dict[str, Any]:
        """Keyword arguments for `Program.launch` and `Kernel.execute`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def refuse_options(context: typer.Context, names: Collection[str], why: str) -> None:
    """Raise RequestError for the first of the parameters `names` that was given: it would otherwise be ignored."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise RequestError(f"{parameter.opts[0]}: found {why}; leave it out")


def named_spec(words: str) -> GemmSpec:
    """Return the spec in a file, the shipped spec of that name, or with `-` the one on stdin. Raises CutegenError."""
    return parse_spec(_from_stdin(), file="stdin", name="stdin") if words == "-" else load_spec(words)


def _from_stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise RequestError("-: found a terminal; expected a spec on stdin, such as `cutegen plan - < mine.toml`")
    try:
        text = sys.stdin.read(MOST_SPEC_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise RequestError(f"-: found {error.object[error.start]:#04x} on stdin, which is not UTF-8") from error
    if len(text) > MOST_SPEC_CHARACTERS:
        raise RequestError(f"-: found more than {MOST_SPEC_CHARACTERS} characters on stdin; expected a spec")
    if not text.strip():
        raise RequestError("-: found nothing on stdin; expected a spec, which one verb reads once")
    return text.removeprefix("\ufeff")


def named_file(option: str, path: Path, expected: str) -> Path:
    """Return the path of an input file. Raises RequestError if there is no such file, before it is called damaged."""
    if not os.path.isfile(path):  # accepts any name, unlike Path's method
        raise RequestError(f"{option}: found no file {path}; expected {expected}")
    return path


def named_problem(problem: str | None, batch: int | None, groups: int | None = None) -> ProblemShape | None:
    """Return the problem to plan for; None if none is given. Raises RequestError."""
    if problem is None:
        for option, found in (("--batch", batch), ("--groups", groups)):
            if found is not None:
                raise RequestError(
                    f"{option}: found {found} without --problem; expected it together with --problem M,N,K"
                )
        return None
    return replace(parse_problem(problem), batch=batch or 1, groups=groups)


def parse_sizes(text: str) -> tuple[int, ...] | Distribution:
    """Parse the sizes of groups, or the name of a distribution. Raises RequestError.

    >>> parse_sizes("3,0,200"), parse_sizes("zipf")
    ((3, 0, 200), <Distribution.ZIPF: 'zipf'>)
    """
    if text in tuple(Distribution):
        return Distribution(text)
    if (sizes := naturals(text)) and max(sizes) <= MAX_EXTENT:
        return tuple(sizes)
    raise RequestError(
        f"--sizes: found {text!r}; expected integers from 0 to {MAX_EXTENT}, such as 3,0,200, or one of "
        f"{', '.join(Distribution)}"
    )


def named_problems(
    problems: Sequence[str] | None, batch: int | None, groups: int | None = None
) -> tuple[ProblemShape, ...]:
    """Return the problems to choose kernels for; empty if none is given. Raises RequestError."""
    if not problems:
        named_problem(None, batch, groups)
    return tuple(replace(parse_problem(each), batch=batch or 1, groups=groups) for each in problems or ())


def named_archs(text: str | None) -> tuple[str, ...]:
    """Return the names in a comma-separated list. Raises RequestError for an empty one.

    >>> named_archs("sm_80, h100"), named_archs(None)
    (('sm_80', 'h100'), ())
    """
    names = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    if "" in names:
        raise RequestError(f"--arch: found {text!r}; expected a comma-separated list such as sm_80,sm_90a")
    return names


def parse_problem(text: str) -> ProblemShape:
    """Parse `M,N,K`. Raises RequestError.

    >>> str(parse_problem("5120,5120,4096"))
    '5120x5120x4096'
    """
    extents = naturals(text) or ()
    if len(extents) == 3 and all(1 <= extent <= MAX_EXTENT for extent in extents):
        return ProblemShape(*extents)
    raise RequestError(
        f"--problem: found {text!r}; expected three integers M,N,K from 1 to {MAX_EXTENT}, such as 4096,4096,4096"
    )
