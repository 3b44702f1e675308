"""Explains why a cache lookup found nothing: the nearest entry of the same kernel, and how it differs."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields

from cutegen.build.artifact import FILES, SOURCE
from cutegen.build.cache import Cache, Entry
from cutegen.build.disk import read_file
from cutegen.build.manifest import Manifest
from cutegen.build.request import BuildRequest
from cutegen.errors import ArtifactError, CacheError


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
