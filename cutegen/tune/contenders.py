"""Who takes part in a benchmark: kernels of cutegen's, and others that multiply the same operands.

A contender is prepared for three tensors and can then be called again and again, on torch's current stream.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cutegen.errors import OutsideError
from cutegen.plan.launch import LaunchContract
from cutegen.tune.measure import Call

TORCH = "torch.matmul"
TRITON = "Triton"
CUTLASS = "CUTLASS example"

Prepare = Callable[[], Call]
"""Makes a contender ready for its operands, which may mean to compile it."""


@dataclass(frozen=True, slots=True)
class Operands:
    """`a` (M,K), `b` (K,N) and `out` (M,N), torch tensors on one GPU."""

    a: Any
    b: Any
    out: Any


def others(contract: LaunchContract, operands: Operands, cutlass: Path | None) -> Iterator[tuple[str, Prepare]]:
    """Everything here that multiplies such operands and is not of cutegen: torch, Triton, CUTLASS's example."""
    yield TORCH, partial(_torch, contract, operands)
    if find_spec("triton") is not None and contract.tensors[0].dtype != "f32":  # of which tl.dot makes tf32
        yield TRITON, partial(_triton, operands)
    if cutlass is not None and _is_f16_tn(contract):
        yield CUTLASS, partial(_cutlass_example, cutlass, operands)


def _torch(contract: LaunchContract, operands: Operands) -> Call:
    import torch

    if contract.tensors[0].dtype == "tf32":
        torch.set_float32_matmul_precision("high")  # tf32, as the kernels beside it multiply
    return partial(torch.matmul, operands.a, operands.b, out=operands.out)


def _triton(operands: Operands) -> Call:
    gemm = importlib.import_module("cutegen.tune.triton_gemm").gemm  # importing it imports Triton
    return partial(gemm, operands.a, operands.b, operands.out)


def _is_f16_tn(contract: LaunchContract) -> bool:
    return [(x.dtype, x.major) for x in contract.tensors[:3]] == [("f16", "k"), ("f16", "k"), ("f16", "n")]


def _cutlass_example(path: Path, operands: Operands) -> Call:
    """`tensorop_gemm.py`, CUTLASS's Ampere example of the CuTe DSL, compiled for these operands by itself.

    Raises OutsideError when the file is another one.
    """
    import cuda.bindings.driver as cuda
    import torch

    example = _module(path)
    f16, f32 = example.cutlass.Float16, example.cutlass.Float32
    a, b, out = operands.a, operands.b, operands.out
    batched = (x.as_strided((1, *x.shape), (x.numel(), *x.stride())) for x in (a, b, out))
    tensors = example.mark_dynamic_layout(*batched, 2, 1, 2, f16, f16)
    problem = (a.shape[0], b.shape[1], a.shape[1], 1)
    compiled = example.compile_bmm(problem, *tensors, f16, f16, f32, (2, 2, 1))
    return partial(compiled, *tensors, cuda.CUstream(torch.cuda.current_stream().cuda_stream))


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    try:
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _ = module.mark_dynamic_layout, module.compile_bmm, module.cutlass
    except (AssertionError, AttributeError, ImportError, OSError, SyntaxError) as error:
        raise OutsideError(
            f"--cutlass: {path} is not CUTLASS's tensorop_gemm.py ({error}); it lies in CUTLASS's repository under "
            "examples/python/CuTeDSL"
        ) from error
    return module
