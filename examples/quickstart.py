"""Write a layout spec in Python, compile it, call it like `a @ b`, and compare the result with float64; needs no GPU.

With NumPy operands, the CPU executes the compiled PTX. With CUDA tensors of torch, the kernel runs on the GPU.
"""

from __future__ import annotations

import numpy as np

import cutegen

spec = cutegen.GemmSpec(
    family="sm80",
    problem=cutegen.Problem(
        a=cutegen.Operand(dtype="f16", major="k"),
        b=cutegen.Operand(dtype="f16", major="k"),
        c=cutegen.Operand(dtype="f16", major="n"),
    ),
    tile=cutegen.Tile(cta=(64, 64, 32), stages=3),
    name="quickstart",
)

kernel = cutegen.compile(spec)

rng = np.random.default_rng(0)
a = rng.standard_normal((128, 96)).astype(np.float16)  # (M,K), contiguous along K: major = "k"
b = rng.standard_normal((80, 96)).astype(np.float16).T  # (K,N), also contiguous along K
c = kernel(a, b)

exact = a.astype(np.float64) @ b.astype(np.float64)
error = np.linalg.norm(c - exact) / np.linalg.norm(exact)
print(f"{a.shape} @ {b.shape} = {c.shape} {c.dtype}, relative error {error:.1e}")
if error > 1e-3:
    raise SystemExit("wrong result")
