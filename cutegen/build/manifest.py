"""What an artifact says of itself: where it came from, its files' digests, what the compiler made of it.

`manifest.json` carries a digest of itself, so that a flipped byte in it is noticed like one in any other file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cutegen.build.request import FORMAT_VERSION, KeyInputs
from cutegen.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class Digest:
    """SHA-256 in hex, and size, of one file."""

    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """The digest of `data`."""
        return cls(hashlib.sha256(data).hexdigest(), len(data))


@dataclass(frozen=True, slots=True)
class InstructionCounts:
    """Static counts by full PTX opcode: what the plan predicted, what the compiler emitted."""

    predicted: Mapping[str, int]
    emitted: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of `manifest.json`.

    `spill_bytes` is the local memory per thread, that is, the stack frame: generated kernels hold no arrays that are
    indexed at run time, so what lies there did not fit the registers. `created` is UTC, ISO 8601.
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
        """The text of `manifest.json`: the fields, and last a SHA-256 over them."""
        table = asdict(self)
        return _encode({**table, "manifest_sha256": hashlib.sha256(_encode(table)).hexdigest()})

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read what `to_bytes` wrote. Raises ArtifactError if a single byte differs, or for another format version."""
        table = _decode(data)
        if table.get("format_version") != FORMAT_VERSION:
            raise ArtifactError(
                f"manifest.json: found format version {table.get('format_version')!r}; expected {FORMAT_VERSION}; "
                "build the kernel again with this version of cutegen"
            )
        try:
            manifest = cls._from_table(table)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(f"manifest.json: a field is missing or malformed: {error!r}") from error
        # Writing it again must give the same bytes; that covers every field, the digest and the white space at once.
        if manifest.to_bytes() != data:
            raise ArtifactError(
                "manifest.json: its own digest does not match; the file was changed after it was written"
            )
        return manifest

    @classmethod
    def _from_table(cls, table: dict[str, Any]) -> Manifest:
        inputs = table["inputs"]
        lists = {name: tuple(inputs[name]) for name in ("dsl_distributions", "compile_options")}
        return cls(
            **{
                **{name: value for name, value in table.items() if name != "manifest_sha256"},
                "inputs": KeyInputs(**{**inputs, **lists}),
                "files": {name: Digest(**digest) for name, digest in table["files"].items()},
                "instructions": InstructionCounts(**table["instructions"]),
                "warnings": tuple(table["warnings"]),
            }
        )


def _encode(table: dict[str, Any]) -> bytes:
    return (json.dumps(table, indent=2) + "\n").encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        table = json.loads(data)
    except ValueError as error:
        raise ArtifactError(f"manifest.json: not JSON: {error}") from error
    if not isinstance(table, dict):
        raise ArtifactError(f"manifest.json: found a JSON {type(table).__name__}; expected an object")
    return table
