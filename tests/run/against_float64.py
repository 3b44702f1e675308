"""A call, or an execution, against float64: what the tests of kernels have in common, on the CPU and on a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cutegen.contract.launch import RESULT_FACTORS
from cutegen.ptx import LaunchReport, Violation
from cutegen.run import Kernel
from cutegen.run.call.storage import ENDS_NAMES
from cutegen.verify import compare, expected_outcome, random_extras, random_operands

AT_CTA_SCOPE = (
    "convention: a release at scope cta to another CTA of the cluster",
    "convention: an acquire at scope cta of what another CTA of the cluster released",
)
"""Clusters that multiply by wgmma hand over stages so, as CUTLASS's do (`templates/functions/wgmma.py.j2`)."""


def undefined(kernel: Kernel, report: LaunchReport) -> tuple[Violation, ...]:
    """Return violations, and the conventions that a kernel may not rely on: any, but for `AT_CTA_SCOPE`."""
    known = AT_CTA_SCOPE if "wgmma" in kernel.artifact.ptx else ()
    return (*report.violations, *(each for each in report.conventions if not str(each).startswith(known)))


def made(
    kernel: Kernel, m: int, n: int, k: int, batch: int | None = None, **where: Any
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A, B, the result, poisoned, and what the epilogue takes, random; `where` is a framework and a device.

    Packed groups are three that share the rows, the second of them empty.
    """
    groups = kernel.contract.groups
    options: dict[str, Any] = {"seed": m * n + k, "batch": batch, "groups": groups and 3, **where}
    extras = random_extras(kernel.contract, m, n, k=k, **options)
    if groups is not None:
        rows = {"m": m, "n": n, "k": k}[groups.of]
        extras[ENDS_NAMES[groups.layout]] = np.array([rows // 3, rows // 3, rows], np.int32)
    return (*random_operands(kernel.contract, m, n, k, **options), extras)


def check(
    kernel: Kernel, a: Any, b: Any, out: Any, extras: Mapping[str, Any], call: Callable[..., Any] | None = None
) -> Any:
    """Calls the kernel, by `call` if it is given; holds what it wrote against float64, and returns what it returned."""
    outcome = expected(kernel, a, b, extras)
    returned = (call or kernel)(a, b, out=out, **extras)
    hold(kernel, out, extras, outcome)
    return returned


def expected(kernel: Kernel, a: Any, b: Any, extras: Mapping[str, Any], *, left: float = 0.0) -> Any:
    """What the operands as they are now should give; elements that no group has are `left`."""
    accumulator = json.loads(kernel.artifact.plan_json)["mma"]["accumulator"]
    return expected_outcome(kernel.contract, a, b, extras, accumulator=accumulator, left=left)


def hold(kernel: Kernel, out: Any, extras: Mapping[str, Any], outcome: Any) -> None:
    """Hold the result, and `aux` or its factors where there are some, against what was expected."""
    dtypes = {tensor.name: tensor.dtype for tensor in kernel.contract.tensors}
    result = compare(out, outcome.result, dtype=dtypes["c"])
    assert result.ok, result
    if outcome.aux is not None:
        aux = compare(extras["aux"], outcome.aux, dtype=dtypes["aux"])
        assert aux.ok, aux
    if outcome.factors is not None:
        factors = compare(extras[RESULT_FACTORS], outcome.factors, dtype=dtypes[RESULT_FACTORS])
        assert factors.ok, factors
