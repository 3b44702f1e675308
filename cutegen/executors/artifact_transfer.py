"""Artifacts sent between caches in different folders: bytes with digests, verified before they are kept.

Nothing that arrives is trusted: files are checked against their manifest, the manifest against its own digest, and the
key against the requested one; then it is published like a local build.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cutegen.build import Artifact, Cache
from cutegen.build.artifact import FILES, Content, verified_content
from cutegen.errors import ArtifactError

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
