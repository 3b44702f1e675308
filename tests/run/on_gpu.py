"""A call on a GPU against float64: what the tests of kernels there have in common."""

from __future__ import annotations

import json
from typing import Any

from cutegen.run import Kernel
from cutegen.verify import compare, expected_outcome, random_extras, random_operands


def made(kernel: Kernel, m: int, n: int, k: int, batch: int | None = None) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A, B, the result and what the epilogue takes, random; the result poisoned."""
    options: dict[str, Any] = {"seed": m * n + k, "batch": batch, "framework": "torch", "device": "cuda"}
    return (*random_operands(kernel.contract, m, n, k, **options), random_extras(kernel.contract, m, n, **options))


def check(kernel: Kernel, a: Any, b: Any, out: Any, extras: dict[str, Any]) -> None:
    """Calls the kernel, and compares what it writes."""
    accumulator = json.loads(kernel.artifact.plan_json)["mma"]["accumulator"]
    expected = expected_outcome(kernel.contract, a, b, extras, accumulator=accumulator)
    kernel(a, b, out=out, **extras)
    dtypes = {tensor.name: tensor.dtype for tensor in kernel.contract.tensors}
    result = compare(out, expected.result, dtype=dtypes["c"])
    assert result.ok, result
    if expected.aux is not None:
        aux = compare(extras["aux"], expected.aux, dtype=dtypes["aux"])
        assert aux.ok, aux
