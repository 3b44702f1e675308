"""A pack: many artifacts in one file with an index, all of which is verified before any of them is used."""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Self, TypeAlias

from cutegen.build.artifact import FILES, PLAN, Artifact, verified_content
from cutegen.build.disk import read_file, write_whole
from cutegen.contract.launch import GEMM, KINDS, LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import ArtifactError, OutsideError, RequestError
from cutegen.support.typed_json import LINE, is_line, parse_object, read, shown
from cutegen.support.words import plural, round_up

# The index of a pack: for each kernel the requests it serves, its launch, and the place of its bytes in the file.
#
# It is JSON, the same for every language that reads packs; docs/pack_format.md describes each field.


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
    def from_bytes(cls, data: bytes, file: str) -> Self:
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


# A pack: many artifacts in one file, all of which is verified before any of them is used.
#
# A header of 64 bytes, a JSON index, and the artifacts' files in sequence; see docs/pack_format.md. It has no paths, no
# compression and no host code: reading a pack runs nothing, writes nothing, and needs as much memory as the file's
# size.


MAGIC = b"CUTEPACK"
PACK_VERSION = 1
ALIGN_BYTES = 64
"""Alignment of each member's offset: enough for the driver to use a cubin in place."""
MAX_PACK_BYTES = 4 << 30
MAX_INDEX_BYTES = 64 << 20
SUFFIX = ".cutepack"

_HEADER = struct.Struct("<8sIIQQ32s")
"""Magic, version, zero, bytes of the index, bytes of the file, SHA-256 of the index; little-endian."""
_AGAIN = "copy the file again, or rebuild the pack with `cutegen pack`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToPack:
    """An artifact to pack, and how users of the pack request it."""

    name: str
    problem: ProblemShape | None
    target: str
    ops: tuple[str, ...]
    artifact: Artifact
    expression: str | None = None

    @property
    def identity(self) -> Identity:
        """The identity of the kernel, unique in a pack."""
        return self.name, self.target, self.problem


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack that was read and verified; it returns the verified bytes.

    Members are in `_data` from `_begin` on.
    """

    path: Path
    index: PackIndex
    _data: bytes = field(repr=False)
    _begin: int = field(repr=False)

    @property
    def entries(self) -> tuple[PackEntry, ...]:
        """The kernels, in the order of packing."""
        return self.index.entries

    def artifact(self, entry: PackEntry) -> Artifact:
        """Return the artifact of an entry. Raises ArtifactError if its files contradict each other or the index."""
        where = self.path / entry.name / entry.target
        content = verified_content({name: self._bytes(entry.files[name]) for name in FILES}, where)
        artifact = Artifact(where, content, hit=True)
        kind, launch = launch_of(artifact.plan_json, f"{where}: {PLAN}")
        said = (entry.key, entry.gpu_arch, entry.kind, entry.launch)
        held = (artifact.key, content.manifest.inputs.gpu_arch, kind, launch)
        for name, found, expected in zip(("key", "gpu_arch", "kind", "launch"), said, held, strict=True):
            if found != expected:
                raise ArtifactError(
                    f"{self.path}: {INDEX}: {entry}: {name}: found {shown(found)}; expected {shown(expected)}, as in "
                    f"the artifact; {_AGAIN}"
                )
        return artifact

    def _bytes(self, member: PackMember) -> bytes:
        begin = self._begin + member.offset
        return self._data[begin : begin + member.size_bytes]


def write_pack(path: Path, kernels: Sequence[ToPack]) -> PackIndex:
    """Write a pack of `kernels` to `path` atomically; equal files are stored once.

    Raises RequestError as `check_identities` does and for more than readers accept, OutsideError when it cannot be
    written.
    """
    check_identities(each.identity for each in kernels)
    members: dict[str, PackMember] = {}
    data = bytearray()
    entries = tuple(_packed(each, members, data) for each in kernels)
    index = PackIndex(_version(), entries)
    text = index.to_bytes()
    begin = _aligned(_HEADER.size + len(text))
    for what, found, most in (("pack", begin + len(data), MAX_PACK_BYTES), ("index", len(text), MAX_INDEX_BYTES)):
        if found > most:
            raise RequestError(
                f"pack: found {plural(len(entries), 'kernel')} with {found:,} bytes of {what}; expected at most "
                f"{most:,}, which readers accept; write several packs"
            )
    header = _HEADER.pack(MAGIC, PACK_VERSION, 0, len(text), begin + len(data), hashlib.sha256(text).digest())
    _write(path, (header + text).ljust(begin, b"\0") + data)
    return index


def check_identities(identities: Iterable[Identity]) -> None:
    """Raise RequestError for a name that readers of packs reject, and for two kernels with one identity.

    A pack with either could be written, but not opened.
    """
    seen: set[Identity] = set()
    for identity in identities:
        name, target, problem = identity
        if not is_line(name):
            raise RequestError(
                f"pack: found a kernel called {shown(name)}; expected {LINE}; rename the spec's file, or give it a "
                "name in a list"
            )
        if identity in seen:
            of_problem = f", {problem}" if problem else ""
            raise RequestError(
                f"pack: found two kernels called {name} for {target}{of_problem}; expected one; rename one spec's "
                "file, or give it another name in a list"
            )
        seen.add(identity)


def read_pack(path: Path | str) -> PackFile:
    """Read the pack at `path` and verify every byte of it.

    Raises ArtifactError for anything else: not a pack, another format version, truncated, damaged, with bytes that no
    entry names, or larger than MAX_PACK_BYTES.
    """
    named = Path(path)
    # The name may be a link, as in mounted volumes; nothing in a pack is the name of a file.
    data = read_file(Path(os.path.realpath(named)), MAX_PACK_BYTES)
    end = _HEADER.size + _index_bytes(data, str(named))
    index = PackIndex.from_bytes(data[_HEADER.size : end], str(named))
    begin = _aligned(end)
    _check_filled(data, end, begin, str(named))
    _check_members(index, data, begin, str(named))
    return PackFile(named, index, data, begin)


def _version() -> str:
    """Return the installed cutegen's version; there is none if it is imported from its sources."""
    try:
        return metadata.version("cutegen")
    except metadata.PackageNotFoundError:
        return "not installed"


def _packed(each: ToPack, members: dict[str, PackMember], data: bytearray) -> PackEntry:
    """Return the entry of one artifact; add its files to `data` unless `members`, by digest, has them."""
    content = each.artifact.content.sealed()
    kind, launch = launch_of(each.artifact.plan_json, f"{each.artifact.path}: {PLAN}")
    return PackEntry(
        name=each.name,
        problem=each.problem,
        target=each.target,
        gpu_arch=content.manifest.inputs.gpu_arch,
        kind=kind,
        ops=each.ops,
        expression=each.expression,
        key=content.manifest.key,
        launch=launch,
        files={name: _member(content.files[name], members, data) for name in FILES},
    )


def _member(file: bytes, members: dict[str, PackMember], data: bytearray) -> PackMember:
    digest = hashlib.sha256(file).hexdigest()
    if digest not in members:
        data += bytes(_aligned(len(data)) - len(data))
        members[digest] = PackMember(len(data), len(file), digest)
        data += file
    return members[digest]


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise OutsideError(f"{path} cannot be written: {error.strerror or error}") from error


def _index_bytes(data: bytes, file: str) -> int:
    """Return the length of the index, which is verified with the header. Raises ArtifactError."""
    if data[: len(MAGIC)] != MAGIC:
        raise ArtifactError(
            f"{file}: not a pack: begins with {shown(data[:8])}; expected {shown(MAGIC)}; `cutegen pack` makes packs"
        )
    if len(data) < _HEADER.size:
        raise ArtifactError(f"{file}: found {len(data)} bytes; expected a header of {_HEADER.size}; {_AGAIN}")
    _, version, zero, index_bytes, file_bytes, digest = _HEADER.unpack_from(data)
    if version != PACK_VERSION:
        raise ArtifactError(
            f"{file}: found pack format {version}; this version of cutegen reads {PACK_VERSION}; rebuild the pack "
            "with it, or install the version that made it"
        )
    if file_bytes != len(data) or zero:
        raise ArtifactError(f"{file}: found {len(data):,} bytes; its header says {file_bytes:,}; {_AGAIN}")
    if index_bytes > min(MAX_INDEX_BYTES, len(data) - _HEADER.size):
        raise ArtifactError(f"{file}: {INDEX}: found {index_bytes:,} bytes, more than possible; {_AGAIN}")
    if hashlib.sha256(data[_HEADER.size : _HEADER.size + index_bytes]).digest() != digest:
        raise ArtifactError(f"{file}: {INDEX}: its SHA-256 is not the one in the header; {_AGAIN}")
    return int(index_bytes)


def _check_members(index: PackIndex, data: bytes, begin: int, file: str) -> None:
    """Check each member's digest, and that the members fill the file without gaps. Raises ArtifactError."""
    named = {member: f"{entry}: {name}" for entry in index.entries for name, member in entry.files.items()}
    end = begin
    for member in sorted(named, key=lambda each: (each.offset, each.size_bytes)):
        address = f"{file}: {named[member]}"
        start = begin + member.offset
        if start != _aligned(end) or not 0 <= member.size_bytes <= len(data) - start:
            raise ArtifactError(
                f"{address}: found {member.size_bytes:,} bytes at offset {member.offset:,}; expected them at "
                f"{_aligned(end) - begin:,}, within the file; {_AGAIN}"
            )
        _check_filled(data, end, start, file)
        end = start + member.size_bytes
        if (found := hashlib.sha256(memoryview(data)[start:end]).hexdigest()) != member.sha256:
            raise ArtifactError(
                f"{address}: found SHA-256 {shown(found)}; expected {shown(member.sha256)}; "
                f"the file is damaged; {_AGAIN}"
            )
    if end != len(data):
        raise ArtifactError(f"{file}: found {len(data) - end:,} bytes that no entry names; {_AGAIN}")


def _check_filled(data: bytes, end: int, start: int, file: str) -> None:
    if any(data[end:start]):
        raise ArtifactError(f"{file}: found bytes other than 0 between {end:,} and {start:,}; {_AGAIN}")


def _aligned(offset: int) -> int:
    return round_up(offset, ALIGN_BYTES)
