"""Chooses the target of a request: the named one, else the present GPU's, else the first that can serve it.

NVIDIA's management library finds the GPU without a CUDA context: 18 ms on an H200, compared with 125 to 180 for
`cuInit` alone, and no time without a driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from cutegen.hardware import TARGETS, Target, resolve_target, target

DEFAULT_TARGET = "sm_80"

_NVML = "libnvidia-ml.so.1"
_SUCCESS = 0
_NAME_BYTES = 96
Answer = TypeVar("Answer")


def choose_target(arch: str | None = None, *, least: str = DEFAULT_TARGET) -> Target:
    """Return the target called `arch` (`sm_90a`, `sm90`, `90` or `h100`), else the present GPU's, else `least`.

    Raises RequestError for an unknown one.

    >>> choose_target("90a").name
    'sm_90'
    """
    if arch is not None:
        return resolve_target(arch)
    return present_target() or target(least)


@cache
def present_target() -> Target | None:
    """Return the target of the machine's first GPU; None without a GPU, or if it has no target.

    The first in the order of the PCI bus: CUDA_VISIBLE_DEVICES is ignored.
    """
    capability = _compute_capability()
    return next((row for row in TARGETS.values() if row.compute_capability == capability), None)


@cache
def present_gpu_name() -> str | None:
    """Return the name of the machine's first GPU, such as `NVIDIA H200`; None without a GPU."""
    return _of_first_gpu(_name)


def _compute_capability() -> tuple[int, int] | None:
    return _of_first_gpu(_capability)


def _of_first_gpu(ask: Callable[[Any, ctypes.c_void_p], Answer | None]) -> Answer | None:
    """Query NVML about it; None without a driver or a GPU."""
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != _SUCCESS:
        return None
    try:
        device = ctypes.c_void_p()
        found = nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == _SUCCESS
        return ask(nvml, device) if found else None
    finally:
        nvml.nvmlShutdown()


def _capability(nvml: Any, device: ctypes.c_void_p) -> tuple[int, int] | None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    status = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    return (major.value, minor.value) if status == _SUCCESS else None


def _name(nvml: Any, device: ctypes.c_void_p) -> str | None:
    text = ctypes.create_string_buffer(_NAME_BYTES)
    status = nvml.nvmlDeviceGetName(device, text, _NAME_BYTES)
    return text.value.decode(errors="replace") if status == _SUCCESS else None
