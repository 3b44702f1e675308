"""Runs the CuTe DSL in a child process with a time limit, and turns whatever goes wrong there into a CompileError."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from cutegen.build.request import COMPILE_OPTIONS
from cutegen.errors import CacheError, CompileError, CutegenError

if TYPE_CHECKING:
    from cutegen.render.source import KernelSource

_CHILD = Path(__file__).with_name("child.py")
_LOG = "log.txt"
_FATAL = "Fatal Python error"  # how faulthandler begins, after whatever the DSL itself said

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# A line of the kernel, in a traceback of Python's or in an arrow of the DSL's.
_KERNEL_LINE = re.compile(r'(?:File "[^"\n]*kernel\.py", line |--> [^\n]*kernel\.py:)(\d+)')
# What follows the complaint in the DSL's messages: advice, and an excerpt of the source.
_AFTER_COMPLAINT = ("suggestion:", "--> ", "= note:")


@dataclass(frozen=True, slots=True)
class CompilerOutput:
    """What the DSL made of a kernel."""

    ptx: bytes
    cubin: bytes


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder, removed at the end, but kept when a CutegenError passes through: its message points there.

    Raises CacheError when no folder can be made.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix="cutegen-"))
    except OSError as error:
        raise CacheError(f"no temporary folder to compile in: {error}; free some space or set TMPDIR") from error
    try:
        yield directory
    except CutegenError:
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory, ignore_errors=True)


def compile_source(source: KernelSource, gpu_arch: str, directory: Path, *, timeout_s: float) -> CompilerOutput:
    """Compile `source` for `gpu_arch` inside `directory`, which is left with the source and the compiler's log.

    Raises CompileError when the compiler refuses, crashes, leaves nothing or runs longer than `timeout_s`.
    """
    (directory / "kernel.py").write_text(source.text, encoding="utf-8")
    status = _run_child(directory, gpu_arch, timeout_s)
    if status != 0:
        raise CompileError(f"{source.entry} for {gpu_arch}: {_explain(status, directory, timeout_s)}")
    try:
        return CompilerOutput((directory / "kernel.ptx").read_bytes(), (directory / "kernel.cubin").read_bytes())
    except OSError as error:
        raise CompileError(f"{source.entry} for {gpu_arch}: the compiler left no output: {error}") from error


def _run_child(directory: Path, gpu_arch: str, timeout_s: float) -> int | None:
    """The child's exit status as `subprocess` gives it; None when it ran out of time."""
    command = [sys.executable, "-P", "-X", "faulthandler", str(_CHILD), "kernel.py", gpu_arch]
    command += [str(math.ceil(timeout_s) + 1), *COMPILE_OPTIONS]
    with open(directory / _LOG, "wb") as log:
        child = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.returncode is None:  # not reaped, so its number, which is its group's too, is still its own
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _explain(status: int | None, directory: Path, timeout_s: float) -> str:
    log = _ANSI.sub("", (directory / _LOG).read_text(encoding="utf-8", errors="replace"))
    if status is None:
        outcome = f"the compiler was stopped after the time limit of {timeout_s:g} s"
    elif status < 0:
        outcome = f"the compiler was killed by {signal.Signals(-status).name}"
    else:
        outcome = "the compiler refused the kernel"
    return f"{outcome}{_place(log)}: {useful_line(log)}; kernel.py and the full log, {_LOG}, are in {directory}"


def _place(log: str) -> str:
    """` at kernel.py:LINE`, the innermost line of the kernel that the log names, if any."""
    before, fatal, after = log.partition(_FATAL)
    # A traceback ends with the innermost frame, faulthandler's begins with it.
    lines = _KERNEL_LINE.findall(after)[:1] if fatal else _KERNEL_LINE.findall(before)[-1:]
    return f" at kernel.py:{lines[0]}" if lines else ""


def useful_line(log: str) -> str:
    r"""The compiler's complaint as one line of at most 600 characters: no frames, no general advice.

    >>> useful_line('Traceback:\n  File "kernel.py", line 3\n    f()\nValueError: no\n  such op\n')
    'ValueError: no such op'
    """
    lines = [line for line in log.partition(_FATAL)[0].splitlines() if line.strip()]
    frames = [index for index, line in enumerate(lines) if line.startswith('  File "')]
    if frames:
        lines = lines[frames[-1] + 1 :]
        while lines and lines[0].startswith("    "):  # the frame's own source
            lines = lines[1:]
    complaint = takewhile(lambda line: not line.lstrip().startswith(_AFTER_COMPLAINT), lines[-20:])
    return " ".join(" ".join(complaint).split())[:600] or "it said nothing"
