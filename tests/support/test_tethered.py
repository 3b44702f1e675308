"""A command ends, with what it started, when its caller does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutegen.support.tethered import run_tethered

CALLER = "import sys; from cutegen.support.tethered import run_tethered; run_tethered(sys.argv[1:])"
TREE = "(echo $BASHPID; sleep 600) >> {0} & echo $$ >> {0}; sleep 600"
"""A shell that writes down its process and that of one in the background."""


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_output_and_status_are_the_commands() -> None:
    done = run_tethered(["bash", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)
    assert run_tethered(["bash", "-c", "kill -9 $$"]).returncode == -9


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_the_whole_tree_ends_with_the_caller(sent: signal.Signals, tmp_path: Path) -> None:
    written = tmp_path / "pids"
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, "bash", "-c", TREE.format(written)],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pids: list[int] = []
    for _ in range(500):
        if written.exists() and len(pids := [int(each) for each in written.read_text().split()]) == 2:
            break
        time.sleep(0.02)
    assert [_runs(each) for each in pids] == [True, True]
    os.kill(caller.pid, sent)
    caller.wait()
    for _ in range(100):
        if not any(map(_runs, pids)):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pids} still run")


def test_what_a_command_left_behind_ends_with_the_call(tmp_path: Path) -> None:
    written = tmp_path / "pid"
    run_tethered(["bash", "-c", f"sleep 600 >/dev/null 2>&1 & echo $! > {written}"])
    for _ in range(100):
        if not _runs(int(written.read_text())):
            return
        time.sleep(0.05)
    raise AssertionError("the background process still runs")
