"""An artifact's five files: read and verified before use, written so that they survive a power cut."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cutegen.build.manifest import Digest, Manifest
from cutegen.errors import ArtifactError

MANIFEST = "manifest.json"
SOURCE = "kernel.py"
PLAN = "plan.json"
PTX = "kernel.ptx"
CUBIN = "kernel.cubin"
FILES = frozenset({MANIFEST, SOURCE, PLAN, PTX, CUBIN})


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


@dataclass(frozen=True, slots=True)
class Artifact:
    """A verified artifact at `path`; `hit` says that it was found rather than compiled.

    The bytes that were verified are the bytes that are handed out: nothing that happens to the folder later matters.
    """

    path: Path
    content: Content = field(repr=False)
    hit: bool

    @property
    def manifest(self) -> Manifest:
        """What the artifact says of itself."""
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
        """The plan it was generated from."""
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

    Raises ArtifactError when the folder is not a complete, unchanged artifact.
    """
    directory = Path(path)
    return Artifact(directory, read_content(directory), hit=True)


def read_content(directory: Path, *, owner: int | None = None) -> Content:
    """Read and verify the artifact in `directory`; every file must belong to the user id `owner`, unless None.

    Raises ArtifactError for anything missing, extra, linked, changed or foreign.
    """
    try:
        _check_kind(directory, os.lstat(directory), stat.S_ISDIR, "a folder", owner)
        _check_names(directory)
        files = {name: _read_file(directory / name, owner) for name in sorted(FILES)}
    except OSError as error:
        raise ArtifactError(f"{directory}: cannot be read: {error.strerror or error}") from error
    try:
        manifest = Manifest.from_bytes(files[MANIFEST])
        _check_digests(manifest, files)
    except ArtifactError as error:
        raise ArtifactError(f"{directory}: {error}") from error
    return Content(manifest, files)


def sync_directory(directory: Path) -> None:
    """Wait until the names in `directory` are on disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_names(directory: Path) -> None:
    names = frozenset(os.listdir(directory))
    if missing := FILES - names:
        raise ArtifactError(f"{directory}: incomplete: {', '.join(sorted(missing))} missing")
    if extra := names - FILES:
        raise ArtifactError(f"{directory}: holds {', '.join(sorted(extra))}, which is no part of an artifact")


def _check_kind(
    path: Path, status: os.stat_result, is_kind: Callable[[int], bool], kind: str, owner: int | None
) -> None:
    if not is_kind(status.st_mode):
        raise ArtifactError(f"{path}: found {stat.filemode(status.st_mode)}; expected {kind}")
    if owner is not None and status.st_uid != owner:
        raise ArtifactError(f"{path}: belongs to user id {status.st_uid}; expected {owner}")


def _read_file(path: Path, owner: int | None) -> bytes:
    # O_NONBLOCK: a FIFO put there must be refused, not waited for.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be opened as a file of its own: {error.strerror}") from error
    try:
        _check_kind(path, os.fstat(descriptor), stat.S_ISREG, "a regular file", owner)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _check_digests(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    if manifest.inputs.key != manifest.key:
        raise ArtifactError(f"manifest.json: key {manifest.key} is not that of its inputs, {manifest.inputs.key}")
    if frozenset(manifest.files) != FILES - {MANIFEST}:
        raise ArtifactError(f"manifest.json: lists {sorted(manifest.files)}; expected {sorted(FILES - {MANIFEST})}")
    for name, expected in manifest.files.items():
        found = Digest.of(files[name])
        if found != expected:
            raise ArtifactError(
                f"{name}: found {found.size_bytes} bytes, SHA-256 {found.sha256[:12]}; "
                f"expected {expected.size_bytes} bytes, {expected.sha256[:12]}"
            )
    if manifest.files[SOURCE].sha256 != manifest.inputs.source_sha256:
        raise ArtifactError("kernel.py is not the text that the key was made of")
