"""The folder of records: one file per winner, found by device, bucket of the problem, and request.

    keep(record)                             write it, replacing an earlier one for the same problem
    find(asked, target, problem, device)     the record of the problem itself, else the nearest of its bucket

A damaged file, or one for another device than its name says, is ignored with one warning.
"""

import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path

from cutegen.build import Cache
from cutegen.build.disk import names_in, read_file, remove, write_whole
from cutegen.contract.problem import ProblemShape
from cutegen.errors import ArtifactError, OutsideError
from cutegen.spec import GemmSpec
from cutegen.support import environment
from cutegen.tuned.record import SUFFIX, Record, prefix, read_record

LARGEST_BYTES = 1 << 20
_RECORD = re.compile(r"[a-z0-9][\w.-]*-[0-9a-f]{16}-\d[\dx]*(in\d+groups?)?\.toml")
"""Names of record files: other files in the folder belong to the user, and stay."""
_log = logging.getLogger("cutegen.tuned")
_warned: set[Path] = set()


def folder() -> Path:
    """Return the folder of records: CUTEGEN_TUNED_DIR, else next to the cache."""
    if (given := environment.tuned_dir()) is not None:
        return given
    cache = Cache.from_environment().directory
    return cache.with_name(f"{cache.name}-tuned")


def keep(record: Record) -> Path:
    """Write a record and return its file. Raises OutsideError if the folder cannot be written."""
    path = folder() / record.file_name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, record.to_toml().encode())
    except OSError as error:
        raise OutsideError(f"{path}: the record cannot be written: {error.strerror or error}") from error
    return path


def load(path: Path) -> Record:
    """Return the record in a file. Raises ArtifactError."""
    return read_record(read_file(path, LARGEST_BYTES), str(path))


def find(asked: GemmSpec, target: str, problem: ProblemShape, device: str) -> Record | None:
    """Return the record for a problem: its own, else the nearest of its bucket; None if there is none."""
    begins = prefix(asked, target, problem, device)
    found = [
        record
        for path in sorted(names_in(folder(), re.compile(re.escape(begins) + r"[\w.-]*" + re.escape(SUFFIX))))
        if (record := _sound(path)) is not None and _is_for(path, record, begins)
    ]
    return min(found, key=lambda record: _distance(record.evidence.problem, problem), default=None)


def every() -> Iterator[tuple[Path, Record | ArtifactError]]:
    """Return every file in the folder, by name: its record, or its error."""
    for path in sorted(names_in(folder(), _RECORD)):
        try:
            yield path, load(path)
        except ArtifactError as error:
            yield path, error


def holds(path: Path) -> bool:
    """Return whether the path is that of a record in the folder, intact or damaged; a link counts where it is."""
    return path.parent.resolve() == folder().resolve() and _RECORD.fullmatch(path.name) is not None


def forget(path: Path) -> None:
    """Remove a record. Raises OutsideError if it remains."""
    assert holds(path)
    if why := remove(path):
        raise OutsideError(why)


def _sound(path: Path) -> Record | None:
    try:
        return load(path)
    except ArtifactError as error:
        _warn(path, f"record ignored: {error}")
        return None


def _is_for(path: Path, record: Record, begins: str) -> bool:
    if record.file_name.startswith(begins):
        return True
    _warn(path, f"record ignored: {path}: found one for {record.evidence.device.name}; its name says another device")
    return False


def _warn(path: Path, message: str) -> None:
    if path not in _warned:
        _warned.add(path)
        _log.warning("%s; `cutegen tune forget` removes it", message)


def _distance(one: ProblemShape, other: ProblemShape) -> float:
    pairs = zip(*((*each.extents.values(), each.batch, each.products) for each in (one, other)), strict=True)
    return sum(abs(math.log(x / y)) for x, y in pairs)
