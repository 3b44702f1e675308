"""The GPUs of this machine, each by a name that a child process can use in CUDA_VISIBLE_DEVICES.

NVML needs no CUDA context. UUIDs are the same in every process, whatever its device order.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from cutegen.hardware.targeting import NVML_SUCCESS, NVML_TEXT_BYTES, opened_nvml
from cutegen.support import environment
from cutegen.support.words import naturals


@dataclass(frozen=True, slots=True)
class PresentGpu:
    """`uuid` for CUDA_VISIBLE_DEVICES, `name` of the product by NVIDIA."""

    uuid: str
    name: str


def present_gpus() -> tuple[PresentGpu, ...]:
    """Return the GPUs that a process started here would see, in the order of the PCI bus; none without a driver."""
    with opened_nvml() as nvml:
        found = () if nvml is None else tuple(_found(nvml))
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
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != NVML_SUCCESS:
        return []
    gpus = []
    for index in range(count.value):
        device, uuid, name = (ctypes.c_void_p(), *(ctypes.create_string_buffer(NVML_TEXT_BYTES) for _ in range(2)))
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == NVML_SUCCESS
            and nvml.nvmlDeviceGetUUID(device, uuid, NVML_TEXT_BYTES) == NVML_SUCCESS
            and nvml.nvmlDeviceGetName(device, name, NVML_TEXT_BYTES) == NVML_SUCCESS
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
