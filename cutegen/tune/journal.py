"""The journal of a campaign: one line of JSON per finished problem, written completely or not at all.

Each line has the job's id, the result, and a digest of both. A line is appended by one write under a lock, and is on
disk before it counts. A line truncated by a power failure, and any line that was changed, is skipped with a warning,
and its problem is tuned again. Of two results of one job the first complete one counts.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cutegen.build.disk import FULL, read_file, sync_directory
from cutegen.errors import ArtifactError, OutsideError
from cutegen.support.typed_json import parse_object

MAX_BYTES = 256 << 20
LOCK_WAIT_S = 10.0
_KEYS = {"job", "result", "sha256"}

_log = logging.getLogger("cutegen.tune")


@dataclass(frozen=True, slots=True)
class Journal:
    """The file `path`, which need not exist yet."""

    path: Path

    def read(self) -> dict[str, Any]:
        """Return the results by job id, in the order of the lines. Raises ArtifactError for another kind of file."""
        results, damaged = self._read()
        for number, error in damaged:
            _log.warning("%s:%d: %s; its problem is tuned again", self.path, number, error)
        return results

    def _read(self) -> tuple[dict[str, Any], list[tuple[int, ArtifactError]]]:
        """Return the results, and the numbers of damaged lines with what is wrong."""
        results: dict[str, Any] = {}
        damaged: list[tuple[int, ArtifactError]] = []
        if not os.path.lexists(self.path):
            return results, damaged
        for number, line in enumerate(read_file(self.path, MAX_BYTES).split(b"\n"), start=1):
            if not line:
                continue
            try:
                job, result = _read_line(line)
            except ArtifactError as error:
                damaged.append((number, error))
            else:
                results.setdefault(job, result)
        return results, damaged

    def add(self, job: str, result: Mapping[str, Any]) -> bool:
        """Append the result of a job unless the journal has one; return whether it was appended.

        Raises OutsideError if it cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._lock_path(), timeout=LOCK_WAIT_S):
                if job in self._read()[0]:  # the campaign has warned of what is damaged
                    return False
                self._append(_line(job, result))
        except Timeout as error:
            raise OutsideError(f"{self.path}: locked by another process for over {LOCK_WAIT_S:g} s") from error
        except OSError as error:
            room = "; free some space there" if error.errno in FULL else ""
            raise OutsideError(f"{self.path} cannot be written: {error.strerror or error}{room}") from error
        return True

    def finish(self) -> Path:
        """Put the file aside, replacing an earlier one of that name, so the next campaign starts anew; return its path.

        Raises OutsideError.
        """
        aside = self.path.with_name(f"finished-{self.path.name}")
        try:
            if self.path.exists():
                os.replace(self.path, aside)
            self._lock_path().unlink(missing_ok=True)
        except OSError as error:
            raise OutsideError(f"{self.path} cannot be put aside: {error.strerror or error}") from error
        return aside

    def _lock_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.lock")

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            cut_off = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            data = b"\n" * cut_off + line
            if os.write(descriptor, data) != len(data):  # a full disk: the next line begins after the partial one
                raise OSError(next(iter(FULL)), "no space left")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self.path.parent)


def _line(job: str, result: Mapping[str, Any]) -> bytes:
    table = {"job": job, "result": result}
    return json.dumps({**table, "sha256": _digest(table)}).encode() + b"\n"


def _read_line(line: bytes) -> tuple[str, Any]:
    """Raises ArtifactError."""
    table = parse_object(line, "the line")
    if table.keys() != _KEYS or not isinstance(table["job"], str):
        raise ArtifactError("the line has other keys than job, result and sha256")
    if table.pop("sha256") != _digest(table):
        raise ArtifactError("the line's digest does not match")
    return table["job"], table["result"]


def _digest(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table).encode()).hexdigest()
