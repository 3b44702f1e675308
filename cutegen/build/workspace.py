"""Temporary folders that are removed when their process ends, however it ends.

A process holds a lock (`flock`) on each of its folders, and a killed one loses it; the next build removes the folders
whose lock is free. It compares no process ids, so reused ids, or containers that share a folder, do no harm. Folders of
other users are left alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cutegen.build.disk import names_in, open_folder, remove
from cutegen.errors import ArtifactError, CacheError, CutegenError

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
    def make(cls, use: str) -> TemporaryFolder:
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
