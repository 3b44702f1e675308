"""Runs the CuTe DSL in a child process with a time limit, and turns every failure into a CompileError."""

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import IO

from cutegen.build.artifact import CUBIN, FILES, PTX, SOURCE
from cutegen.build.cubin import is_whole
from cutegen.build.disk import no_room, read_file
from cutegen.build.request import COMPILE_OPTIONS, module_paths
from cutegen.contract.source import KernelSource
from cutegen.errors import ArtifactError, CompileError

_CHILD = Path(__file__).with_name("child.py")
_LOG = "log.txt"
_LOG_BYTES = 1 << 20  # read from the log for a message
_FATAL = "Fatal Python error"  # the beginning of faulthandler's output, after the DSL's own

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# A line of the kernel, in a Python traceback or in a DSL arrow.
_KERNEL_LINE = re.compile(r'(?:File "[^"\n]*kernel\.py", line |--> [^\n]*kernel\.py:)(\d+)')
# Follows the error in the DSL's messages: advice, and an excerpt of the source.
_AFTER_COMPLAINT = ("suggestion:", "--> ", "= note:")


_REMARKS = "CUTE_DSL_COMPILER_OPT=remarks{ptx}"
"""Option for the assembler's messages. It does not change the code, and takes some tenths of a second."""
# C7510 to C7519: the assembler adds missing synchronization of wgmma with readers of its registers, or serializes.
_OF_WGMMA = re.compile(r"\((C75\d\d)\) (.*?)(?= ptxas |$)")


@dataclass(frozen=True, slots=True)
class CompilerOutput:
    """Output of the DSL for a kernel, with the assembler's remarks on `wgmma` if requested: code, message."""

    ptx: bytes
    cubin: bytes
    of_wgmma: tuple[tuple[str, str], ...] = ()


def compile_source(
    source: KernelSource, gpu_arch: str, directory: Path, *, timeout_s: float, remarks: bool = False
) -> CompilerOutput:
    """Compile `source` for `gpu_arch` inside `directory`, which keeps the source and the compiler's log.

    With `remarks` the log also has the assembler's messages.

    Raises CompileError if the compiler rejects the kernel, crashes, leaves nothing or only a part, or exceeds
    `timeout_s`; CacheError if `directory` cannot be written.
    """
    try:
        (directory / SOURCE).write_text(source.text, encoding="utf-8")
        status = _run_child(directory, gpu_arch, timeout_s, (*COMPILE_OPTIONS, *([_REMARKS] if remarks else ())))
    except OSError as error:
        raise no_room(error) from error
    if status != 0:
        raise CompileError(f"{source.entry} for {gpu_arch}: {_explain(status, directory, timeout_s)}")
    try:
        ptx, cubin = (read_file(directory / name, FILES[name]) for name in (PTX, CUBIN))
    except ArtifactError as error:
        raise CompileError(f"{source.entry} for {gpu_arch}: the compiler left no output: {error}") from error
    for name, data, whole in ((PTX, ptx, _is_whole_text(ptx)), (CUBIN, cubin, is_whole(cubin))):
        if not whole:  # the DSL reads back what it wrote, and does not see that a full disk cut it off
            found = f"the compiler left {len(data):,} bytes of {name}, without the end of it"
            fix = f"free some space or set TMPDIR to another folder than that of {directory}"
            raise CompileError(f"{source.entry} for {gpu_arch}: {found}; {fix}")
    return CompilerOutput(ptx, cubin, said_of_wgmma(_last_of(directory / _LOG)) if remarks else ())


def _is_whole_text(ptx: bytes) -> bool:
    """Return whether PTX ends after its last function: what follows a cut lacks at least one brace."""
    return ptx.count(b"{") == ptx.count(b"}") and ptx.rstrip().endswith(b"}")


def said_of_wgmma(log: str) -> tuple[tuple[str, str], ...]:
    r"""Return the assembler's messages on `wgmma` in a log without duplicates; the DSL breaks its lines anywhere.

    >>> said_of_wgmma("ptxas info : (C7517) warpgroup.wait is\n   injected\nptxas info : Used 168 registers")
    (('C7517', 'warpgroup.wait is injected'),)
    """
    return tuple(dict.fromkeys(_OF_WGMMA.findall(" ".join(_ANSI.sub("", log).split()))))


def child_environment(directory: Path) -> dict[str, str]:
    """Return the complete environment of the compiler's process.

    HOME and TMPDIR are `directory`, so that the DSL finds no settings and leaves no files elsewhere; LANG makes text
    UTF-8. LD_LIBRARY_PATH is passed on, because the interpreter may not start without it. Other variables may change
    the compiler's output (CUTE_DSL_*, CUDA_HOME, CUDA_PATH, LLVM_*) or Python's imports (PYTHON*), and are not in the
    key.
    """
    kept = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    return {"HOME": str(directory), "TMPDIR": str(directory), "LANG": "C.UTF-8", **kept}


def _run_child(directory: Path, gpu_arch: str, timeout_s: float, options: Sequence[str]) -> int | None:
    """Run the child and return its exit status as `subprocess` gives it; None on a timeout. Raises OSError."""
    # -I and -S: no PYTHON* variable, no current folder, no user's packages, no .pth file, no sitecustomize.
    command = [sys.executable, "-I", "-S", "-X", "faulthandler", str(_CHILD), str(os.getpid()), SOURCE, gpu_arch]
    command += [str(math.ceil(timeout_s) + 1), *options, "--", *module_paths()]
    with open(directory / _LOG, "wb") as log:
        child = _started(command, directory, log)
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.returncode is None:  # not reaped, so its pid and group id are still its own
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _started(command: list[str], directory: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=child_environment(directory),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise CompileError(f"{command[0]} cannot be started to compile: {error.strerror}") from error


def _explain(status: int | None, directory: Path, timeout_s: float) -> str:
    log = _ANSI.sub("", _last_of(directory / _LOG))
    if status is None:
        outcome = f"the compiler was stopped after the time limit of {timeout_s:g} s"
    elif status < 0:
        outcome = f"the compiler was killed by {_signal_name(-status)}"
    else:
        outcome = "the compiler rejected the kernel"
    full = f"the file system of {directory} is full, free some space or set TMPDIR; " if _is_full(directory) else ""
    return f"{outcome}{_place(log)}: {useful_line(log)}; {full}kernel.py and the full log, {_LOG}, are in {directory}"


def _last_of(log: Path) -> str:
    """Return the end of the log, which may be of any length."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
        return file.read(_LOG_BYTES).decode(errors="replace")


def _signal_name(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")  # most real-time signals have no name


def _is_full(directory: Path) -> bool:
    """Return whether no block or no inode is left there."""
    found = os.statvfs(directory)
    return found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)


def _place(log: str) -> str:
    """Return ` at kernel.py:LINE`, the innermost line of the kernel in the log, if any."""
    before, fatal, after = log.partition(_FATAL)
    # A traceback ends with the innermost frame, faulthandler's begins with it.
    lines = _KERNEL_LINE.findall(after)[:1] if fatal else _KERNEL_LINE.findall(before)[-1:]
    return f" at kernel.py:{lines[0]}" if lines else ""


def useful_line(log: str) -> str:
    r"""Return the compiler's error as one line of at most 600 characters, without frames or general advice.

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
    return " ".join(" ".join(complaint).split())[:600] or "no message"
