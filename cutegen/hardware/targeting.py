"""Chooses the target of a request: the named one, else the present GPU's, else the first that can serve it.

NVIDIA's management library finds the GPU without a CUDA context: 18 ms on an H200, compared with 125 to 180 for
`cuInit` alone, and no time without a driver.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from cutegen.hardware import TARGETS, Target, resolve_target, target

DEFAULT_TARGET = "sm_80"

NVML_SUCCESS = 0
NVML_TEXT_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE, and that of a UUID
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


@contextmanager
def opened_nvml() -> Iterator[ctypes.CDLL | None]:
    """Return NVIDIA's management library, until the `with` block ends; None without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        nvml = None
    if nvml is None or nvml.nvmlInit_v2() != NVML_SUCCESS:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _of_first_gpu(ask: Callable[[Any, ctypes.c_void_p], Answer | None]) -> Answer | None:
    """Query NVML about it; None without a driver or a GPU."""
    device = ctypes.c_void_p()
    with opened_nvml() as nvml:
        found = nvml is not None and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == NVML_SUCCESS
        return ask(nvml, device) if found else None


def _capability(nvml: Any, device: ctypes.c_void_p) -> tuple[int, int] | None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    status = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    return (major.value, minor.value) if status == NVML_SUCCESS else None


def _name(nvml: Any, device: ctypes.c_void_p) -> str | None:
    text = ctypes.create_string_buffer(NVML_TEXT_BYTES)
    status = nvml.nvmlDeviceGetName(device, text, NVML_TEXT_BYTES)
    return text.value.decode(errors="replace") if status == NVML_SUCCESS else None
