"""Chooses the target of a request: the one that it names, else the present GPU's, else the first that can serve it.

The GPU is asked for through NVIDIA's management library, which needs no CUDA context: 18 ms on an H200, where `cuInit`
alone takes 125 to 180, and nothing where there is no driver.
"""

from __future__ import annotations

import ctypes
from functools import cache

from cutegen.hardware import TARGETS, Target, resolve_target, target

DEFAULT_TARGET = "sm_80"

_NVML = "libnvidia-ml.so.1"
_SUCCESS = 0


def choose_target(arch: str | None = None, *, least: str = DEFAULT_TARGET) -> Target:
    """The target called `arch` (`sm_90a`, `sm90`, `90` or `h100`), else the present GPU's, else `least`.

    Raises RequestError for an unknown one.

    >>> choose_target("90a").name
    'sm_90'
    """
    if arch is not None:
        return resolve_target(arch)
    return present_target() or target(least)


@cache
def present_target() -> Target | None:
    """The target of the machine's first GPU; None without a GPU, or when no target is for it.

    First in the order of the PCI bus: CUDA_VISIBLE_DEVICES is not looked at.
    """
    capability = _compute_capability()
    return next((row for row in TARGETS.values() if row.compute_capability == capability), None)


def _compute_capability() -> tuple[int, int] | None:
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != _SUCCESS:
        return None
    try:
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != _SUCCESS:
            return None
        status = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
        return (major.value, minor.value) if status == _SUCCESS else None
    finally:
        nvml.nvmlShutdown()
