"""Executes an artifact's PTX on the CPU, on operands in host memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cutegen.plan.launch import LaunchContract
from cutegen.ptx import LaunchReport, Program
from cutegen.run.check import CheckedCall, Placed
from cutegen.run.storage import numpy_dtype


class CpuKernel:
    """An entry of a PTX text, parsed once."""

    def __init__(self, contract: LaunchContract, ptx: str) -> None:
        self._contract, self._program = contract, Program.parse(ptx)

    def prepare(self, call: CheckedCall) -> CpuLaunch:
        """What a call of this form does."""
        return CpuLaunch(self._program, self._contract, call)


class CpuLaunch:
    """One form of call. It runs to its end before it returns, so streams do not matter."""

    def __init__(self, program: Program, contract: LaunchContract, call: CheckedCall) -> None:
        self._program, self._contract, self._call = program, contract, call

    def __call__(self, a: int, b: int, c: int, stream: int) -> None:
        """Execute on the addresses. Raises PtxFault when the program does something undefined."""
        self.execute(a, b, c)

    def execute(self, a: int, b: int, c: int, **options: Any) -> LaunchReport:
        """Execute on the addresses; `options` are those of `Program.launch`. Raises PtxFault, LaunchError."""
        call, contract = self._call, self._contract
        inputs = host_array(call.a, a), host_array(call.b, b)
        for array in inputs:
            array.flags.writeable = False
        geometry = contract.geometry(call.size.m, call.size.n)
        return self._program.launch(
            contract.entry,
            grid=geometry.grid,
            block=geometry.block,
            args=contract.arguments(*inputs, host_array(call.out, c), call.size),
            dynamic_smem_bytes=geometry.dynamic_smem_bytes,
            **options,
        )


def host_array(placed: Placed, pointer: int) -> np.ndarray[Any, Any]:
    """The storage of a host matrix from its address to its last element, flat; bf16 as uint16.

    It borrows the memory, which the caller's operand keeps alive. Its bounds are exact, so that the executor notices an
    access past the last element.
    """
    dtype = numpy_dtype(placed.tensor.dtype.torch_name)
    if placed.span_bytes == 0:
        return np.empty(0, dtype)
    return np.ctypeslib.as_array((ctypes.c_uint8 * placed.span_bytes).from_address(pointer)).view(dtype)
