"""Executes an artifact's PTX on the CPU, on operands in host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from cutegen.contract.launch import ONE_CTA, RESULT, CallSize, LaunchContract, Workspace
from cutegen.ptx import LaunchReport, Program, TensorMap
from cutegen.run.call.check import CheckedCall
from cutegen.run.call.memory_overlap import Placed
from cutegen.run.call.storage import numpy_dtype

MULTIPROCESSORS = 2
"""SMs of the modeled GPU: few enough that a small problem has more tiles than persistent CTAs, and more than one, so
that CTAs share the tiles. It holds as many clusters, for the same reason."""


class CpuKernel:
    """An entry of a PTX text, parsed once."""

    def __init__(self, contract: LaunchContract, ptx: str) -> None:
        self._contract, self._program = contract, Program.parse(ptx)

    def prepare(self, call: CheckedCall) -> CpuLaunch:
        """Return the executable for a call of this form."""
        return CpuLaunch(self._program, self._contract, call)


class CpuLaunch:
    """One form of call. It runs to completion before it returns, so streams do not matter."""

    def __init__(self, program: Program, contract: LaunchContract, call: CheckedCall) -> None:
        self._program, self._contract, self._call = program, contract, call

    def __call__(self, addresses: tuple[int, ...], scalars: tuple[float, ...], stream: int) -> None:
        """Execute on the addresses. Raises PtxFault if the program does something undefined."""
        self.execute(addresses, scalars)

    def execute(self, addresses: tuple[int, ...], scalars: tuple[float, ...], **options: Any) -> LaunchReport:
        """Execute on the addresses; `options` are those of `Program.launch`. Raises PtxFault, LaunchError."""
        call, contract = self._call, self._contract
        arrays = {
            role: host_array(placed, address)
            for (role, placed), address in zip(call.placed.items(), addresses, strict=True)
        }
        for role, array in arrays.items():
            array.flags.writeable = call.placed[role].tensor.written
        size = call.size
        has_clusters = contract.cluster != ONE_CTA
        geometry = contract.geometry(
            size.problem,
            multiprocessors=MULTIPROCESSORS,
            active_clusters=MULTIPROCESSORS if has_clusters else None,
        )
        if contract.adds_to_result:
            arrays[RESULT][...] = 0
        workspace = host_workspace(contract.workspace(size.problem))
        return self._program.launch(
            contract.entry,
            grid=geometry.grid,
            block=geometry.block,
            cluster=geometry.cluster if has_clusters else None,
            args=contract.arguments((*arrays.values(), *workspace), scalars, size, tensor_maps(contract, arrays, size)),
            dynamic_smem_bytes=geometry.dynamic_smem_bytes,
            programmatic=_used_before(contract),
            **options,
        )


def _used_before(contract: LaunchContract) -> bool | tuple[int, ...]:
    """Return whether the grid before may use a launch's memory, or the numbers of the parameters whose memory it may.

    It may use all but what the kernel reads ahead; a tensor map of that reads the same memory.
    """
    if not contract.ahead:
        return contract.programmatic
    used = {*contract.pointers, *(f"map_{each.name}" for each in contract.maps)}
    used -= {name for each in contract.ahead for name in (each, f"map_{each}")}
    return tuple(i for i, each in enumerate(contract.parameters) if each.name in used)


def host_workspace(workspace: Workspace | None) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the sums, poisoned with NaN so that unwritten values show, and the counters; empty without them."""
    if workspace is None:
        return ()
    sums = np.full(workspace.sums_bytes // np.dtype(np.float32).itemsize, np.nan, np.float32)
    return sums, np.zeros(workspace.counters, np.uint32)


def tensor_maps(
    contract: LaunchContract, arrays: Mapping[str, np.ndarray[Any, Any]], size: CallSize
) -> tuple[TensorMap, ...]:
    """Return the tensor maps of a launch on `arrays`, by role. Raises LaunchError.

    The map of an empty matrix has one element with all bits set, NaN in a float, so that a kernel's use of it shows.
    """
    return tuple(
        TensorMap(
            array=_at_least_one(arrays[each.name]),
            extents=fields.extents,
            strides_bytes=fields.strides_bytes,
            box=fields.box,
            swizzle_bytes=fields.swizzle_bytes,
        )
        for each, fields in zip(contract.maps, contract.map_fields(size), strict=True)
    )


def _at_least_one(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if array.size else np.full(array.itemsize, 0xFF, np.uint8).view(array.dtype)


def host_array(placed: Placed, pointer: int) -> np.ndarray[Any, Any]:
    """View the elements of a host matrix in place, (batch, rows, elements of a row); bf16 as uint16.

    It borrows the memory, which the caller's operand keeps alive. It extends from the first element to the last, so
    the executor notices an access past them; memory between rows is not part of it.
    """
    dtype = numpy_dtype(placed.tensor.dtype.torch_name)
    if placed.span_bytes == 0:
        return np.empty(0, dtype)
    return np.ndarray(
        (placed.batch, placed.rows, placed.row_bytes // dtype.itemsize),
        dtype,
        memoryview((ctypes.c_uint8 * placed.span_bytes).from_address(pointer)),
        strides=(placed.batch_pitch_bytes, placed.pitch_bytes, dtype.itemsize),
    )
