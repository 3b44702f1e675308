"""`cutegen.build` with a compiler that is already there: for tests that need many kernels and none of its start."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cutegen.build import compiler

ROOT = Path(__file__).parents[2]


class WarmCompiler:
    """Stands for `cutegen.build.compiler._run_child`: child.py in forks of one process, which the first use starts."""

    def __init__(self, folder: str) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, directory: Path, gpu_arch: str, timeout_s: float, options: Sequence[str]) -> int:
        arguments = [str(directory), "kernel.py", gpu_arch, str(math.ceil(timeout_s)), *options]
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(arguments), file=process.stdin, flush=True)
            status = process.stdout.readline()
            assert status, "the process that forks the compiler is gone"
            return int(status)

    def _start(self) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep),
            "TMPDIR": self._folder,
            "OPENBLAS_NUM_THREADS": "1",  # a process with threads is better not forked
        }
        return subprocess.Popen(
            [sys.executable, "-m", "tests.build.forked_compiler"],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def used(self) -> Iterator[None]:
        """All that is built meanwhile is compiled warm; cutegen does the rest as ever."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiler, "_run_child", self)
            yield

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.communicate()


@contextmanager
def warm_compiler() -> Iterator[WarmCompiler]:
    """A compiler that is not used yet."""
    with tempfile.TemporaryDirectory() as folder:
        warm = WarmCompiler(folder)
        yield warm
        warm.close()
