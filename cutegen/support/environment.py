"""The one module that reads the environment. Each function reads its variable when it is called, never at import.

    CUTEGEN_CACHE_DIR     folder of built kernels; default: the platform's user cache directory
    CUTEGEN_CACHE_SIZE    the cache's size limit, such as `2GiB`, `500MB` or plain bytes
    CUTEGEN_RECORD        a TOML list that receives the kernels which a program requests, for packing
    CUTEGEN_TUNED_DIR     folder of the records of `cutegen tune`; default: next to the cache
    COLUMNS               the width of text, which shells set and rarely export
    CUDA_VISIBLE_DEVICES  CUDA's own: the GPUs that programs see
    PYTHONPATH            Python's own: additional folders to import modules from

An unset or empty variable gives None; PYTHONPATH gives no folders.
"""

import os
import re
from pathlib import Path

from cutegen.errors import RequestError

CACHE_DIR = "CUTEGEN_CACHE_DIR"
CACHE_SIZE = "CUTEGEN_CACHE_SIZE"
RECORD = "CUTEGEN_RECORD"
TUNED_DIR = "CUTEGEN_TUNED_DIR"
COLUMNS = "COLUMNS"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

_UNIT_BYTES = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


def cache_dir() -> Path | None:
    """Return the absolute folder that CUTEGEN_CACHE_DIR names; `~` is the home directory.

    Raises RequestError if `~` or the current folder cannot be resolved.
    """
    return _path(CACHE_DIR, "a folder")


def record_file() -> Path | None:
    """Return the absolute path of the list that CUTEGEN_RECORD names; `~` is the home directory.

    Raises RequestError if `~` or the current folder cannot be resolved.
    """
    return _path(RECORD, "a file")


def tuned_dir() -> Path | None:
    """Return the absolute folder that CUTEGEN_TUNED_DIR names; `~` is the home directory.

    Raises RequestError if `~` or the current folder cannot be resolved.
    """
    return _path(TUNED_DIR, "a folder")


def seeing_gpu(uuid: str | None) -> dict[str, str]:
    """Return the environment for a process that sees only one GPU, or with None those that this one sees."""
    return dict(os.environ) if uuid is None else {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}


def cache_size_limit_bytes() -> int | None:
    """Return the limit that CUTEGEN_CACHE_SIZE sets, in bytes. Raises RequestError if it is not a size."""
    text = os.environ.get(CACHE_SIZE, "")
    return parse_size_bytes(text) if text else None


def columns() -> int | None:
    """Return the width of text in COLUMNS; None if it is not a positive number, as in other programs."""
    text = os.environ.get(COLUMNS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0 else None


def visible_gpus() -> tuple[str, ...] | None:
    """Return the names in CUDA_VISIBLE_DEVICES; None if it is not set. An empty value hides every GPU."""
    text = os.environ.get(VISIBLE_GPUS)
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def python_path() -> tuple[str, ...]:
    """Return the folders that PYTHONPATH names, absolute."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return tuple(os.path.abspath(folder) for folder in folders if os.path.isabs(folder))


def _path(variable: str, expected: str) -> Path | None:
    text = os.environ.get(variable, "")
    if not text:
        return None
    try:
        return Path(text).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # a relative path needs the current folder, which may be removed
        raise RequestError(f"{variable}: found {text!r}; expected {expected}; {error}") from error


def parse_size_bytes(text: str, origin: str = CACHE_SIZE) -> int:
    """Parse a size with a decimal or binary unit, in bytes. Raises RequestError that names `origin`.

    >>> parse_size_bytes("2GiB"), parse_size_bytes("1.5 MB"), parse_size_bytes("4096")
    (2147483648, 1500000, 4096)
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in _UNIT_BYTES:
        raise RequestError(f"{origin}: found {text!r}; expected bytes or a size such as 500MB or 2GiB")
    return int(float(match[1]) * _UNIT_BYTES[match[2]])
