"""The workers of this machine: one job a GPU at a time, compilers beside each other, any executor instead."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import pytest

from cutegen.errors import DeviceError
from cutegen.executors import LocalWorkers, Workers
from cutegen.executors.workers import PresentGpu, StoppableProcesses, _visible
from tests.executors import jobs


def test_each_gpu_does_one_job_at_a_time(tmp_path: Path) -> None:
    workers: Workers = LocalWorkers(gpus=("GPU-a", "GPU-b"))
    futures = [workers.submit(jobs.busy, tmp_path, gpu=True) for _ in range(12)]
    assert [each.result() for each in as_completed(futures)] == [0] * 12
    futures = [workers.submit(jobs.where, gpu=True) for _ in range(12)]
    assert {each.result()[0] for each in futures} <= {"GPU-a", "GPU-b"}
    assert workers.gpus == 2
    workers.close()


def test_without_a_gpu_a_job_for_one_is_refused() -> None:
    workers = LocalWorkers()
    with pytest.raises(DeviceError, match="found no GPU on this machine; expected one; --scheduler"):
        workers.submit(jobs.where, gpu=True)
    assert workers.submit(jobs.square, 3).result() == 9
    workers.close()


def test_any_executor_serves_to_compile() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        workers = LocalWorkers(compiling=processes)
        assert workers.submit(jobs.sleeping, 0.0).result() != os.getpid()
        workers.close()
        assert processes.submit(jobs.square, 2).result() == 4, "it is its owner's to close"


def test_what_has_not_begun_is_cancelled() -> None:
    workers = LocalWorkers(compilers=1)
    futures = [workers.submit(jobs.sleeping, 0.1) for _ in range(20)]
    workers.close()
    assert sum(each.cancelled() for each in futures) >= 18


def test_stopped_processes_end_what_they_do_and_begin_nothing_more() -> None:
    processes = StoppableProcesses(2)
    assert processes.submit(jobs.square, 2).result() == 4
    begin_s = time.monotonic()
    futures = [processes.submit(jobs.sleeping, 60.0) for _ in range(8)]
    while not futures[0].running():
        time.sleep(0.01)
    processes.stop()
    assert time.monotonic() - begin_s < 20.0
    assert all(each.cancelled() or isinstance(each.exception(), SystemExit) for each in futures)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,2", "ac"),
        ("GPU-b", "b"),
        ("2,9,0", "c"),
        ("", ""),
        ("GPU-", ""),
        ("1,1", "b"),
        ("GPU-c,0", "ca"),
        ("0,²", "a"),
    ],
)
def test_visible_gpus_are_those_that_cuda_would_see(visible: str, expected: str) -> None:
    found = tuple(PresentGpu(f"GPU-{name}", "H200") for name in "abc")
    names = tuple(name for name in visible.split(",") if name)
    assert "".join(each.uuid[-1] for each in _visible(found, names)) == expected
