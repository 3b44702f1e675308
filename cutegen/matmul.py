"""One call: `cutegen.matmul`, what it would do, and how to have it ready.

    c = cutegen.matmul(x, w.T, bias=b, activation="gelu")
    print(cutegen.explain(x, w.T, bias=b, activation="gelu"))
    cutegen.prepare(x, w.T, bias=b, activation="gelu", rows=range(1, 257))
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cutegen.errors import OperandError


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    c: Any = None,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """`act(alpha * (a @ b) + beta * c + bias) + residual`, in f32, rounded once to the result's type.

    Shapes are those of `torch.matmul`: vectors, matrices, and batches that broadcast. `bias` is (N,), `c` and
    `residual` have the result's shape or expand to it; `activation` is "relu", "gelu" (with erf), "gelu_tanh" or
    "silu". The result has the type of `a`, of 8-bit integers s32 and of 8-bit floats bf16, or `out_dtype`; it is
    written to `out` where that is given. `beta` is 1 where only `c` is given.

    The kernel is the best known for shape and device: built once, cached, and found by one look-up afterwards. Torch
    tensors on a GPU are multiplied there, on the current stream; those in host memory by torch, unless
    `cutegen.matmul_settings(cpu_tensors="executor")`. Of NumPy arrays the kernel's PTX is executed on the CPU.

    Raises OperandError for tensors that do not go together, RequestError for other arguments, CompileError when a
    kernel cannot be built.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        from cutegen.torch_ops.door import matmul as of_tensors

        return of_tensors(a, b, bias, activation, residual, alpha, beta, c, out, out_dtype)
    return _of_arrays(a, b, bias, activation, residual, alpha, beta, c, out, out_dtype)
