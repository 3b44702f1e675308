"""The hand-written WMMA kernel of benchmarks/wmma as a contender: compiled by nvcc, called through ctypes.

It has no code for edges. A problem that is no multiple of its tile is multiplied with zeros around it, as whoever has
only this kernel would do; putting them there is not timed.
"""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutegen.bench.contenders import Operands
from cutegen.bench.measure import Call
from cutegen.errors import OutsideError

_LOG = logging.getLogger("cutegen.bench")

NAME = "WMMA by hand"
SOURCE = Path(__file__).parents[1] / "wmma" / "wmma_gemm.cu"
M_MULTIPLE, N_MULTIPLE, K_MULTIPLE, K_LEAST = 256, 128, 32, 64  # wmma_gemm.h


class _Problem(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in "mnk"]


def compile_by_hand() -> Callable[[Operands], Call] | None:
    """What makes the kernel ready for f16 TN operands; None, with a warning, where there is no nvcc.

    Raises OutsideError when nvcc fails.
    """
    if (nvcc := shutil.which("nvcc")) is None:
        _LOG.warning("%s is left out: there is no nvcc on PATH", NAME)
        return None
    import torch

    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory(prefix="cutegen-wmma-") as folder:
        library = Path(folder) / "wmma_gemm.so"
        flags = ["-O3", "-std=c++17", f"-arch=sm_{major}{minor}", "-shared", "-Xcompiler", "-fPIC"]
        done = subprocess.run([nvcc, *flags, "-o", library, SOURCE], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OutsideError(f"{SOURCE.name}: nvcc refuses it: {done.stderr.strip()}")
        gemm = ctypes.CDLL(str(library)).wmma_gemm
    gemm.argtypes = [_Problem, *[ctypes.c_void_p] * 4]
    return lambda operands: prepare(gemm, operands)


def prepare(gemm: Callable[..., int], operands: Operands) -> Call:
    """The result of one launch lies in `operands.out` when this returns; calls write where there is room for zeros."""
    import torch

    (m, k), n = operands.a.shape, operands.b.shape[1]
    problem = _Problem(*padded_extents(m, n, k))
    a = _padded(operands.a, problem.m, problem.k)
    b = _padded(operands.b.T, problem.n, problem.k)
    out = torch.empty(problem.m, problem.n, dtype=operands.out.dtype, device=operands.out.device)

    def call() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        if status := gemm(problem, a.data_ptr(), b.data_ptr(), out.data_ptr(), stream):
            raise OutsideError(f"{NAME}: CUDA error {status}")

    call()
    operands.out.copy_(out[:m, :n])
    return call


def padded_extents(m: int, n: int, k: int) -> tuple[int, int, int]:
    """The least problem around this one that the kernel takes.

    >>> padded_extents(256, 136, 8)
    (256, 256, 64)
    """
    return _up(m, M_MULTIPLE), _up(n, N_MULTIPLE), max(_up(k, K_MULTIPLE), K_LEAST)


def _up(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


def _padded(matrix: Any, rows: int, columns: int) -> Any:
    import torch

    padded = torch.zeros(rows, columns, dtype=matrix.dtype, device=matrix.device)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded
