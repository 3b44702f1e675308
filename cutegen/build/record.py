"""The kernels that a program requests, kept in a list for `cutegen pack --from`: CUTEGEN_RECORD names it.

The list is written atomically, whichever processes add to it at once, has each kernel once, and is limited in size. If
a list cannot be written, the call succeeds with a warning; a file of another kind also causes a warning, and stays.
"""

from __future__ import annotations

import logging
import os
import threading
import tomllib
from collections.abc import Mapping
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

_TABLE = "[[kernel]]"
_HEAD = f"# What {environment.RECORD} recorded; `cutegen pack --from` builds it.\n"

_log = logging.getLogger("cutegen.build")
_done: set[tuple[Path, str]] = set()
"""Kernels that this process has recorded or given up on."""
_lock = threading.Lock()


def record(kernel: Mapping[str, Any]) -> None:
    """Add a row of a list, by its keys, to the file of CUTEGEN_RECORD, if it is not there yet; nothing without one."""
    path = environment.record_file()
    if path is None:
        return
    row = "".join(f"{toml_key(name)} = {toml_value(value)}\n" for name, value in kernel.items() if value is not None)
    with _lock:
        if (path, row) in _done:
            return
        _done.add((path, row))
    try:
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_WAIT_S):
            _add(path, f"\n{_TABLE}\n{row}")
    except (ArtifactError, OSError, Timeout, ValueError) as error:  # ValueError: not UTF-8, or a path without a name
        _log.warning("%s: a kernel was not recorded: %s", environment.RECORD, error)


def _add(path: Path, block: str) -> None:
    """Raises ArtifactError, OSError."""
    path = Path(os.path.realpath(path))
    text = read_file(path, MAX_BYTES).decode() if path.exists() else ""
    if not text.strip():
        text = _HEAD
    if f"{block}\n" in f"{text}\n":
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
