"""A journal as a test sees it: line by line, repeated ones too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cutegen.tune.journal import _read_line


def lines_of(path: Path) -> list[tuple[str, Any]]:
    return [_read_line(line) for line in path.read_bytes().split(b"\n") if line]


def counts_once(path: Path) -> bool:
    jobs = [job for job, _ in lines_of(path)]
    return len(jobs) == len(set(jobs))
