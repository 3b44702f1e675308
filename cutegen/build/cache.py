"""The folder of artifacts: `<cache>/<2 hex>/<key>/`, safe with many processes, crashes, damage and a size limit.

An entry appears by one rename of a finished folder, so it is complete or absent. Every lookup verifies it; a damaged
entry is moved to `<cache>/quarantine/`, where the newest few stay for inspection. The modification time of an entry's
folder is its time of last use. Names that begin with a dot are entries being written or removed.
"""

import difflib
import logging
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self, TypeVar

from filelock import BaseFileLock, FileLock, Timeout
from platformdirs import user_cache_path

from cutegen.build.artifact import FILES, MANIFEST, SOURCE, Artifact, Content, Manifest, read_content
from cutegen.build.disk import FULL, folder_bytes, names_in, open_folder, read_file, remove, sync_directory
from cutegen.build.request import BuildRequest
from cutegen.errors import ArtifactError, CacheError
from cutegen.support import environment

DEFAULT_SIZE_LIMIT_BYTES = 1 << 30
QUARANTINE_LIMIT = 8

_ATTEMPTS = 8
_ABANDONED_AFTER_S = 3600.0
_SHARD = re.compile(r"[0-9a-f]{2}")
_KEY = re.compile(r"[0-9a-f]{64}")
_LEFTOVER = re.compile(r"\.[0-9a-f]{64}-.+")
_LOCK = re.compile(r"[0-9a-f]{64}\.lock")
_QUARANTINED = re.compile(r"[0-9]+-[0-9a-f]{64}")

Result = TypeVar("Result")
_log = logging.getLogger("cutegen.build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One cached artifact, not verified; `last_used_s` counts seconds since the epoch."""

    key: str
    path: Path
    size_bytes: int
    last_used_s: float

    def manifest(self) -> Manifest:
        """Read the entry's manifest. Raises ArtifactError if it cannot be read."""
        owner = os.geteuid()
        with open_folder(self.path, owner) as folder:
            data = read_file(self.path / MANIFEST, FILES[MANIFEST], owner=owner, folder=folder)
        return Manifest.from_bytes(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInfo:
    """State of the complete cache; `problem` says why it cannot be read, if it cannot."""

    directory: Path
    entries: int
    size_bytes: int
    size_limit_bytes: int
    quarantined: int
    writable: bool
    problem: str


@dataclass(frozen=True, slots=True)
class Damage:
    """An entry that failed its verification: how, whether it was set aside, and a sentence on that."""

    path: Path
    problem: str
    set_aside: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class Removed:
    """The removed entries, and for each one that remains, the reason."""

    entries: tuple[Entry, ...] = ()
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cache:
    """The artifacts in `directory`, together at most `size_limit_bytes` (the latest published entry always stays)."""

    directory: Path
    size_limit_bytes: int = DEFAULT_SIZE_LIMIT_BYTES

    @classmethod
    def from_environment(cls) -> Self:
        """Return the user's cache: CUTEGEN_CACHE_DIR and CUTEGEN_CACHE_SIZE, else the platform's folder and 1 GiB."""
        size_limit_bytes = environment.cache_size_limit_bytes()
        return cls(
            environment.cache_dir() or user_cache_path("cutegen"),
            DEFAULT_SIZE_LIMIT_BYTES if size_limit_bytes is None else size_limit_bytes,
        )

    def path(self, key: str) -> Path:
        """Return the path of the entry for `key`, existing or not."""
        return self.directory / key[:2] / key

    def holds(self, key: str) -> bool:
        """Return whether the path of the entry for `key` exists."""
        return os.path.lexists(self.path(key))

    def lookup(self, request: BuildRequest) -> Artifact | None:
        """Return the verified artifact for `request`; None if there is none, or it was damaged and has been set aside.

        Its plan is the request's: the entry may have been built for another problem, or by another version.
        """
        return self._found(request.inputs.key, request)

    def artifact(self, key: str) -> Artifact | None:
        """Return the verified artifact of `key` with the plan that it was built by; None as in `lookup`."""
        return self._found(key, None)

    def _found(self, key: str, request: BuildRequest | None) -> Artifact | None:
        directory = self.path(key)
        if not os.path.lexists(directory):
            return None
        try:
            content = _read_entry(directory)
            if request is not None:
                _check_prediction(content, request)
        except ArtifactError as error:
            if os.path.lexists(directory):  # else evicted while it was read: an ordinary miss
                _log.warning("damaged cache entry: %s; %s", error, self._quarantine(directory)[1])
            return None
        with suppress(OSError):  # a read-only cache still serves
            os.utime(directory)
        return Artifact(directory, content if request is None else content.with_plan(request.plan_json), hit=True)

    def lock(self, key: str, *, wait_s: float) -> AbstractContextManager[BaseFileLock]:
        """Take the lock under which `key` is built; released at the end of the `with` block.

        Raises CacheError if the cache cannot be written, or the lock is not free within `wait_s`.
        """
        path = self._lock_path(key)
        try:
            self._make_folder(path.parent)
            return _despite_clear(FileLock(path, timeout=wait_s, poll_interval=0.02).acquire)
        except Timeout as error:
            raise CacheError(f"{path}: held by another process for more than {wait_s:g} s") from error
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def meeting(self) -> Iterator[str]:
        """Return a name that `meets` recognizes in every process with the same folder, until the `with` block ends.

        It is empty, which no process recognizes, if the cache cannot be written.
        """
        name = secrets.token_hex(32)
        try:
            lock = self.lock(name, wait_s=0)
        except CacheError:
            yield ""
            return
        with lock:
            yield name
        remove(self._lock_path(name))

    def meets(self, name: str) -> bool:
        """Return whether this folder is that of the `meeting` called `name`, on this machine or another."""
        return bool(name) and self._lock_path(name).exists()

    def publish(self, content: Content) -> Artifact:
        """Publish `content` as an entry, atomically, then evict entries over the size limit.

        Call it under the key's lock; an existing entry is used instead of `content`. Raises CacheError if the disk is
        full or the cache cannot be written.
        """
        key = content.manifest.key
        directory = self.path(key)

        def write() -> None:
            self._make_folder(directory.parent)
            for abandoned in self._leftovers(key):  # by a process killed while it held the lock
                remove(abandoned)
            self._write_and_rename(content, directory)

        try:
            _despite_clear(write)
        except OSError as error:
            try:
                return Artifact(directory, _read_entry(directory), hit=True)
            except ArtifactError:
                raise self._unusable(error) from error
        with suppress(CacheError):  # a folder that can be written but not listed
            self._evict(self.size_limit_bytes, keep=key)
        return Artifact(directory, content, hit=False)

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries, most recently used first. Raises CacheError if the folder cannot be read."""
        found = [entry for path in self._entry_paths() if (entry := _entry(path))]
        return tuple(sorted(found, key=lambda entry: entry.last_used_s, reverse=True))

    def info(self) -> CacheInfo:
        """Return the number and size of entries, the number set aside, and whether this process can write."""
        entries: tuple[Entry, ...] = ()
        problem = ""
        try:
            entries = self.entries()
        except CacheError as error:
            problem = str(error)
        existing = next((path for path in (self.directory, *self.directory.parents) if os.path.exists(path)), "/")
        return CacheInfo(
            directory=self.directory,
            entries=len(entries),
            size_bytes=sum(entry.size_bytes for entry in entries),
            size_limit_bytes=self.size_limit_bytes,
            quarantined=len(self._quarantined()),
            writable=os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK) and not problem,
            problem=problem,
        )

    def verify(self) -> tuple[Damage, ...]:
        """Read and check every entry; return the damaged ones, moved to the quarantine if possible.

        Raises CacheError if the folder cannot be read.
        """
        return tuple(damage for path in self._entry_paths() if (damage := self._verified(path)))

    def prune(self, size_limit_bytes: int | None = None) -> Removed:
        """Evict the least recently used entries over the limit (default: the cache's own); remove leftovers.

        Raises CacheError if the folder cannot be read.
        """
        removed = self._evict(self.size_limit_bytes if size_limit_bytes is None else size_limit_bytes)
        oldest_s = time.time() - _ABANDONED_AFTER_S
        leftovers = [path for path in self._leftovers() if _older_than(path, oldest_s)]
        return replace(removed, failures=removed.failures + _remove_all(leftovers))

    def clear(self) -> Removed:
        """Remove every entry, everything set aside and every lock.

        Raises CacheError if the folder cannot be read.
        """
        entries = self.entries()
        # Only what the cache itself made: CUTEGEN_CACHE_DIR may name a folder with other content.
        locks = names_in(self._locks_directory, _LOCK)
        failures = _remove_all([*self._entry_paths(), *self._leftovers(), *self._quarantined(), *locks])
        for directory in (*self._shards(), self._quarantine_directory, self._locks_directory):
            with suppress(OSError):
                directory.rmdir()
        return Removed(tuple(entry for entry in entries if not os.path.lexists(entry.path)), failures)

    @property
    def _quarantine_directory(self) -> Path:
        return self.directory / "quarantine"

    @property
    def _locks_directory(self) -> Path:
        return self.directory / "locks"

    def _lock_path(self, key: str) -> Path:
        return self._locks_directory / f"{key}.lock"

    def _shards(self) -> list[Path]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error, "read") from error
        return [self.directory / name for name in names if _SHARD.fullmatch(name)]

    def _entry_paths(self) -> list[Path]:
        return [path for shard in self._shards() for path in names_in(shard, _KEY)]

    def _leftovers(self, key: str = "") -> list[Path]:
        """List the leftovers of entries that a killed process was writing or removing: of one entry, or of all."""
        shards = [self.path(key).parent] if key else self._shards()
        return [path for shard in shards for path in names_in(shard, _LEFTOVER) if path.name.startswith(f".{key}")]

    def _quarantined(self) -> list[Path]:
        return names_in(self._quarantine_directory, _QUARANTINED)

    def _unusable(self, error: OSError, done: str = "written") -> CacheError:
        room = "free some space there or " if error.errno in FULL else ""
        return CacheError(
            f"cache {self.directory} cannot be {done}: {error.strerror or error}; "
            f"{room}set {environment.CACHE_DIR} to another folder"
        )

    def _make_folder(self, folder: Path) -> None:
        """Make a folder of the cache, and the cache itself, for this user alone. Raises OSError."""
        for each in (self.directory, folder):
            try:
                each.mkdir(mode=0o700, parents=True, exist_ok=True)  # the mode does not apply to parents
            except FileExistsError:
                if os.path.lexists(each):  # else `clear` removed it meanwhile, and its first use fails
                    raise

    def _write_and_rename(self, content: Content, directory: Path) -> None:
        staging = Path(tempfile.mkdtemp(prefix=f".{content.manifest.key}-", dir=directory.parent))
        try:
            content.write(staging)
            os.rename(staging, directory)
        except BaseException:  # also Ctrl-C
            remove(staging)
            raise
        sync_directory(directory.parent)

    def _verified(self, path: Path) -> Damage | None:
        try:
            _read_entry(path)
        except ArtifactError as error:
            if os.path.lexists(path):  # else evicted while it was read
                return Damage(path, str(error), *self._quarantine(path))
        return None

    def _quarantine(self, directory: Path) -> tuple[bool, str]:
        """Move a damaged entry away and keep the newest few; return whether it moved, and a sentence on it."""
        target = self._quarantine_directory / f"{time.time_ns()}-{directory.name}"
        try:
            self._make_folder(self._quarantine_directory)
            os.rename(directory, target)
        except OSError as error:
            return False, f"it cannot be moved away: {error.strerror}"
        for old in sorted(self._quarantined())[:-QUARANTINE_LIMIT]:
            remove(old)
        return True, f"it was moved to {target} and will be rebuilt"

    def _evict(self, size_limit_bytes: int, keep: str = "") -> Removed:
        """Remove the least recently used entries, never `keep`, until the rest fits."""
        entries = self.entries()
        size_bytes = sum(entry.size_bytes for entry in entries)
        evicted, failures = [], []
        for entry in reversed(entries):
            if size_bytes <= size_limit_bytes:
                break
            if entry.key == keep:
                continue
            if failure := self._discard(entry):
                failures.append(failure)
            else:
                evicted.append(entry)
                size_bytes -= entry.size_bytes
        return Removed(tuple(evicted), tuple(failures))

    def _discard(self, entry: Entry) -> str:
        """Remove an entry; return why it remains, or nothing."""
        # Renamed first, so that no process sees an entry with half of its files.
        try:
            trash = Path(tempfile.mkdtemp(prefix=f".{entry.key}-", dir=entry.path.parent))
        except OSError as error:
            return f"{entry.path}: {error.strerror}"
        try:
            os.rename(entry.path, trash / entry.key)  # into it, because an entry may not be a folder
        except OSError as error:
            remove(trash)
            return f"{entry.path}: {error.strerror}"
        # A builder that waits for this lock may build twice; publishing stays atomic.
        remove(self._lock_path(entry.key))
        return remove(trash)


def _despite_clear(step: Callable[[], Result]) -> Result:
    """Return `step()`, begun again if another process's `clear` removes the folders that it makes. Raises OSError."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return step()
    return step()


def _read_entry(directory: Path) -> Content:
    content = read_content(directory, owner=os.geteuid())
    if content.manifest.key != directory.name:
        raise ArtifactError(f"{directory}: holds the artifact of another key, {content.manifest.key}")
    return content


def _check_prediction(content: Content, request: BuildRequest) -> None:
    predicted = content.manifest.instructions.predicted
    if predicted != request.instructions:
        raise ArtifactError(
            f"{request.source.entry}: was checked against other predicted instruction counts, {dict(predicted)}; "
            f"the plan now predicts {dict(request.instructions)}"
        )


def _entry(path: Path) -> Entry | None:
    """Return the entry at `path`, even if it is unusable; None if it is gone."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    is_folder = stat.S_ISDIR(status.st_mode)
    return Entry(
        key=path.name,
        path=path,
        size_bytes=folder_bytes(path) if is_folder else status.st_size,
        last_used_s=status.st_mtime,
    )


def _older_than(path: Path, time_s: float) -> bool:
    try:
        return os.lstat(path).st_mtime < time_s
    except OSError:
        return False


def _remove_all(paths: Iterable[Path]) -> tuple[str, ...]:
    """Remove each; return why the remaining ones remain."""
    return tuple(failure for path in paths if (failure := remove(path)))


# Explains why a cache lookup found nothing: the nearest entry of the same kernel, and how it differs.


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of the key that differs between a cached entry and a request."""

    field: str
    cached: str
    requested: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Reason why a lookup found nothing: the nearest entry of the same kernel, and how it differs.

    `nearest` is None if the kernel was never built here. `source_diff` is a unified diff of the two kernel files.
    """

    nearest: Entry | None
    differences: tuple[Difference, ...]
    source_diff: tuple[str, ...]


def explain_miss(cache: Cache, request: BuildRequest) -> Miss:
    """Compare `request` with the entry of the same kernel in `cache` that differs in the fewest fields of the key.

    A cache or an entry that cannot be read yields no explanation, and is not an error here.
    """
    found = [(entry, _differences(manifest, request)) for entry, manifest in _of_the_same_kernel(cache, request)]
    if not found:
        return Miss(nearest=None, differences=(), source_diff=())
    nearest, differences = min(found, key=lambda each: len(each[1]))
    return Miss(nearest=nearest, differences=differences, source_diff=_source_diff(nearest, request))


def _of_the_same_kernel(cache: Cache, request: BuildRequest) -> Iterator[tuple[Entry, Manifest]]:
    with suppress(CacheError):
        for entry in cache.entries():
            with suppress(ArtifactError):
                if (manifest := entry.manifest()).entry == request.source.entry:
                    yield entry, manifest


def _differences(manifest: Manifest, request: BuildRequest) -> tuple[Difference, ...]:
    cached, requested = manifest.inputs, request.inputs
    return tuple(
        Difference(field.name, _text(getattr(cached, field.name)), _text(getattr(requested, field.name)))
        for field in fields(requested)
        if getattr(cached, field.name) != getattr(requested, field.name)
    )


def _text(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _source_diff(entry: Entry, request: BuildRequest) -> tuple[str, ...]:
    try:
        cached = read_file(entry.path / SOURCE, FILES[SOURCE], owner=os.geteuid()).decode()
    except (ArtifactError, UnicodeDecodeError):
        return ()
    return tuple(
        difflib.unified_diff(
            cached.splitlines(), request.source.text.splitlines(), "cached", "requested", n=0, lineterm=""
        )
    )
