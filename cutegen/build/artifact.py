"""An artifact's five files and their manifest: verified before use, written so that they survive a power failure."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cutegen.build.disk import names_in, open_folder, read_file, remove, sync_directory
from cutegen.build.request import FORMAT_VERSION, KeyInputs
from cutegen.errors import ArtifactError
from cutegen.support.typed_json import parse_object, read, shown

# Manifest of an artifact: its origin, its files' digests, and the compiler's results.
#
# `manifest.json` has a digest of itself, so that a changed byte in it is detected like one in any other file.


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


# An artifact's five files: read and verified before use, written so that they survive a power failure.


MANIFEST = "manifest.json"
SOURCE = "kernel.py"
PLAN = "plan.json"
PTX = "kernel.ptx"
CUBIN = "kernel.cubin"

FILES: Mapping[str, int] = MappingProxyType(
    {MANIFEST: 1 << 20, SOURCE: 16 << 20, PLAN: 16 << 20, PTX: 64 << 20, CUBIN: 64 << 20}
)
"""An artifact's files, and the size limit of each: a hundred times what the largest kernels need."""

_ANY = re.compile(r".*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Content:
    """The five files of an artifact, in memory, with their manifest."""

    manifest: Manifest
    files: Mapping[str, bytes]

    def write(self, directory: Path) -> None:
        """Write the files into the existing, empty `directory` and wait until they are on disk. Raises OSError."""
        for name, data in self.files.items():
            with open(directory / name, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        sync_directory(directory)

    def write_folder(self, directory: Path) -> None:
        """Write the files into `directory`, which appears by one rename and replaces an existing artifact.

        Raises OSError, also if something else is there, or something else is in the artifact's folder.
        """
        if os.path.lexists(directory) and not (directory / MANIFEST).is_file():
            raise FileExistsError(errno.EEXIST, "the existing entry is not an artifact; remove it")
        if others := [path.name for path in names_in(directory, _ANY) if path.name not in FILES]:
            raise FileExistsError(errno.EEXIST, f"it holds {min(others)!a}, which would be lost; move it away")
        directory.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".cutegen-", dir=directory.parent))
        try:
            staging.chmod(0o755)  # mkdtemp sets 0o700
            self.write(staging)
            remove(directory)
            os.rename(staging, directory)
        except BaseException:  # also Ctrl-C
            remove(staging)
            raise

    def sealed(self) -> Content:
        """Return the same files with a manifest that has all their digests, also that of the new plan."""
        digests = {name: Digest.of(data) for name, data in self.files.items() if name != MANIFEST}
        manifest = replace(self.manifest, files=digests)
        return Content(manifest, {**self.files, MANIFEST: manifest.to_bytes()})

    def with_plan(self, plan_json: str) -> Content:
        """Return the same kernel with the requested plan: the key covers the kernel's text, not `plan.json`."""
        return replace(self, files={**self.files, PLAN: plan_json.encode()})


@dataclass(frozen=True, slots=True)
class Artifact:
    """A verified artifact at `path`; `hit` says that it was found rather than compiled.

    The verified bytes are kept and returned: later changes of the folder have no effect. A folder for which `lasts` is
    false is removed when the process ends, because the cache could not be written.
    """

    path: Path
    content: Content = field(repr=False)
    hit: bool
    lasts: bool = True

    @property
    def manifest(self) -> Manifest:
        """The manifest of the artifact."""
        return self.content.manifest

    @property
    def key(self) -> str:
        """The SHA-256 under which the artifact is cached."""
        return self.manifest.key

    @property
    def source(self) -> str:
        """The generated CuTe DSL file."""
        return self.content.files[SOURCE].decode()

    @property
    def plan_json(self) -> str:
        """The plan that it was generated from."""
        return self.content.files[PLAN].decode()

    @property
    def ptx(self) -> str:
        """The PTX text."""
        return self.content.files[PTX].decode()

    @property
    def cubin(self) -> bytes:
        """The cubin, an ELF image for `manifest.inputs.gpu_arch`."""
        return self.content.files[CUBIN]


def open_artifact(path: Path | str) -> Artifact:
    """Open the artifact in the folder `path`, wherever it was copied from. Needs no CuTe DSL.

    Raises ArtifactError if the folder is not a complete, unchanged artifact.
    """
    directory = Path(path)
    return Artifact(directory, read_content(directory), hit=True)


def read_content(directory: Path, *, owner: int | None = None) -> Content:
    """Read and verify the artifact in `directory`; every file must belong to the user id `owner`, unless None.

    Raises ArtifactError for anything missing, extra, linked, changed or foreign.
    """
    with open_folder(directory, owner) as folder:
        _check_names(directory, folder)
        files = {
            name: read_file(directory / name, limit_bytes, owner=owner, folder=folder)
            for name, limit_bytes in FILES.items()
        }
    return verified_content(files, directory)


def verified_content(files: Mapping[str, bytes], where: Path) -> Content:
    """Check an artifact's five files against their manifest; messages begin with `where`. Raises ArtifactError."""
    try:
        manifest = Manifest.from_bytes(files[MANIFEST])
        _check_digests(manifest, files)
        _check_texts(files)
    except ArtifactError as error:
        raise ArtifactError(f"{where}: {error}") from error
    return Content(manifest, files)


def _check_names(directory: Path, folder: int) -> None:
    try:
        with os.scandir(folder) as entries:
            names = {entry.name for entry in islice(entries, 2 * len(FILES))}  # there may be a million entries
    except OSError as error:
        raise ArtifactError(f"{directory}: cannot be listed: {error.strerror}") from error
    if extra := sorted(names - FILES.keys()):
        printable = (name if name.isprintable() else ascii(name) for name in extra[:3])
        raise ArtifactError(f"{directory}: holds {', '.join(printable)}, which is not part of an artifact")
    if missing := sorted(FILES.keys() - names):
        raise ArtifactError(f"{directory}: incomplete: {', '.join(missing)} missing")


def _check_digests(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    if manifest.inputs.key != manifest.key:
        raise ArtifactError(f"manifest.json: key {manifest.key} is not that of its inputs, {manifest.inputs.key}")
    if manifest.files.keys() != FILES.keys() - {MANIFEST}:
        raise ArtifactError(
            f"manifest.json: lists {shown(sorted(manifest.files))}; expected {sorted(FILES.keys() - {MANIFEST})}"
        )
    for name, expected in manifest.files.items():
        found = Digest.of(files[name])
        if found != expected:
            raise ArtifactError(
                f"{name}: found {found.size_bytes} bytes, SHA-256 {found.sha256[:12]}; "
                f"expected {expected.size_bytes} bytes, {expected.sha256[:12]}"
            )
    if manifest.files[SOURCE].sha256 != manifest.inputs.source_sha256:
        raise ArtifactError("kernel.py is not the text that the key was computed from")


def _check_texts(files: Mapping[str, bytes]) -> None:
    for name in (SOURCE, PLAN, PTX):
        try:
            files[name].decode()
        except UnicodeDecodeError as error:
            raise ArtifactError(f"{name}: byte {error.start} is not UTF-8") from error
