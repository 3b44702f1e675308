"""The measuring part of tuning on one GPU, on two, and by two workers of a Dask cluster: wall time and winners.

    python -m tests.gpu.tuning build JOBS.json --problems ... --most 8
    python -m tests.gpu.tuning_gpus JOBS.json OUT.json [--stand-in SECONDS]

Every artifact lies in the cache before: what is timed is measuring alone, from the first job to the last result, with
and without the start of the processes that measure. Winners are the same where they are one kernel, or where each run
takes the other's winner to be no more than 3 % slower than its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from cutegen.executors import ClusterWorkers, LocalWorkers, Workers, present_gpus
from cutegen.support.typed_json import read
from cutegen.tune.jobs import Measured, MeasureJob, Timer
from cutegen.tune.measuring import end_children, measure_job

NOISE = 1.03


def jobs_of(path: Path, stand_in_s: float | None) -> list[MeasureJob]:
    jobs = [read(MeasureJob, each, str(path)) for each in json.loads(path.read_text())["jobs"]]
    if stand_in_s is None:
        return jobs
    return [replace(each, timer=Timer(kind="stand-in", seconds=stand_in_s)) for each in jobs]


def done_by(workers: Workers, jobs: Sequence[MeasureJob], gpus: int) -> tuple[float, float, list[Measured]]:
    """Seconds for all jobs, after each GPU's process has measured the first of them; seconds of that start; results."""
    begin_s = time.monotonic()
    for future in [_submit(workers, jobs[0]) for _ in range(gpus)]:
        future.result()
    start_s = time.monotonic() - begin_s
    begin_s = time.monotonic()
    futures = {_submit(workers, job): job.id for job in jobs}
    found = {futures[future]: future.result() for future in as_completed(futures)}
    return time.monotonic() - begin_s, start_s, [found[job.id] for job in jobs]


def _submit(workers: Workers, job: MeasureJob) -> Future[Measured]:
    return workers.submit(measure_job, job, gpu=True, needs=tuple(each.key for each in job.candidates))


@contextmanager
def local(gpus: Sequence[str | None]) -> Iterator[Workers]:
    workers = LocalWorkers(gpus=gpus)
    try:
        yield workers
    finally:
        workers.close()
        end_children()


@contextmanager
def dask(gpus: Sequence[str | None]) -> Iterator[Workers]:
    from distributed import Nanny, Scheduler, SpecCluster

    common = {"nthreads": 2, "resources": {"GPU": 1}, "memory_limit": 0}
    options = [{**common, "env": {"CUDA_VISIBLE_DEVICES": each} if each else {}} for each in gpus]
    with SpecCluster(
        workers={index: {"cls": Nanny, "options": each} for index, each in enumerate(options)},
        scheduler={"cls": Scheduler, "options": {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}},
        silence_logs=50,
    ) as cluster:
        workers = ClusterWorkers(cluster.scheduler_address, gpu=True, connect_s=15.0)
        try:
            yield workers
        finally:
            workers.close()


def differing(one: Sequence[Measured], other: Sequence[Measured]) -> list[str]:
    """The problems whose winners differ by more than noise, by the times of either run."""
    found = []
    for a, b in zip(one, other, strict=True):
        if a.winner == b.winner:
            continue
        us = [{each.name: each.graph.median_us for each in run.results if each.graph} for run in (a, b)]
        mine, theirs = a.winner or "", b.winner or ""
        ratios = [us[0].get(theirs, 1e9) / us[0].get(mine, 1e9), us[1].get(mine, 1e9) / us[1].get(theirs, 1e9)]
        if max(ratios) > NOISE:
            found.append(f"{a.problem}: {mine} or {theirs}: {ratios[0]:.3f}, {ratios[1]:.3f}")
    return found


def main() -> int:
    """0, unless arguments are wrong: times and differences are for people to judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stand-in", type=float, metavar="SECONDS")
    options = parser.parse_args()
    jobs = jobs_of(options.jobs, options.stand_in)
    present = present_gpus()[:2]
    gpus: Sequence[str | None] = [each.uuid for each in present] if options.stand_in is None else ["none 0", "none 1"]
    print(f"{len(jobs)} problems, {sum(len(each.candidates) for each in jobs)} candidates, GPUs {gpus}", flush=True)
    table: dict[str, object] = {}
    first: list[Measured] = []
    one_s = 0.0
    for name, open_workers, used in (("one", local, gpus[:1]), ("two", local, gpus), ("dask", dask, gpus)):
        try:
            with open_workers(used) as workers:
                seconds, start_s, measured = done_by(workers, jobs, len(used))
        except Exception as error:  # what was measured before stays
            print(f"{name}: {error!r}", flush=True)
            continue
        first, one_s = (first, one_s) if first else (measured, seconds)
        same = sum(a.winner == b.winner for a, b in zip(first, measured, strict=True))
        beyond = differing(first, measured)
        table[name] = {"seconds": seconds, "start_s": start_s, "measured": [asdict(each) for each in measured]}
        options.out.write_text(json.dumps(table))
        print(
            f"{name}: {len(used)} GPUs, {seconds:.2f} s ({seconds / one_s:.3f} of one GPU's), start {start_s:.2f} s, "
            f"{sum(each.winner is not None for each in measured)} won, {same} of {len(jobs)} the same winner, "
            f"{len(beyond)} beyond noise {beyond}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
