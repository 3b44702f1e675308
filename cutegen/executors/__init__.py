"""Runs jobs: on threads and GPUs of this machine, any `concurrent.futures.Executor`, or Dask workers on many hosts.

A job is a module function with plain values: it can be pickled, and may run twice if a worker is lost. It finds
artifacts in `Cache.from_environment()` of its process, and leaves artifacts there.

    workers.py            the interface of all workers, and those of this machine
    processes.py          compile processes of this machine, which can be stopped at once
    cluster.py            workers of a Dask cluster: the only module that imports distributed
    remote_job.py         a job on such a worker: version check and artifacts
    artifact_transfer.py  artifacts that travel between caches in different folders
    identity.py           versions and files, which must match on both sides
    gpus.py               the GPUs of this machine, each by a name for a child process
"""

from __future__ import annotations

from cutegen.executors.cluster import ClusterWorkers
from cutegen.executors.gpus import present_gpus
from cutegen.executors.workers import LocalWorkers, Workers

__all__ = ["ClusterWorkers", "LocalWorkers", "Workers", "present_gpus"]
