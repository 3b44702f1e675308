"""`cutegen run --ptx`: a PTX file, executed on the CPU, with a report of what it did."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import typer

from cutegen.cli.options import ExecutionOptions
from cutegen.cli.output import Answer
from cutegen.cli.progress import progress
from cutegen.errors import OutsideError, PtxFault
from cutegen.ptx import Program
from cutegen.run.foreign import ForeignLaunch, of_file, read_ptx
from cutegen.verify.foreign_report import launch_lines


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
