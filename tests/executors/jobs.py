"""Jobs that tests have workers do: functions of a module, so that other processes find them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cutegen.build import Cache
from cutegen.errors import SpecError


def square(value: int) -> int:
    return value * value


def where(gpu: str | None) -> tuple[str | None, int]:
    return gpu, os.getpid()


def busy(folder: Path, gpu: str | None) -> int:
    """How many other jobs run on this GPU meanwhile; each says so by a file."""
    mine = folder / f"{gpu or os.getpid()}-{time.time_ns()}"
    mine.touch()
    time.sleep(0.02)
    others = len(list(folder.glob(f"{gpu or os.getpid()}-*"))) - 1
    mine.unlink()
    return others


def failing(value: int) -> int:
    raise SpecError(file="a.toml", key="tile", found=str(value), expected="2")


def sleeping(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def once(folder: Path, name: str, seconds: float) -> str:
    """Write down that it was begun, and by whom; it takes a while."""
    (folder / f"{name}-{os.getpid()}-{time.time_ns()}").touch()
    time.sleep(seconds)
    return name


def sizes(keys: tuple[str, ...]) -> dict[str, int]:
    """The bytes of the cubins of these artifacts, as this process's cache has them."""
    cache = Cache.from_environment()
    found = {key: cache.artifact(key) for key in keys}
    return {key: len(artifact.cubin) for key, artifact in found.items() if artifact is not None}


def sizes_on_a_gpu(keys: tuple[str, ...], gpu: str | None) -> dict[str, int]:
    return sizes(keys)


def told(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys that a job's result tells of: the result itself."""
    return keys


def itself(value: tuple[str, ...]) -> tuple[str, ...]:
    return value
