"""Which target the GPU of this machine is, asked of NVIDIA's management library, which needs no CUDA context.

`cuInit` would cost a tenth of a second and more; this costs a few milliseconds, and nothing where there is no driver.
"""

from __future__ import annotations

import ctypes
from functools import cache

from cutegen.arch import TARGETS, Target

_NVML = "libnvidia-ml.so.1"
_NO_ATTACH = 2  # NVML_INIT_FLAG_NO_ATTACH: do not wake every GPU of the machine, only the one that is asked about
_SUCCESS = 0


@cache
def present_target() -> Target | None:
    """The target of the machine's first GPU; None without a GPU, or when no target is for it.

    First in the order of the PCI bus: CUDA_VISIBLE_DEVICES is not looked at.
    """
    capability = _compute_capability()
    return next((target for target in TARGETS.values() if target.compute_capability == capability), None)


def _compute_capability() -> tuple[int, int] | None:
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return None
    if nvml.nvmlInitWithFlags(_NO_ATTACH) != _SUCCESS:
        return None
    try:
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != _SUCCESS:
            return None
        asked = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
        return (major.value, minor.value) if asked == _SUCCESS else None
    finally:
        nvml.nvmlShutdown()
