"""The GPUs of this machine, each by a name that a child process can use in CUDA_VISIBLE_DEVICES.

NVML needs no CUDA context. UUIDs are the same in every process, whatever its device order.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from cutegen.support import environment
from cutegen.support.words import naturals

_NVML = "libnvidia-ml.so.1"
_SUCCESS = 0
_TEXT_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE


@dataclass(frozen=True, slots=True)
class PresentGpu:
    """`uuid` for CUDA_VISIBLE_DEVICES, `name` of the product by NVIDIA."""

    uuid: str
    name: str


def present_gpus() -> tuple[PresentGpu, ...]:
    """Return the GPUs that a process started here would see, in the order of the PCI bus; none without a driver."""
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return ()
    if nvml.nvmlInit_v2() != _SUCCESS:
        return ()
    try:
        found = tuple(_found(nvml))
    finally:
        nvml.nvmlShutdown()
    visible = environment.visible_gpus()
    return found if visible is None else _visible(found, visible)


def alike(gpus: tuple[PresentGpu, ...]) -> tuple[PresentGpu, ...]:
    """Return those of the first one's product: a record must not mix times of two products.

    >>> [each.uuid for each in alike((PresentGpu("a", "H200"), PresentGpu("b", "A2"), PresentGpu("c", "H200")))]
    ['a', 'c']
    """
    return tuple(each for each in gpus if each.name == gpus[0].name)


def _found(nvml: ctypes.CDLL) -> list[PresentGpu]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return []
    gpus = []
    for index in range(count.value):
        device, uuid, name = (ctypes.c_void_p(), *(ctypes.create_string_buffer(_TEXT_BYTES) for _ in range(2)))
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == _SUCCESS
            and nvml.nvmlDeviceGetUUID(device, uuid, _TEXT_BYTES) == _SUCCESS
            and nvml.nvmlDeviceGetName(device, name, _TEXT_BYTES) == _SUCCESS
        ):
            gpus.append(PresentGpu(uuid.value.decode(), name.value.decode()))
    return gpus


def _visible(found: tuple[PresentGpu, ...], visible: tuple[str, ...]) -> tuple[PresentGpu, ...]:
    """Return those that CUDA_VISIBLE_DEVICES names, by number or UUID prefix, up to the first unknown one."""
    chosen: list[PresentGpu] = []
    for name in visible:
        number = naturals(name)
        by_number = found[number[0] :][:1] if number else ()
        matches = by_number or tuple(each for each in found if name and each.uuid.startswith(name))
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen.append(matches[0])
    return tuple(chosen)
