"""Jobs that tests have workers do: functions of a module, so that other processes find them."""

from __future__ import annotations

import os
import time

from cutegen.errors import SpecError


def square(value: int) -> int:
    return value * value


def on_gpu(value: int, gpu: str | None) -> tuple[int, str | None, int]:
    return value, gpu, os.getpid()


def failing(value: int) -> int:
    raise SpecError(file="a.toml", key="tile", found=str(value), expected="2")


def sleeping(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()
