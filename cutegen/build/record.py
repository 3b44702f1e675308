"""The kernels that a program requests, kept in a list for `cutegen pack --from`: CUTEGEN_RECORD names it.

The list is written atomically, whichever processes add to it at once, has each kernel once, and is limited in size. If
a list cannot be written, the call succeeds with a warning; a file of another kind also causes a warning, and stays.

A row is written when its kernel is requested. The calls of `cutegen.matmul` that it serves are counted by their
extents, and the counts are added to the row now and then, and when the process ends.
"""

import atexit
import logging
import os
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cutegen.build.disk import read_file, write_whole
from cutegen.errors import ArtifactError
from cutegen.support import environment
from cutegen.support.toml_text import toml_key, toml_value

MAX_KERNELS = 4096
MAX_BYTES = 16 << 20
LOCK_WAIT_S = 10.0

MOST_EXTENTS = 256
"""Different extents whose calls one row counts."""
COUNTED_EVERY_S = 10.0

_TABLE, _CALLS = "[[kernel]]", "calls = "
_HEAD = f"# What {environment.RECORD} recorded; `cutegen pack --from` builds it.\n"

_log = logging.getLogger("cutegen.build")
_done: set[tuple[Path, str]] = set()
"""Kernels that this process has recorded or given up on."""
_lock = threading.Lock()


_counts: dict[tuple[Path, str], Counter[tuple[int, ...]]] = {}
"""Calls that are not in the list yet, by row and extents."""
_written_s = time.monotonic()
_said = False
"""True once calls without a row were warned of."""


def record(kernel: Mapping[str, Any]) -> None:
    """Add a row of a list, by its keys, to the file of CUTEGEN_RECORD, if it is not there yet; nothing without one."""
    path = environment.record_file()
    if path is None:
        return
    row = _row(kernel)
    with _lock:
        if (path, row) in _done:
            return
        _done.add((path, row))
    _locked(path, lambda: _add(path, f"\n{_TABLE}\n{row}"), "a kernel was not recorded")


def count(kernel: Mapping[str, Any], extents: tuple[int, ...], calls: int = 1) -> None:
    """Count calls with these extents (M, N, K, batch) that a recorded row serves; nothing without CUTEGEN_RECORD."""
    path = environment.record_file()
    if path is None:
        return
    with _lock:
        _counts.setdefault((path, _row(kernel)), Counter())[extents] += calls
        due = time.monotonic() - _written_s > COUNTED_EVERY_S
    if due:
        write_counts()


def say_unrecorded(why: str, instead: str) -> None:
    """Warn once in a process with CUTEGEN_RECORD of calls that are not in its list."""
    global _said
    if environment.record_file() is not None and not _said:
        _said = True
        _log.warning("%s: %s, which are not recorded; %s", environment.RECORD, why, instead)


def write_counts() -> None:
    """Add the counted calls to their lists."""
    global _written_s
    with _lock:
        counted = dict(_counts)
        _counts.clear()
        _written_s = time.monotonic()
    for path in dict.fromkeys(path for path, _ in counted):
        rows = {row: calls for (of, row), calls in counted.items() if of == path}
        _locked(path, lambda path=path, rows=rows: _add_calls(path, rows), "calls were not counted")  # type: ignore[misc]


atexit.register(write_counts)
os.register_at_fork(after_in_child=_counts.clear)


def _row(kernel: Mapping[str, Any]) -> str:
    return "".join(f"{toml_key(name)} = {toml_value(value)}\n" for name, value in kernel.items() if value is not None)


def _locked(path: Path, write: Callable[[], None], consequence: str) -> None:
    """Change the list while no other process does; a failure is a warning."""
    try:
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_WAIT_S):
            write()
    except (ArtifactError, OSError, Timeout, ValueError) as error:  # ValueError: not UTF-8, or a path without a name
        _log.warning("%s: %s: %s", environment.RECORD, consequence, error)


def _add_calls(path: Path, rows: Mapping[str, Counter[tuple[int, ...]]]) -> None:
    """Raises ArtifactError, OSError, ValueError if someone wrote other calls than counts."""
    path = Path(os.path.realpath(path))
    for row in rows:  # a request that was served before there was a list
        _add(path, f"\n{_TABLE}\n{row}")
    text = read_file(path, MAX_BYTES).decode()
    for row, calls in rows.items():
        begin, found, rest = text.partition(f"\n{_TABLE}\n{row}")
        total = Counter[tuple[int, ...]]()
        if rest.startswith(_CALLS):
            line, _, rest = rest.partition("\n")
            total.update({tuple(each[:-1]): each[-1] for each in tomllib.loads(line)["calls"]})
        total.update(calls)
        if len(total) > MOST_EXTENTS:
            _log.warning("%s: calls with more than %d different extents: others are not counted", path, MOST_EXTENTS)
        kept = [[*extents, times] for extents, times in total.most_common(MOST_EXTENTS)]
        text = f"{begin}{found}{_CALLS}{toml_value(kept)}\n{rest}"
    if len(text) > MAX_BYTES:
        raise ArtifactError(f"{path} would have {len(text):,} bytes; at most {MAX_BYTES:,}")
    write_whole(path, text.encode())


def _add(path: Path, block: str) -> None:
    """Raises ArtifactError, OSError."""
    path = Path(os.path.realpath(path))
    text = read_file(path, MAX_BYTES).decode() if path.exists() else ""
    if not text.strip():
        text = _HEAD
    if any(f"{block}{after}" in f"{text}\n" for after in ("\n", _CALLS)):
        return
    if not _takes(text, block):
        raise ArtifactError(f"{path}: found no list of kernels; name another file")
    if text.count(_TABLE) >= MAX_KERNELS or len(text) + len(block) > MAX_BYTES:
        raise ArtifactError(f"{path} has {text.count(_TABLE):,} kernels, the maximum; name another file")
    write_whole(path, (text + block).encode())


def _takes(text: str, block: str) -> bool:
    """Tell whether `text` is a list of kernels to which `block` can be added; a recorder's own is not parsed again."""
    if text.startswith(_HEAD):
        return True
    try:
        table = tomllib.loads(text.removeprefix("\ufeff") + block)
    except (ValueError, RecursionError):
        return False
    return table.keys() == {"kernel"} and len(table["kernel"]) > 1  # the last is that of `block`
