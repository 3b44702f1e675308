"""A process that measures or compiles does not outlive whoever started it, even while a candidate hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutegen.cli.main import INTERRUPTED

HANGS = """
from cutegen.contract import ProblemShape
from cutegen.tune.jobs import Candidate, MeasureJob, Timer
from cutegen.tune.measuring import measure_job

measure_job(MeasureJob(
    id="a", spec_name="a", asked="{}", target="sm_80", problem=ProblemShape(64, 64, 64),
    candidates=(Candidate(name="c", settled="{}", key="0" * 64),),
    timer=Timer(kind="stand-in", hanging=("c",)),
))
"""


def _children(pid: int) -> list[int]:
    texts = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(each) for text in texts for each in text.split()]


def _ticks(pid: int) -> int:
    """The processor time that it has used, coarsely: its watching of the parent takes some."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) // 5


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
def test_it_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", HANGS])
    try:
        for _ in range(300):
            if children := _children(parent.pid):
                break
            time.sleep(0.05)
        (child,) = children
        used = -1
        while used != (used := _ticks(child)):  # until it hangs, and no longer starts
            time.sleep(1.0)
        assert _runs(child)
    finally:
        parent.kill()
        parent.wait()
    for _ in range(100):
        if not _runs(child):
            return
        time.sleep(0.05)
    raise AssertionError(f"{child} still runs")


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _compilers(pid: int) -> list[int]:
    return [each for each in _descendants(pid) if b"build/child.py" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_compiling_ends_the_command_and_its_compilers(presses: int, tmp_path: Path) -> None:
    words = ["tune", "sm80_hgemm_tn", "--stand-in", "0", "--problem", "64,64,64", "--most", "8", "--jobs", "2"]
    command = subprocess.Popen(
        [sys.executable, "-m", "cutegen", *words],
        env={**os.environ, "CUTEGEN_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells start background jobs that ignore it
    )
    try:
        for _ in range(600):
            if compilers := _compilers(command.pid):
                break
            time.sleep(0.1)
        assert compilers
        for _ in range(presses):
            os.killpg(command.pid, signal.SIGINT)
            time.sleep(0.3)
        _, said = command.communicate(timeout=10.0)
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
    # A second press may come before the command has said what is kept, or when it has said all: then Python ends by the
    # signal as other programs do.
    assert command.returncode in ({3} if presses == 1 else {3, INTERRUPTED, -signal.SIGINT}), said
    if command.returncode != INTERRUPTED:
        assert said.count(b"\n") == 1, said
        assert b"interrupted: 0 of 1 problems are kept" in said
    assert [each for each in compilers if _runs(each)] == []
    assert not list(tmp_path.glob("cutegen-build-*")), "a compiler's folder is removed"
