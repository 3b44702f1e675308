"""Manifest of an artifact: its origin, its files' digests, and the compiler's results.

`manifest.json` has a digest of itself, so that a changed byte in it is detected like one in any other file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cutegen.build.request import FORMAT_VERSION, KeyInputs
from cutegen.errors import ArtifactError
from cutegen.support.typed_json import parse_object, read, shown

_NAME = "manifest.json"
_DIGEST_OF_ITSELF = "manifest_sha256"


@dataclass(frozen=True, slots=True)
class Digest:
    """SHA-256 in hex, and size, of one file."""

    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """Return the digest of `data`."""
        return cls(hashlib.sha256(data).hexdigest(), len(data))


@dataclass(frozen=True, slots=True)
class InstructionCounts:
    """Static counts by full PTX opcode: what the plan predicted, what the compiler emitted."""

    predicted: Mapping[str, int]
    emitted: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of `manifest.json`.

    `spill_bytes` is the local memory per thread, that is, the stack frame: generated kernels have no arrays that are
    indexed at run time, so it only holds values that did not fit the registers. `created` is UTC, ISO 8601.
    """

    format_version: int
    key: str
    entry: str
    inputs: KeyInputs
    files: Mapping[str, Digest]
    registers: int
    spill_bytes: int
    instructions: InstructionCounts
    warnings: tuple[str, ...]
    created: str

    def to_bytes(self) -> bytes:
        """Return the text of `manifest.json`: the fields, and last a SHA-256 over them."""
        table = asdict(self)
        return _encode({**table, _DIGEST_OF_ITSELF: hashlib.sha256(_encode(table)).hexdigest()})

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read the output of `to_bytes`. Raises ArtifactError if a byte differs, or for another format version."""
        table = parse_object(data, _NAME)
        if table.get("format_version") != FORMAT_VERSION:
            raise ArtifactError(
                f"{_NAME}: found format version {shown(table.get('format_version'))}; expected {FORMAT_VERSION}; "
                "rebuild the kernel with this version of cutegen"
            )
        manifest = read(cls, {name: value for name, value in table.items() if name != _DIGEST_OF_ITSELF}, _NAME)
        # Writing it again must give the same bytes; that covers every field, the digest and white space at once.
        if manifest.to_bytes() != data:
            raise ArtifactError(f"{_NAME}: its own digest does not match; the file was changed after it was written")
        return manifest


def _encode(table: dict[str, Any]) -> bytes:
    return (json.dumps(table, indent=2) + "\n").encode()
