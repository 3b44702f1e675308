"""Runs jobs: on threads and GPUs of this machine, any `concurrent.futures.Executor`, or Dask workers on many hosts.

A job is a function of a module and plain values: it can be pickled, and may run twice where a worker was lost. It finds
artifacts in `Cache.from_environment()` of the process that it runs in, and leaves artifacts there.

    workers.py    the interface of all workers, and those of this machine
    cluster.py    workers of a Dask cluster: the only module that imports distributed
    there.py      a job on such a worker: is it of the same version, has it the artifacts
    parcels.py    artifacts that travel between caches that are not one folder
    identity.py   versions and files, which must be the same on both sides
    gpus.py       the GPUs of this machine, each by a name that a child process can be given
"""

from __future__ import annotations

from cutegen.executors.cluster import ClusterWorkers
from cutegen.executors.gpus import present_gpus
from cutegen.executors.workers import LocalWorkers, Workers

__all__ = ["ClusterWorkers", "LocalWorkers", "Workers", "present_gpus"]
