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


COMMANDS = {
    "tune": ["tune", "sm80_hgemm_tn", "--stand-in", "0", "--problem", "64,64,64", "--most", "8", "--jobs", "2"],
    "build of many": ["build", "sm80_hgemm_tn", "sm80_bf16_nn", "sm80_tf32_tn", "sm80_s8_tn", "--jobs", "2"],
}


def _started(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "cutegen", *words],
        env={**os.environ, "CUTEGEN_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _compilers_soon(pid: int) -> list[int]:
    """The compilers below a process, as soon as there is one."""
    for _ in range(1200):
        if found := _compilers(pid):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{pid} compiles nothing")


def _left_of(pids: list[int], within_s: float = 5.0) -> list[int]:
    """Those that still run after a while."""
    until_s = time.monotonic() + within_s
    while (left := [each for each in pids if _runs(each)]) and time.monotonic() < until_s:
        time.sleep(0.05)
    return left


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("what", COMMANDS)
def test_every_process_ends_with_a_command_that_is_killed(what: str, sent: signal.Signals, tmp_path: Path) -> None:
    command = _started(COMMANDS[what], tmp_path)
    _compilers_soon(command.pid)
    others = list(_descendants(command.pid))
    assert len(others) >= (3 if what == "tune" else 1)  # a compiler, and the processes of a pool
    command.send_signal(sent)
    command.communicate(timeout=30.0)  # a process that is left holds its stderr
    assert command.returncode == -sent
    assert _left_of(others) == []


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("victim", ["command", "worker"])
def test_with_a_scheduler_nothing_outlives_the_worker_or_the_command(
    victim: str, sent: signal.Signals, tmp_path: Path
) -> None:
    """A job goes on without the command, to its own end; the compiler of a killed worker does not."""
    pytest.importorskip("distributed")
    from tests.executors.clusters import cluster

    with cluster([tmp_path / "worker"], gpu=False) as one:
        command = _started(["build", "sm80_hgemm_tn", "sm80_bf16_nn", "--scheduler", one.address], tmp_path)
        (worker,) = one.pids()
        compilers = _compilers_soon(worker)
        others = list(_descendants(command.pid))
        os.kill(command.pid if victim == "command" else worker, sent)
        assert _left_of(compilers, 60.0 if victim == "command" else 5.0) == []
        command.kill()
        command.communicate()
    assert _left_of([*others, worker]) == []


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_compiling_ends_the_command_and_its_compilers(presses: int, tmp_path: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "cutegen", *COMMANDS["tune"]],
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
