"""Compares both sides of a connection: cutegen's version and files, and the compiler's distributions, must match."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from cutegen.build.request import FORMAT_VERSION, dsl_distributions
from cutegen.support.resources import templates_dir

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Identity:
    """`parts`: cutegen's version, the format of artifacts, the files of cutegen, and each distribution of the DSL."""

    parts: tuple[str, ...]

    def difference(self, other: Identity) -> str:
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
