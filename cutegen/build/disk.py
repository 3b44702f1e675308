"""Folders and files that others may have placed: read within bounds, replaced atomically, removed in the end."""

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cutegen.errors import ArtifactError, CacheError, CutegenError

# Folders and files that others may have placed: read within bounds, removed with a message, or replaced atomically.
#
# Every read in the cache uses `read_file`: a regular file (no link, FIFO or device), of limited size, of the requested
# owner.


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""File system errors for no space or no inodes."""

# O_NONBLOCK: a FIFO placed there must be rejected, not waited for.
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def open_folder(path: Path, owner: int | None = None) -> Iterator[int]:
    """Return a descriptor of the folder `path`, which must belong to the user id `owner`, unless None.

    Raises ArtifactError. Names looked up in the descriptor are those of this folder, whatever is renamed meanwhile.
    """
    with _opened(path, path, None, stat.S_ISDIR, "a folder", owner) as descriptor:
        yield descriptor


def read_file(path: Path, limit_bytes: int, *, owner: int | None = None, folder: int | None = None) -> bytes:
    """Return the bytes of the regular file `path`; with `folder`, a descriptor, of the file of that name in it.

    Raises ArtifactError for a link, anything but a file, another owner than the user id `owner` (unless None), more
    than `limit_bytes`, and if it cannot be read.
    """
    name = path if folder is None else path.name
    with _opened(path, name, folder, stat.S_ISREG, "a regular file", owner) as descriptor:
        found_bytes = os.fstat(descriptor).st_size
        if found_bytes > limit_bytes:
            raise ArtifactError(f"{path}: found {found_bytes:,} bytes; expected at most {limit_bytes:,}")
        try:
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(found_bytes)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error


def names_in(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    """List the names in the folder `path` that match the pattern; empty if the folder is missing or unreadable."""
    try:
        return [path / name for name in os.listdir(path) if pattern.fullmatch(name)]
    except OSError:
        return []


def folder_bytes(directory: Path) -> int:
    """Return the sizes of the visible files in `directory`."""
    total = 0
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def remove(path: Path) -> str:
    """Remove the file, link or folder as far as possible; return why the rest remains, or nothing."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                shutil.rmtree(path)  # once more, to get the reason
        else:
            os.unlink(path)
    except FileNotFoundError:  # it was not there, or another process removes it as well
        return ""
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    except RecursionError:
        return f"{path}: folders nested too deep for Python; remove it with rm -r"
    return ""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that everybody may read, by one rename, on disk when this returns, replacing an existing one.

    Raises OSError.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp sets 0o600
        os.replace(temporary, path)
    except BaseException:  # also Ctrl-C
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Wait until the names in `directory` are on disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _opened(
    path: Path,
    name: Path | str,
    folder: int | None,
    is_kind: Callable[[int], bool],
    kind: str,
    owner: int | None,
) -> Iterator[int]:
    """Open `name`, which messages call `path`, and check its kind and owner."""
    try:
        descriptor = os.open(name, _OPEN_FLAGS, dir_fd=folder)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise ArtifactError(f"{path}: cannot be opened as {kind}: {reason}") from error
    except ValueError as error:  # a NUL in the path
        raise ArtifactError(f"{str(path)!a}: cannot be opened as {kind}: {error}") from error
    try:
        status = os.fstat(descriptor)
        if not is_kind(status.st_mode):
            raise ArtifactError(f"{path}: found {stat.filemode(status.st_mode)}; expected {kind}")
        if owner is not None and status.st_uid != owner:
            raise ArtifactError(f"{path}: belongs to user id {status.st_uid}; expected {owner}")
        yield descriptor
    finally:
        os.close(descriptor)


# Temporary folders that are removed when their process ends, however it ends.
#
# A process holds a lock (`flock`) on each of its folders, and a killed one loses it; the next build removes the folders
# whose lock is free. It compares no process ids, so reused ids, or containers that share a folder, do no harm. Folders
# of other users are left alone.


KEPT = "error.txt"
"""File that marks a folder to keep: an error message points there. It holds the message."""

_ATTEMPTS = 16
_FOLDER = re.compile(r"cutegen-(?:build|uncached)-[a-z0-9_]{8}")


@dataclass(frozen=True, slots=True)
class TemporaryFolder:
    """The folder `path`, locked through the descriptor `lock`."""

    path: Path
    lock: int

    @classmethod
    def make(cls, use: str) -> Self:
        """Make a folder for one of the uses that `sweep` knows, "build" and "uncached". Raises OSError."""
        for _ in range(_ATTEMPTS):
            path = Path(tempfile.mkdtemp(prefix=f"cutegen-{use}-"))
            if (lock := _locked(path)) is not None:
                return cls(path, lock)
            # Another process considered it abandoned before the lock was held, and removes it.
        raise OSError(errno.EAGAIN, "every folder was removed", tempfile.gettempdir())

    def remove(self) -> None:
        """Remove the folder with its content, as far as possible."""
        remove(self.path)
        self.release()

    def release(self) -> None:
        """Leave the folder to the next `sweep`, unless it is kept."""
        os.close(self.lock)


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder, removed at the end, but kept if a CutegenError passes through: its message points there.

    Raises CacheError if no folder can be made.
    """
    try:
        sweep()
        folder = TemporaryFolder.make("build")
    except OSError as error:
        raise no_room(error) from error
    try:
        yield folder.path
    except CutegenError as error:
        _keep(folder.path, str(error))
        folder.release()
        raise
    except BaseException:
        folder.remove()
        raise
    folder.remove()


def no_room(error: OSError) -> CacheError:
    """Return the error for a temporary folder that cannot be made or written."""
    return CacheError(f"no temporary folder to compile in: {error}; free some space or set TMPDIR to another folder")


def sweep() -> None:
    """Remove the folders of processes that are gone. Raises OSError if there is no folder for temporary files."""
    for path in names_in(Path(tempfile.gettempdir()), _FOLDER):
        with suppress(ArtifactError, OSError), open_folder(path, os.geteuid()) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: its process lives
            if not os.path.lexists(path / KEPT):
                remove(path)


def _keep(directory: Path, message: str) -> None:
    """Mark `directory` to be kept; if the mark cannot be written, the next build may remove the folder."""
    try:
        (directory / KEPT).write_text(f"{message}\n", encoding="utf-8", errors="backslashreplace")
    except OSError:
        remove(directory / KEPT)


def _locked(path: Path) -> int | None:
    """Return a descriptor that locks the folder `path`; None if another process has the lock, or removed the folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:  # a file system without locks: no process can consider it abandoned
        return descriptor
    os.close(descriptor)
    return None
