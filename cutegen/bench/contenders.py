"""Who takes part in a benchmark: kernels of cutegen's, and others that multiply the same operands.

A contender is prepared for three tensors and can then be called again and again, on torch's current stream.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cutegen.bench.cutlass_example import cutlass_example
from cutegen.bench.measure import Call
from cutegen.contract.launch import RESULT, LaunchContract

TORCH = "torch.matmul"
TRITON = "Triton"
CUTLASS = "CUTLASS example"

Prepare = Callable[[], Call]
"""Makes a contender ready for its operands, which may mean to compile it."""

Against = Callable[[LaunchContract, "Operands"], Iterable[tuple[str, Prepare]]]
"""Who multiplies such operands beside cutegen's kernels, by name."""


@dataclass(frozen=True, slots=True)
class Operands:
    """`a` (M,K), `b` (K,N) and `out` (M,N), torch tensors on one GPU."""

    a: Any
    b: Any
    out: Any


def others(contract: LaunchContract, operands: Operands, cutlass: Path | None) -> Iterator[tuple[str, Prepare]]:
    """Everything here that multiplies such operands and is not of cutegen: torch, Triton, CUTLASS's example."""
    yield TORCH, partial(_torch, contract, operands)
    if find_spec("triton") is not None and contract.tensor("a").dtype != "f32":  # of which tl.dot makes tf32
        yield TRITON, partial(_triton, operands)
    if cutlass is not None and _is_f16_tn(contract):
        yield CUTLASS, partial(cutlass_example, cutlass, operands.a, operands.b, operands.out)


def _torch(contract: LaunchContract, operands: Operands) -> Call:
    import torch

    if contract.tensor("a").dtype == "tf32":
        torch.set_float32_matmul_precision("high")  # tf32, as the kernels beside it multiply
    return partial(torch.matmul, operands.a, operands.b, out=operands.out)


def _triton(operands: Operands) -> Call:
    gemm = importlib.import_module("cutegen.bench.triton_gemm").gemm  # importing it imports Triton
    return partial(gemm, operands.a, operands.b, operands.out)


def _is_f16_tn(contract: LaunchContract) -> bool:
    majors = {"a": "k", "b": "k", RESULT: "n"}
    return all(
        (contract.tensor(role).dtype, contract.tensor(role).major) == ("f16", major) for role, major in majors.items()
    )
