"""Runs jobs: on threads and GPUs of this machine, any `concurrent.futures.Executor`, or Dask workers on many hosts.

A job is a module function with plain values: it can be pickled, and may run twice if a worker is lost. It finds
artifacts in `Cache.from_environment()` of its process, and leaves artifacts there.

    workers.py     the interface of all workers, and those of this machine: compile processes, and its GPUs
    cluster.py     workers of a Dask cluster: the only module that imports distributed
    remote_job.py  a job on such a worker: versions and files that must match, and artifacts that travel
"""

from cutegen.executors.cluster import ClusterWorkers
from cutegen.executors.workers import LocalWorkers, Workers, present_gpus

__all__ = ["ClusterWorkers", "LocalWorkers", "Workers", "present_gpus"]
