"""`cutegen run --ptx`: any PTX, executed on the CPU, with a report of what it did."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer
from numpy.typing import NDArray

from cutegen.cli.output import Answer
from cutegen.cli.progress import progress
from cutegen.errors import OutsideError, RequestError
from cutegen.ptx import LaunchReport, Program
from cutegen.run import bf16_bits
from cutegen.support.columns import aligned

DTYPES = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "bf16": np.uint16,
}  # fmt: skip
FILLS = ("random", "zeros", "ones", "arange")
GRAMMAR = (
    "TYPE:NUMBER such as i32:5, TYPE[COUNT]:FILL such as f16[1024]:random, or a .npy file; "
    f"TYPE is one of {' '.join(DTYPES)}, FILL one of {' '.join(FILLS)}"
)


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
    program = Program.parse(_read(launch.file))
    generator = np.random.default_rng(launch.seed)
    values = [parse_argument(text, generator) for text in launch.arguments]
    with progress() as told:
        report = program.launch(
            _entry(launch, program),
            grid=_extents("--grid", launch.grid),
            block=_extents("--block", launch.block),
            args=values,
            dynamic_smem_bytes=launch.smem_bytes,
            progress=told,
            **launch.execution.keywords(),
        )
    saved = [] if launch.save is None else _save(launch.save, values)
    answer.give(
        lambda: {**asdict(report), "saved": saved}, lambda: [*_lines(report), *(f"saved {path}" for path in saved)]
    )


def parse_argument(text: str, generator: np.random.Generator) -> Any:
    """One `--arg`: a number, or an array. Raises RequestError that shows the grammar.

    >>> parse_argument("f32[3]:arange", np.random.default_rng(0))
    array([0., 1., 2.], dtype=float32)
    """
    if text.endswith(".npy"):
        return _load(Path(text))
    if array := re.fullmatch(r"(\w+)\[(\d{1,12})\]:(\w+)", text):
        name, count, fill = array[1], int(array[2]), array[3]
        if name in DTYPES and fill in FILLS:
            return _filled(name, count, fill, generator)
    elif (number := re.fullmatch(r"(\w+):(\S+)", text)) and number[1] in DTYPES:
        return _number(number[1], number[2])
    raise RequestError(f"--arg: found {text!r}; expected {GRAMMAR}")


def _number(name: str, text: str) -> Any:
    try:
        if name == "bf16" or np.issubdtype(DTYPES[name], np.floating):
            return float(text)
        return np.dtype(DTYPES[name]).type(int(text, 0))
    except (ValueError, OverflowError) as error:
        raise RequestError(f"--arg: found {name}:{text!r}; expected a number of type {name}") from error


def _filled(name: str, count: int, fill: str, generator: np.random.Generator) -> NDArray[Any]:
    """An array of `count` elements; bf16 is kept as its bits. Random floats are normal, random integers 0 to 99."""
    is_float = name == "bf16" or np.issubdtype(DTYPES[name], np.floating)
    values: NDArray[Any]
    match fill:
        case "zeros":
            values = np.zeros(count)
        case "ones":
            values = np.ones(count)
        case "arange":
            values = np.arange(count)
        case _:
            values = generator.standard_normal(count) if is_float else generator.integers(0, 100, count)
    return bf16_bits(values) if name == "bf16" else values.astype(DTYPES[name])


def _extents(option: str, text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if len(parts) <= 3 and all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        return tuple(map(int, parts))
    raise RequestError(f"{option}: found {text!r}; expected one to three positive integers X[,Y,Z]")


def _entry(launch: PtxLaunch, program: Program) -> str:
    """The entry that is named; the only one need not be."""
    names = tuple(program.entries)
    if launch.entry is None and len(names) == 1:
        return names[0]
    if launch.entry not in names:
        found = "nothing" if launch.entry is None else repr(launch.entry)
        raise RequestError(
            f"--entry: found {found}; expected one of {', '.join(names) or 'none, the file has no entry'}"
        )
    return launch.entry


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RequestError(f"--ptx: {path} cannot be read: {reason}") from error


def _load(path: Path) -> NDArray[Any]:
    try:
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise RequestError(f"--arg: {path} cannot be read as a NumPy array: {error}") from error


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


def _lines(report: LaunchReport) -> list[str]:
    executed: dict[str, list[int]] = {}
    for row in report.instructions:
        totals = executed.setdefault(row.opcode, [0, 0, 0, 0])
        for i, count in enumerate((row.executed, row.wavefronts, row.ideal_wavefronts, row.sectors)):
            totals[i] += count
    rows = [
        (opcode, *(f"{count:,}" if count else "" for count in totals)) for opcode, totals in sorted(executed.items())
    ]
    header = ("opcode", "executed", "wavefronts", "ideal", "sectors")
    return [
        f"{report.entry}: {report.steps:,} warp instructions, order {report.policy}",
        *aligned([row for row in rows if row[1]], header=header, right={1, 2, 3, 4}),
    ]
