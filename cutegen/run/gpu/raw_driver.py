"""The driver functions of every call, by address: `cuda.bindings` adds microseconds.

`cuda.bindings` makes objects of a call's arguments each time. Here a prepared structure holds the launch configuration,
and a call writes the stream into it. Source: CUDA Driver API, "Execution Control"; structures as in `cuda.h`.
"""

import ctypes
from functools import cache
from typing import Any, Self

from cutegen.contract.launch import LaunchGeometry
from cutegen.run.driver import Driver

_CUDA_VERSION = 12000
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute with the extents of clusters, or a number in place of the first extent."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("cluster", ctypes.c_uint * 3),
        ("rest", ctypes.c_char * 52),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )

    @classmethod
    def of(cls, geometry: LaunchGeometry, *, in_clusters: bool, programmatic: bool = False) -> Self:
        """Configuration of a launch, without its stream."""
        config = cls((ctypes.c_uint * 3)(*geometry.grid), (ctypes.c_uint * 3)(*geometry.block))
        config.smem_bytes = geometry.dynamic_smem_bytes
        wanted = [(_CLUSTER_DIMENSION, geometry.cluster)] * in_clusters
        wanted += [(_PROGRAMMATIC_STREAM_SERIALIZATION, (1, 0, 0))] * programmatic
        if wanted:
            made = (LaunchAttribute(id=number, cluster=(ctypes.c_uint * 3)(*value)) for number, value in wanted)
            config.attributes = (LaunchAttribute * len(wanted))(*made)
            config.attribute_count = len(wanted)
        return config


class RawDriver:
    """Each function returns the driver's status, an int; results are written through pointer arguments."""

    __slots__ = ("get_current_context", "is_capturing", "launch", "stream_id")

    def __init__(self, driver: Driver) -> None:
        def function(name: str, *types: Any) -> Any:
            return ctypes.CFUNCTYPE(ctypes.c_int, *types)(driver.entry_point(name, _CUDA_VERSION))

        pointer = ctypes.c_void_p
        # Without argument types, whose checks cost as much as the rest of the call: it takes ctypes pointers.
        self.launch = function("cuLaunchKernelEx")
        self.get_current_context = function("cuCtxGetCurrent", pointer)
        self.is_capturing = function("cuStreamIsCapturing", pointer, pointer)
        self.stream_id = function("cuStreamGetId", pointer, pointer)


@cache
def raw_driver(driver: Driver) -> RawDriver:
    """Look up the functions of a driver once. Raises DeviceError."""
    return RawDriver(driver)
