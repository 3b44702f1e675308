"""A job on a worker of a cluster: refused by another version, given its artifacts, called, and its artifacts sent home.

What travels is bytes by `pickle`, opened on the other side only after both are known to be of the same version, and
around them tuples of texts, which every version reads. Whoever reaches a scheduler can have its workers run anything:
Dask's documentation says how to guard it (TLS).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutegen.build import Cache
from cutegen.errors import CacheError, CutegenError
from cutegen.executors.gpus import present_gpus
from cutegen.executors.identity import identity
from cutegen.executors.parcels import Parcel, missing, parcels, unpack
from cutegen.executors.workers import Brings
from cutegen.hardware.targeting import present_target
from cutegen.support import environment

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A call, and the artifacts around it. `meeting` is what the caller's cache folder is known by."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gpu: bool
    needs: tuple[str, ...]
    brings: Brings | None
    meeting: str
    sent: tuple[Parcel, ...] = ()


@dataclass(frozen=True, slots=True)
class Lacking:
    """The worker's cache has not the artifacts `keys`: the job was not begun."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A job's result, with the artifacts that it brings, unless both caches are one folder."""

    value: Any
    brought: tuple[Parcel, ...]


def greet() -> tuple[tuple[str, ...], tuple[str, str]]:
    """The worker's identity in parts; the product and the target of the GPU that its jobs would see, if any."""
    seen = present_gpus()
    target = present_target() if seen else None
    return identity().parts, (seen[0].name if seen else "", target.name if target else "")


def perform(expected: tuple[str, ...], pickled: bytes) -> tuple[str, Any]:
    """Run a packed job, unless the caller's identity is another.

    The answer is `(ANSWERED, packed)`, `(REFUSED, parts of the identity here)`, or `(FAILED, (message, exit code))`:
    errors of cutegen's do not survive pickling.
    """
    if (here := identity().parts) != expected:
        return REFUSED, here
    try:
        return ANSWERED, pack(_performed(unpacked(pickled)))
    except CutegenError as error:
        return FAILED, (str(error), error.exit_code)


def pack(value: Any) -> bytes:
    """A job or an answer, for the way."""
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
            f"{cache.directory}: artifact {lost[0][:12]} is gone after it was built; let this folder be written, and "
            f"have room: {environment.CACHE_SIZE}"
        )
    return Done(value, parcels(cache, keys))
