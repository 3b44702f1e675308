"""A process that measures does not outlive whoever started it, even while a candidate hangs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

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
