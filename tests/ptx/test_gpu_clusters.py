"""Right kernels of clusters on a GPU: the executor's results, bit for bit."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cluster_kernels import BLOCK, SMEM_BYTES, launch
from kernels import cuda_program, kernel
from wrong_clusters import WRONG, WrongCluster, matrix

from cutegen.contract.launch import LaunchGeometry
from cutegen.ptx import TensorMap
from cutegen.run.driver import Driver, load_driver
from cutegen.run.gpu.launch import launch_config

pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def driver() -> Driver:
    found = load_driver()
    found.call("cuCtxSetCurrent", found.primary_context(0))
    return found


def encoded(driver: Driver, tensor_map: TensorMap, address: int) -> Any:
    """Encodes the map of 32-bit elements at `address`."""
    api, rank = driver.api, len(tensor_map.extents)
    return driver.call(
        "cuTensorMapEncodeTiled",
        api.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT32,
        rank,
        address,
        [api.cuuint64_t(extent) for extent in tensor_map.extents],
        [api.cuuint64_t(stride) for stride in tensor_map.strides_bytes],
        [api.cuuint32_t(extent) for extent in tensor_map.box],
        [api.cuuint32_t(1)] * rank,
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def on_gpu(driver: Driver, text: str, entry: str, geometry: LaunchGeometry, arguments: Sequence[Any]) -> None:
    """Runs `entry` on copies of the arrays, which are brought back."""
    library = driver.call("cuLibraryLoadData", text.encode() + b"\0", [], [], 0, [], [], 0)
    function = driver.call("cuKernelGetFunction", driver.call("cuLibraryGetKernel", library, entry.encode()))
    copies: list[tuple[Array, Any]] = []
    slots: list[Any] = []

    def placed(array: Array) -> int:
        memory = driver.call("cuMemAlloc", array.nbytes)
        driver.call("cuMemcpyHtoD", memory, array.ctypes.data, array.nbytes)
        copies.append((array, memory))
        return int(memory)

    for argument in arguments:
        if isinstance(argument, TensorMap):
            bytes_of_map = ctypes.create_string_buffer(192)
            start = -ctypes.addressof(bytes_of_map) % 64
            made = encoded(driver, argument, placed(argument.array))
            ctypes.memmove(ctypes.addressof(bytes_of_map) + start, made.getPtr(), 128)
            slots.append((bytes_of_map, start))
        elif isinstance(argument, np.ndarray):
            slots.append((ctypes.c_uint64(placed(argument)), 0))
        else:
            slots.append((ctypes.c_int32(argument), 0))
    pointers = (ctypes.c_void_p * len(slots))(*(ctypes.addressof(slot) + start for slot, start in slots))
    config = launch_config(driver.api, geometry)
    driver.call("cuLaunchKernelEx", config, function, ctypes.addressof(pointers), 0)
    driver.call("cuCtxSynchronize")
    for array, memory in copies:
        driver.call("cuMemcpyDtoH", array.ctypes.data, memory, array.nbytes)
        driver.call("cuMemFree", memory)


@pytest.mark.parametrize("right", WRONG, ids=lambda wrong: f"the right one of: {wrong.name}")
def test_a_gpu_computes_what_the_executor_does(right: WrongCluster, driver: Driver) -> None:
    tensor_map = matrix() if right.has_map else None
    expected, _ = launch(right.right, cluster=right.cluster, tensor_map=tensor_map)
    maps = ".param .align 64 .b8 map[128], " if right.has_map else ""
    text = kernel(right.right, shared_bytes=SMEM_BYTES, parameters=maps + ".param .u64 out")
    text = text.replace(".target sm_80", ".target sm_90").replace(".version 8.0", ".version 8.3")
    out = np.full(right.cluster * BLOCK, 0xDEADBEEF, np.uint32)
    geometry = LaunchGeometry((right.cluster, 1, 1), (BLOCK, 1, 1), 0, (right.cluster, 1, 1))
    on_gpu(driver, text, "k", geometry, [out] if tensor_map is None else [tensor_map, out])
    assert (out.reshape(expected.shape) == expected).all()


def test_softmax_of_rows_that_a_cluster_shares(driver: Driver) -> None:
    rows, length = 3, 1777
    x = np.random.default_rng(5).standard_normal((rows, length)).astype(np.float32)
    on_cpu, here = np.full((rows, length), np.nan, np.float32), np.full((rows, length), np.nan, np.float32)
    counts = np.zeros((2, rows), np.int32)
    program = cuda_program("cluster_softmax")
    program.launch("cluster_softmax", grid=4 * rows, block=128, args=[x, on_cpu, counts[0], length])
    geometry = LaunchGeometry((4 * rows, 1, 1), (128, 1, 1), 0, (4, 1, 1))
    on_gpu(driver, program.text, "cluster_softmax", geometry, [x, here, counts[1], length])
    assert np.allclose(on_cpu, here, rtol=1e-6, atol=0)
    assert (counts == length).all()
