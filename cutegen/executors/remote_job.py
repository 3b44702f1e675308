"""A job on a worker of a cluster: checked for its version, given its artifacts, called, and its artifacts sent home.

Data travels as `pickle` bytes, which the other side opens only after a version check, inside tuples of strings, which
every version reads. Anyone who reaches a scheduler can have its workers run anything: Dask's documentation explains
how to protect it (TLS).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutegen.build import Cache
from cutegen.errors import CacheError, CutegenError
from cutegen.executors.artifact_transfer import Parcel, missing, parcels, unpack
from cutegen.executors.gpus import present_gpus
from cutegen.executors.identity import identity
from cutegen.executors.workers import Brings
from cutegen.hardware.targeting import present_target
from cutegen.support import environment

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A call and its artifacts. `meeting` identifies the caller's cache folder."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gpu: bool
    needs: tuple[str, ...]
    brings: Brings | None
    meeting: str
    sent: tuple[Parcel, ...] = ()


@dataclass(frozen=True, slots=True)
class Lacking:
    """The worker's cache lacks the artifacts `keys`: the job did not start."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A job's result, with its artifacts unless both caches are one folder."""

    value: Any
    brought: tuple[Parcel, ...]


def greet() -> tuple[tuple[str, ...], tuple[str, str]]:
    """Return the worker's identity in parts; the product and the target of its jobs' GPU, if any."""
    seen = present_gpus()
    target = present_target() if seen else None
    return identity().parts, (seen[0].name if seen else "", target.name if target else "")


def perform(expected: tuple[str, ...], pickled: bytes) -> tuple[str, Any]:
    """Run a packed job, unless the caller's identity is another.

    The result is `(ANSWERED, packed)`, `(REFUSED, parts of the identity here)`, or, for one of cutegen's errors,
    `(FAILED, (message, exit code))`, which every version reads.
    """
    if (here := identity().parts) != expected:
        return REFUSED, here
    try:
        return ANSWERED, pack(_performed(unpacked(pickled)))
    except CutegenError as error:
        return FAILED, (str(error), error.exit_code)


def pack(value: Any) -> bytes:
    """Pack a job or a result for transport."""
    return zlib.compress(pickle.dumps(value), 1)


def unpacked(data: bytes) -> Any:
    """Undo `pack`."""
    return pickle.loads(zlib.decompress(data))


def _performed(job: Job) -> Lacking | Done:
    cache = Cache.from_environment()
    for parcel in job.sent:
        if not cache.holds(parcel.key):
            unpack(parcel, cache)
    if lacking := missing(cache, job.needs):
        return Lacking(lacking)
    value = job.function(*job.arguments, **({"gpu": None} if job.gpu else {}))
    if job.brings is None or cache.meets(job.meeting):
        return Done(value, ())
    keys = tuple(job.brings(value))
    if lost := missing(cache, keys):
        raise CacheError(
            f"{cache.directory}: artifact {lost[0][:12]} is gone after it was built; make this folder writable, and "
            f"large enough: {environment.CACHE_SIZE}"
        )
    return Done(value, parcels(cache, keys))
