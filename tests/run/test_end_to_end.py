"""Compiled kernels called on host memory: their real PTX, executed on the CPU, against float64. Needs no GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from cutegen.arch import target
from cutegen.build import BuildRequest, Cache, build
from cutegen.plan import plan
from cutegen.render import render
from cutegen.run import Kernel, compare, float64_reference, random_operands
from cutegen.run.storage import call_tensors
from cutegen.spec import GemmSpec, Operand, Problem

pytestmark = pytest.mark.dsl
OTHER_MAJORS = [f"{a}{b}{c}" for a in "mk" for b in "nk" for c in "mn" if f"{a}{b}{c}" != "kkn"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Kernel]:
    """Kernels of specs that leave everything but the problem out."""
    kept = Cache(tmp_path_factory.mktemp("cache"))

    @cache
    def make(majors: str, dtype: str, accumulator: str) -> Kernel:
        a, b, c = (Operand(dtype, major) for major in majors)
        planned = plan(GemmSpec(family="sm80", problem=Problem(a=a, b=b, c=c, accumulator=accumulator)))
        request = BuildRequest(
            source=render(planned),
            target=target("sm_80"),
            plan_json=json.dumps(planned.to_json()),
            instructions=planned.predictions.instructions,
        )
        return Kernel.open(build(request, kept).path)

    return make


def storage_of(kernel: Kernel, out: Any, shape: tuple[int, int]) -> Any:
    """The result's memory with the padding of its rows."""
    storage = call_tensors(kernel.contract)[2].storage(shape)
    rows = out.T if storage.transposed else out
    item = out.itemsize
    return np.lib.stride_tricks.as_strided(rows, (storage.rows, storage.stride), (storage.stride * item, item))


@pytest.mark.parametrize(
    ("majors", "dtype", "accumulator"),
    [
        ("kkn", "f16", "f32"),
        ("mnm", "bf16", "f32"),
        pytest.param("kkn", "f16", "f16", marks=pytest.mark.slow),
        pytest.param("kkn", "bf16", "f32", marks=pytest.mark.slow),
        *[pytest.param(majors, "f16", "f32", marks=pytest.mark.slow) for majors in OTHER_MAJORS],
    ],
)
def test_right_against_float64_and_nothing_beside_it_is_written(
    compiled: Callable[[str, str, str], Kernel], majors: str, dtype: str, accumulator: str
) -> None:
    kernel = compiled(majors, dtype, accumulator)
    poison = 0x7FC0 if dtype == "bf16" else np.float16(np.nan).view(np.uint16)
    for m, n, k in [(1, 1, 1), (7, 8, 64), (64, 127, 8), (129, 7, 257)]:
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k)
        whole = storage_of(kernel, out, (m, n))
        assert kernel(a, b, out=out) is out
        comparison = compare(out, float64_reference(a, b), dtype=dtype, accumulator=accumulator)
        assert comparison.ok, (m, n, k, comparison)
        assert (whole[:, n if majors[2] == "n" else m :].view(np.uint16) == poison).all()


def test_torch_tensors_without_out(compiled: Callable[[str, str, str], Kernel]) -> None:
    torch = pytest.importorskip("torch")
    kernel = compiled("mnm", "bf16", "f32")
    a, b, _ = random_operands(kernel.contract, 40, 24, 33, seed=5, framework="torch")
    out = kernel(a, b)
    assert (out.shape, out.dtype) == ((40, 24), torch.bfloat16)
    assert compare(out, float64_reference(a, b), dtype="bf16").ok
