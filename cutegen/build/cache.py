"""The folder of artifacts: `<cache>/<2 hex>/<key>/`, safe with many processes, crashes, damage and a size bound.

An entry appears by one rename of a finished folder, so it is there whole or not at all. Every look-up verifies it; a
damaged one is moved to `<cache>/quarantine/`, where the newest few stay for inspection. The modification time of an
entry's folder is when it was last used. Names that begin with a dot are entries being written or removed.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import shutil
import tempfile
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout
from platformdirs import user_cache_path

from cutegen import environment
from cutegen.build.artifact import MANIFEST, SOURCE, Artifact, Content, read_content, sync_directory
from cutegen.build.manifest import Manifest
from cutegen.build.request import BuildRequest
from cutegen.errors import ArtifactError, CacheError

DEFAULT_SIZE_LIMIT_BYTES = 1 << 30
QUARANTINE_LIMIT = 8

_ABANDONED_AFTER_S = 3600.0
_SHARD = re.compile(r"[0-9a-f]{2}")
_KEY = re.compile(r"[0-9a-f]{64}")
_LEFTOVER = re.compile(r"\.[0-9a-f]{64}-.+")
_LOCK = re.compile(r"[0-9a-f]{64}\.lock")
_QUARANTINED = re.compile(r"[0-9]+-[0-9a-f]{64}")

_log = logging.getLogger("cutegen.build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One cached artifact, not verified; `last_used_s` counts seconds since the epoch."""

    key: str
    path: Path
    size_bytes: int
    last_used_s: float

    def manifest(self) -> Manifest:
        """What the entry says of itself. Raises ArtifactError when that cannot be read."""
        try:
            return Manifest.from_bytes((self.path / MANIFEST).read_bytes())
        except OSError as error:
            raise ArtifactError(f"{self.path / MANIFEST}: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInfo:
    """The state of the cache as a whole."""

    directory: Path
    entries: int
    size_bytes: int
    size_limit_bytes: int
    quarantined: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """An entry that failed its verification: how, and what was done with it."""

    path: Path
    problem: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of the key that differs between a cached entry and a request."""

    field: str
    cached: str
    requested: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Why a look-up found nothing: the nearest entry of the same kernel, and what differs from it.

    `nearest` is None when the kernel was never built here. `source_diff` is a unified diff of the two kernel files.
    """

    key: str
    nearest: Entry | None
    differences: tuple[Difference, ...]
    source_diff: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cache:
    """The artifacts in `directory`, together at most `size_limit_bytes` (the entry published last always stays)."""

    directory: Path
    size_limit_bytes: int = DEFAULT_SIZE_LIMIT_BYTES

    @classmethod
    def from_environment(cls) -> Cache:
        """The user's cache: CUTEGEN_CACHE_DIR and CUTEGEN_CACHE_SIZE, else the platform's cache folder and 1 GiB."""
        size_limit_bytes = environment.cache_size_limit_bytes()
        return cls(
            environment.cache_dir() or user_cache_path("cutegen"),
            DEFAULT_SIZE_LIMIT_BYTES if size_limit_bytes is None else size_limit_bytes,
        )

    def path(self, key: str) -> Path:
        """Where the entry for `key` is, or would be."""
        return self.directory / key[:2] / key

    def lookup(self, request: BuildRequest) -> Artifact | None:
        """The verified artifact for `request`; None when there is none, or it was damaged and has been set aside."""
        directory = self.path(request.inputs.key)
        if not os.path.lexists(directory):
            return None
        try:
            content = _read_entry(directory)
            _check_prediction(content, request)
        except ArtifactError as error:
            if os.path.lexists(directory):  # else evicted while it was read: an ordinary miss
                _log.warning("damaged cache entry: %s; %s", error, self._quarantine(directory))
            return None
        with suppress(OSError):  # a read-only cache still serves
            os.utime(directory)
        return Artifact(directory, content, hit=True)

    def lock(self, key: str, *, wait_s: float) -> AbstractContextManager[BaseFileLock]:
        """Take the lock under which `key` is built; released when the answer's `with` block ends.

        Raises CacheError when the cache cannot be written, or the lock is not free within `wait_s`.
        """
        path = self._lock_path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return FileLock(path, timeout=wait_s, poll_interval=0.02).acquire()
        except Timeout as error:
            raise CacheError(f"{path}: held by another process for more than {wait_s:g} s") from error
        except OSError as error:
            raise self._unusable(error) from error

    def publish(self, content: Content) -> Artifact:
        """Make `content` an entry, at once and whole, then evict what is over the size bound.

        Call it under the key's lock; should the entry be there nevertheless, it is used instead of `content`.
        Raises CacheError when the disk is full or the cache cannot be written.
        """
        key = content.manifest.key
        directory = self.path(key)
        try:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for abandoned in directory.parent.glob(f".{key}-*"):  # by a process killed while it held the lock
                _remove(abandoned)
            self._write_and_rename(content, directory)
        except OSError as error:
            try:
                return Artifact(directory, _read_entry(directory), hit=True)
            except ArtifactError:
                raise self._unusable(error) from error
        self._evict(self.size_limit_bytes, keep=key)
        return Artifact(directory, content, hit=False)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, the one used last first."""
        found = [entry for path in self._entry_paths() if (entry := _entry(path))]
        return tuple(sorted(found, key=lambda entry: entry.last_used_s, reverse=True))

    def info(self) -> CacheInfo:
        """How many entries, how large, how many set aside, and whether this process could write."""
        entries = self.entries()
        existing = next((path for path in (self.directory, *self.directory.parents) if path.exists()), self.directory)
        return CacheInfo(
            directory=self.directory,
            entries=len(entries),
            size_bytes=sum(entry.size_bytes for entry in entries),
            size_limit_bytes=self.size_limit_bytes,
            quarantined=len(self._quarantined()),
            writable=existing.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        )

    def verify(self) -> tuple[Damage, ...]:
        """Read and check every entry; the damaged ones, which are moved to the quarantine."""
        damages = []
        for path in self._entry_paths():
            try:
                _read_entry(path)
            except ArtifactError as error:
                damages.append(Damage(path, str(error), self._quarantine(path)))
        return tuple(damages)

    def prune(self, size_limit_bytes: int | None = None) -> tuple[Entry, ...]:
        """Evict the least recently used entries over the bound (the cache's own unless given); sweep up leftovers."""
        evicted = self._evict(self.size_limit_bytes if size_limit_bytes is None else size_limit_bytes)
        oldest_s = time.time() - _ABANDONED_AFTER_S
        for leftover in self._leftovers():
            with suppress(OSError):
                if leftover.lstat().st_mtime < oldest_s:
                    _remove(leftover)
        return evicted

    def clear(self) -> tuple[Entry, ...]:
        """Remove every entry, everything set aside and every lock; the entries that were there."""
        entries = self.entries()
        # Only what the cache itself made: CUTEGEN_CACHE_DIR may name a folder that holds more.
        locks = _children(self._locks_directory, _LOCK)
        for path in (*self._entry_paths(), *self._leftovers(), *self._quarantined(), *locks):
            _remove(path)
        for directory in (*self._shards(), self._quarantine_directory, self._locks_directory):
            with suppress(OSError):
                directory.rmdir()
        return entries

    def explain_miss(self, request: BuildRequest) -> Miss:
        """Compare `request` with the entry of the same kernel that differs in the fewest fields of the key."""
        nearest: tuple[Entry, tuple[Difference, ...]] | None = None
        for entry in self.entries():
            try:
                manifest = entry.manifest()
            except ArtifactError:
                continue
            differences = _differences(manifest, request)
            if manifest.entry == request.source.entry and (nearest is None or len(differences) < len(nearest[1])):
                nearest = entry, differences
        if nearest is None:
            return Miss(key=request.inputs.key, nearest=None, differences=(), source_diff=())
        diff = _source_diff(nearest[0], request)
        return Miss(key=request.inputs.key, nearest=nearest[0], differences=nearest[1], source_diff=diff)

    @property
    def _quarantine_directory(self) -> Path:
        return self.directory / "quarantine"

    @property
    def _locks_directory(self) -> Path:
        return self.directory / "locks"

    def _lock_path(self, key: str) -> Path:
        return self._locks_directory / f"{key}.lock"

    def _shards(self) -> list[Path]:
        return _children(self.directory, _SHARD)

    def _entry_paths(self) -> list[Path]:
        return [path for shard in self._shards() for path in _children(shard, _KEY)]

    def _leftovers(self) -> list[Path]:
        return [path for shard in self._shards() for path in _children(shard, _LEFTOVER)]

    def _quarantined(self) -> list[Path]:
        return _children(self._quarantine_directory, _QUARANTINED)

    def _unusable(self, error: OSError) -> CacheError:
        return CacheError(
            f"cache {self.directory} cannot be written: {error.strerror or error}; "
            f"free some space there or set {environment.CACHE_DIR} to another folder"
        )

    def _write_and_rename(self, content: Content, directory: Path) -> None:
        staging = Path(tempfile.mkdtemp(prefix=f".{content.manifest.key}-", dir=directory.parent))
        try:
            content.write(staging)
            os.rename(staging, directory)
        except OSError:
            _remove(staging)
            raise
        sync_directory(directory.parent)

    def _quarantine(self, directory: Path) -> str:
        """Move a damaged entry out of the way and keep the newest few such; a sentence that says where it went."""
        target = self._quarantine_directory / f"{time.time_ns()}-{directory.name}"
        try:
            self._quarantine_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(directory, target)
        except OSError as error:
            return f"it cannot be moved away: {error.strerror}"
        for old in sorted(self._quarantined())[:-QUARANTINE_LIMIT]:
            _remove(old)
        return f"it was moved to {target} and will be built again"

    def _evict(self, size_limit_bytes: int, keep: str = "") -> tuple[Entry, ...]:
        """Remove the least recently used entries, never `keep`, until the rest fits."""
        entries = self.entries()
        size_bytes = sum(entry.size_bytes for entry in entries)
        evicted = []
        for entry in reversed(entries):
            if size_bytes <= size_limit_bytes:
                break
            if entry.key != keep and self._discard(entry):
                evicted.append(entry)
                size_bytes -= entry.size_bytes
        return tuple(evicted)

    def _discard(self, entry: Entry) -> bool:
        # Renamed first, so that nobody meets an entry of which half the files are gone.
        try:
            trash = tempfile.mkdtemp(prefix=f".{entry.key}-", dir=entry.path.parent)
            os.rename(entry.path, trash)
        except OSError:
            return False
        _remove(Path(trash))
        # A builder that waits for this very lock may then build twice; publishing stays atomic.
        _remove(self._lock_path(entry.key))
        return True


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
    """The entry at `path`; None when it is gone or cannot be read."""
    try:
        size_bytes = sum(file.stat(follow_symlinks=False).st_size for file in os.scandir(path))
        return Entry(key=path.name, path=path, size_bytes=size_bytes, last_used_s=path.stat().st_mtime)
    except OSError:
        return None


def _children(directory: Path, name: re.Pattern[str]) -> list[Path]:
    try:
        return [directory / child for child in os.listdir(directory) if name.fullmatch(child)]
    except OSError:
        return []


def _remove(path: Path) -> None:
    """Remove the file, link or folder as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


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
        cached = (entry.path / SOURCE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(
        difflib.unified_diff(
            cached.splitlines(), request.source.text.splitlines(), "cached", "requested", n=0, lineterm=""
        )
    )
