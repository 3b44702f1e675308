"""Swizzles out of the ordinary, compiled and executed: what the DSL would slice wrongly must not be among them."""

from __future__ import annotations

import pytest

from cutegen import api
from cutegen.build import Cache
from cutegen.plan import plan
from cutegen.spec import Epilogue, GemmSpec, S2r, S2rCopy, Smem, SmemLayout, Tile
from cutegen.verify import compare, expected_outcome, random_operands
from tests.plan.specs import gemm

CASES: dict[str, tuple[GemmSpec, str]] = {
    "stores of one thread to several rows": (
        gemm("kkn", "s8", c_dtype="f32", align=(1, 4, 4), tile=Tile(cta=(96, 24, 64), stages=2)),
        "universal 8 bits",
    ),
    "plain loads along what is swizzled": (
        gemm(
            dtype="tf32",
            tile=Tile(cta=(128, 16, 64), stages=2),
            smem=Smem(b=SmemLayout(swizzle=(3, 3, 3))),
            s2r=S2r(b=S2rCopy("universal")),
        ),
        "Swizzle<3,3,3>",
    ),
    "sums of one thread in several columns": (
        gemm("kkm", tile=Tile(cta=(64, 64, 32)), epilogue=Epilogue(smem=SmemLayout(swizzle=(3, 3, 3)))),
        "Swizzle<3,3,3>",
    ),
    "a period longer than the narrowest atom": (
        gemm(dtype="bf16", tile=Tile(cta=(96, 80, 32), stages=3), smem=Smem(b=SmemLayout(swizzle=(1, 4, 3)))),
        "Swizzle<1,4,3>",
    ),
}
FAST = "sums of one thread in several columns"


@pytest.mark.dsl
@pytest.mark.parametrize(
    "name", [name if name == FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_right_against_float64(name: str, kernels: Cache) -> None:
    spec, said = CASES[name]
    assert said in " ".join(x.chosen for x in plan(spec, "sm_80").decisions)
    kernel = api.compile(spec, "sm_80", cache=kernels)
    a, b, out = random_operands(kernel.contract, 65, 72, 200, seed=1)
    kernel(a, b, out=out)
    accumulator = "s32" if spec.problem.a.dtype == "s8" else "f32"
    expected = expected_outcome(kernel.contract, a, b, {}, accumulator=accumulator)
    assert compare(out, expected.result, dtype=kernel.contract.tensor("c").dtype).ok
