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
from cutegen.run.foreign import check_count, of_file, only_entry, parse_argument, parse_extents, read_ptx
from cutegen.verify.foreign_report import launch_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxLaunch:
    """The launch that the options describe."""

    file: Path
    entry: str | None
    grid: str
    block: str
    cluster: str | None
    arguments: tuple[str, ...]
    smem_bytes: int
    seed: int
    save: Path | None
    execution: ExecutionOptions


def run_ptx(launch: PtxLaunch, answer: Answer) -> None:
    """Execute, report, and save the arrays on request. Raises RequestError, PtxFault, OutsideError."""
    with of_file(launch.file):
        program = Program.parse(read_ptx(launch.file))
    generator = np.random.default_rng(launch.seed)
    values = [parse_argument(text, generator) for text in launch.arguments]
    grid, block = parse_extents("--grid", launch.grid), parse_extents("--block", launch.block)
    cluster = None if launch.cluster is None else parse_extents("--cluster", launch.cluster)
    entry = only_entry(program, launch.entry)
    check_count(program, entry, len(values))
    with progress() as told, of_file(launch.file):
        report = program.launch(
            entry,
            grid=grid,
            block=block,
            cluster=cluster,
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
