"""A job on a worker of a cluster: both versions compared, artifacts sent there and home, verified."""

import hashlib
import pickle
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from cutegen.build import Artifact, Cache
from cutegen.build.artifact import FILES, Content, verified_content
from cutegen.build.request import FORMAT_VERSION, dsl_distributions
from cutegen.errors import ArtifactError, CacheError, CutegenError
from cutegen.executors.workers import Brings, present_gpus
from cutegen.hardware.targeting import present_target
from cutegen.support import environment
from cutegen.support.resources import templates_dir

# Compares both sides of a connection: cutegen's version and files, and the compiler's distributions, must match.


_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Identity:
    """`parts`: cutegen's version, the format of artifacts, the files of cutegen, and each distribution of the DSL."""

    parts: tuple[str, ...]

    def difference(self, other: "Identity") -> str:
        """Say how `other` differs; empty if it does not.

        >>> Identity(("cutegen 1", "dsl==1")).difference(Identity(("cutegen 1", "dsl==2")))
        'found dsl==2; expected dsl==1'
        """
        found = [part for part in other.parts if part not in self.parts]
        expected = [part for part in self.parts if part not in other.parts]
        if not found and not expected:
            return ""
        return f"found {', '.join(found) or 'nothing'}; expected {', '.join(expected) or 'nothing'}"


def identity() -> Identity:
    """Return the identity of this process: two checkouts of one version differ in their files."""
    return Identity(
        (f"cutegen {_version()}", f"artifacts of format {FORMAT_VERSION}", f"files {_files()}", *dsl_distributions())
    )


def _version() -> str:
    try:
        return metadata.version("cutegen")
    except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH, identified by its files
        return "that is not installed"


@cache
def _files() -> str:
    """Return the first 12 hex digits of a SHA-256 over each module and template, with its name."""
    digest = hashlib.sha256()
    for root, pattern in ((_PACKAGE, "*.py"), (templates_dir(), "*.j2")):
        for path in sorted(root.rglob(pattern)):
            digest.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


# Artifacts sent between caches in different folders: bytes with digests, verified before they are kept.
#
# Nothing that arrives is trusted: files are checked against their manifest, the manifest against its own digest, and
# the key against the requested one; then it is published like a local build.


LOCK_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Parcel:
    """The files of the artifact `key`, each deflated."""

    key: str
    files: Mapping[str, bytes] = field(repr=False)


def missing(cache: Cache, keys: Iterable[str]) -> tuple[str, ...]:
    """Return those of `keys` that `cache` lacks."""
    return tuple(key for key in dict.fromkeys(keys) if not cache.holds(key))


def packed(content: Content) -> Parcel:
    """Return a parcel of an artifact's content, with digests of its current state."""
    sealed = content.sealed()
    return Parcel(sealed.manifest.key, {name: zlib.compress(data, 1) for name, data in sealed.files.items()})


def parcels(cache: Cache, keys: Iterable[str]) -> tuple[Parcel, ...]:
    """Return the artifacts that `cache` has of `keys`."""
    found = [cache.artifact(key) for key in dict.fromkeys(keys)]
    return tuple(packed(artifact.content) for artifact in found if artifact is not None)


def unpack(parcel: Parcel, cache: Cache) -> Artifact:
    """Verify a parcel and keep it in `cache`. Raises ArtifactError, CacheError."""
    where = Path(f"artifact {parcel.key[:12]} that was sent")
    if parcel.files.keys() != FILES.keys():
        raise ArtifactError(
            f"{where}: found {', '.join(sorted(parcel.files)) or 'no files'}; expected {len(FILES)} files"
        )
    files = {name: _inflated(parcel.files[name], FILES[name], where) for name in FILES}
    content = verified_content(files, where)
    if content.manifest.key != parcel.key:
        raise ArtifactError(f"{where}: holds the artifact of another key, {content.manifest.key}")
    return kept(content, cache)


def kept(content: Content, cache: Cache) -> Artifact:
    """Return the artifact in `cache`, published under its key's lock if it was missing. Raises CacheError."""
    key = content.manifest.key
    with cache.lock(key, wait_s=LOCK_WAIT_S):
        found = cache.artifact(key)
        return found if found is not None else cache.publish(content)


def _inflated(data: bytes, limit_bytes: int, where: Path) -> bytes:
    """Inflate to at most `limit_bytes`, whatever the data claim."""
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, limit_bytes)
    except zlib.error as error:
        raise ArtifactError(f"{where}: cannot be inflated: {error}") from error
    if not inflater.eof:
        raise ArtifactError(f"{where}: found more than {limit_bytes:,} bytes, or fewer than stated")
    return found


# A job on a worker of a cluster: checked for its version, given its artifacts, called, and its artifacts sent home.
#
# Data travels as `pickle` bytes, which the other side opens only after a version check, inside tuples of strings, which
# every version reads. Anyone who reaches a scheduler can have its workers run anything: Dask's documentation explains
# how to protect it (TLS).


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
