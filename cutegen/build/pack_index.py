"""The index of a pack: for each kernel the requests it serves, its launch, and the place of its bytes in the file.

It is JSON, the same for every language that reads packs; docs/pack_format.md describes each field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from cutegen.build.artifact import FILES
from cutegen.contract.launch import GEMM, KINDS, LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import ArtifactError, RequestError
from cutegen.support.typed_json import parse_object, read, shown

INDEX = "index"
"""Name of the index in messages."""

Identity: TypeAlias = tuple[str, str, ProblemShape | None]
"""Identity of a kernel in a pack: its name, its target and its problem."""


@dataclass(frozen=True, slots=True)
class PackMember:
    """Place of one file's bytes, relative to the end of the index, rounded up; and their SHA-256 in hex."""

    offset: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlainEntry:
    """An entry without its launch contract, which is read by separate rules."""

    name: str
    problem: ProblemShape | None
    target: str
    gpu_arch: str
    kind: str
    ops: tuple[str, ...]
    key: str
    files: Mapping[str, PackMember]
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackEntry(_PlainEntry):
    """One kernel of a pack: the spec called `name`, planned for `problem` and compiled for `target`.

    Without a `problem` it serves all problems. `ops` are those of the spec's epilogue and `expression`
    its last step, if it has one. `files` are those of the artifact, by name.
    """

    launch: LaunchContract

    def __str__(self) -> str:
        """Format as `sm80_hgemm_tn for sm_80, 4096x4096x4096`."""
        return f"{self.name} for {self.target}" + (f", {self.problem}" if self.problem else "")

    @property
    def identity(self) -> Identity:
        """The identity of the entry, unique in a pack."""
        return self.name, self.target, self.problem

    def to_json(self) -> dict[str, Any]:
        """Return the plain form that `PackIndex.from_bytes` reads back."""
        return {
            "name": self.name,
            "problem": None if self.problem is None else self.problem.table(),
            "target": self.target,
            "gpu_arch": self.gpu_arch,
            "kind": self.kind,
            "ops": list(self.ops),
            **({} if self.expression is None else {"expression": self.expression}),
            "key": self.key,
            "launch": self.launch.to_json(),
            "files": {name: asdict(member) for name, member in self.files.items()},
        }


@dataclass(frozen=True, slots=True)
class PackIndex:
    """The entries in the order of packing; `cutegen` is the version that packed them."""

    cutegen: str
    entries: tuple[PackEntry, ...]

    def to_bytes(self) -> bytes:
        """Return the JSON text."""
        entries = [entry.to_json() for entry in self.entries]
        return json.dumps({"cutegen": self.cutegen, "entries": entries}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, file: str) -> PackIndex:
        """Read the output of `to_bytes`, from the pack called `file`.

        Raises ArtifactError, with its address, for a value of another type, a missing or unknown key, other files than
        an artifact's, and a duplicate kernel.
        """
        address = f"{file}: {INDEX}"
        table = parse_object(data, address)
        listed = table.get("entries")
        if table.keys() != {"cutegen", "entries"} or not isinstance(listed, list):
            raise ArtifactError(f"{address}: found the keys {shown(sorted(table))}; expected cutegen, entries: a list")
        version = read(str, table["cutegen"], address, "cutegen")
        entries = tuple(_entry(each, address, f"entries[{i}]") for i, each in enumerate(listed))
        _check_distinct(entries, address)
        return cls(version, entries)


def _entry(table: Any, file: str, address: str) -> PackEntry:
    launch = table.pop("launch", None) if isinstance(table, dict) else None
    try:
        plain = read(_PlainEntry, table, file, address)
    except RequestError as error:  # an invalid problem
        raise ArtifactError(f"{file}: {address}.{error}") from error
    if plain.kind not in KINDS:
        raise ArtifactError(f"{file}: {address}.kind: found {shown(plain.kind)}; expected one of {', '.join(KINDS)}")
    if plain.files.keys() != FILES.keys():
        raise ArtifactError(
            f"{file}: {address}.files: found {shown(sorted(plain.files))}; expected those of an artifact, "
            f"{', '.join(sorted(FILES))}"
        )
    for name, member in plain.files.items():
        if member.size_bytes > FILES[name]:
            found = f"found {member.size_bytes:,} bytes; expected at most {FILES[name]:,}"
            raise ArtifactError(f"{file}: {address}.files.{name}: {found}")
    read_fields = {each.name: getattr(plain, each.name) for each in fields(plain)}
    return PackEntry(**read_fields, launch=LaunchContract.from_json(launch, f"{file}: {address}"))


def _check_distinct(entries: tuple[PackEntry, ...], address: str) -> None:
    seen: dict[object, int] = {}
    for index, entry in enumerate(entries):
        if (first := seen.setdefault(entry.identity, index)) != index:
            raise ArtifactError(f"{address}: entries[{first}] and entries[{index}] are both {entry}; expected one")


def launch_of(plan_json: str, file: str) -> tuple[str, LaunchContract]:
    """Return the kind of a kernel and its launch contract, from its `plan.json`. Raises ArtifactError."""
    table = parse_object(plan_json, file)
    return read(str, table.get("kind", GEMM), file, "kind"), LaunchContract.from_json(table.get("launch"), file)
