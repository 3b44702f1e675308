"""Scales as vectors and as single elements, and both biases, in every family. Needs no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutegen.errors import OperandError
from cutegen.run import Kernel
from cutegen.spec import GemmSpec
from cutegen.verify import compare, random_extras, random_operands
from cutegen.verify.error_bounds import Bounded
from cutegen.verify.reference import float64
from tests.run.against_float64 import check, expected
from tests.run.scales import CASES, FAST

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.dsl
Compile = Callable[[GemmSpec], Kernel]


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in FAST else pytest.mark.slow) for x in CASES])
def test_right_against_float64_as_vectors_and_as_single_elements(compiled: Compile, name: str) -> None:
    """One kernel takes a vector, an element of no extent, an element in a vector, and a vector of stride 0."""
    kernel = compiled(CASES[name])
    for m, n, k in [(1, 1, 1), (9, 136, 200), (70, 41, 33)]:
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n)
        extras = random_extras(kernel.contract, m, n, seed=m)
        check(kernel, a, b, out, extras)
    scales = {name: value for name, value in extras.items() if name.startswith("scale")}
    ones = {name: value[:1] if name == "scale_n" else value[:1].reshape(()) for name, value in scales.items()}
    check(kernel, a, b, out, extras | ones)
    check(kernel, a, b, out, extras | {x: np.broadcast_to(value[:1], value.shape) for x, value in scales.items()})


def test_against_numpy_alone(compiled: Compile) -> None:
    """The reference itself is held against one that shares no line with it."""
    kernel = compiled(CASES["sm80_column_major"])
    a, b, _ = random_operands(kernel.contract, 70, 41, 33, seed=1)
    extras = random_extras(kernel.contract, 70, 41, seed=1)
    rows, columns, along_n, along_m, beside = (
        float64(extras[name]) for name in ("scale_m", "scale_n", "bias_n", "bias_m", "residual")
    )
    exact = np.diag(rows) @ float64(a) @ float64(b) @ np.diag(columns) + along_n + along_m.reshape(-1, 1) + beside
    bounds = expected(kernel, a, b, extras).result
    assert compare(kernel(a, b, **extras), Bounded(exact, bounds.error), dtype="f16").ok


def test_each_matrix_of_a_batch_has_its_own_scales(compiled: Compile) -> None:
    kernel = compiled(CASES["sm80_column_major"])
    a, b, out = random_operands(kernel.contract, 33, 40, 24, seed=2, batch=3)
    extras = random_extras(kernel.contract, 33, 40, seed=2, batch=3)
    check(kernel, a, b, out, extras)
    check(kernel, a, b, out, {**extras, "scale_m": extras["scale_m"][1], "scale_n": extras["scale_n"][:, :1]})
    assert not np.array_equal(out[0], out[1])


def test_zeros_infinities_and_nan_are_what_the_formula_says(compiled: Compile) -> None:
    """No factor is skipped: 0 times infinity is NaN, and NaN in one row stays in that row."""
    kernel = compiled(CASES["sm90_swapped"])
    a, b, out = random_operands(kernel.contract, 9, 72, 40, seed=3)
    extras = random_extras(kernel.contract, 9, 72, seed=3)
    a[4] = np.inf
    extras["scale_m"][:5] = 0, -0.0, np.nan, np.inf, 0
    kernel(a, b, out=out, **extras)
    with np.errstate(invalid="ignore"):
        product = float64(a) @ float64(b)
        biases = float64(extras["bias_n"], "bf16") + float64(extras["bias_m"], "bf16")[:, None]
        exact = float64(extras["scale_m"])[:, None] * product + biases
        bounds = expected(kernel, a, b, extras).result
    found, finite = float64(out, "bf16"), np.isfinite(exact)
    assert np.isnan(exact[[2, 4]]).all()
    assert np.isinf(exact[3]).all()
    assert np.array_equal(found[~finite], exact[~finite], equal_nan=True)
    assert compare(out, Bounded(exact, bounds.error), dtype="bf16").ok


def test_a_scale_that_lies_on_its_own_is_read_on_the_spot(compiled: Compile) -> None:
    """The executor refuses what a kernel reads past an operand's memory: of one element that is all but the first."""
    kernel = compiled(CASES["sm90_e4m3"])
    a, b, out = random_operands(kernel.contract, 70, 80, 160, seed=4)
    extras = random_extras(kernel.contract, 70, 80, seed=4)
    one = {"scale_m": np.array(0.5, np.float32), "scale_n": np.array([-2.0], np.float32)}
    report = kernel.execute(a, b, out=out, **{**extras, **one})
    assert report.violations == ()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a number": ({"scale_m": 0.5}, "operand scale_m: found a float; expected a torch tensor"),
    "a column": (
        {"scale_m": torch.ones(16, 1)},
        "found shape (16, 1); expected (16,), (M) of the result; or one element for all; `scale_m.reshape(-1)`",
    ),
    "a row": ({"scale_n": torch.ones(1, 24)}, "`scale_n.reshape(-1)`"),
    "one element of two extents": ({"scale_n": torch.ones(1, 1)}, "`scale_n.reshape(-1)`"),
    "along the other mode": ({"scale_m": torch.ones(24)}, "found shape (24,); expected (16,), (M) of the result"),
    "three extents": ({"scale_m": torch.ones(1, 1, 16)}, "expected 1, (M), or 2 with a batch first; or one elem"),
    "every second": (
        {"scale_n": torch.ones(48)[::2]},
        "found stride 2; expected contiguous elements, stride 1; or o",
    ),
    "of another type": ({"scale_n": torch.ones(24).half()}, "found dtype f16; expected f32; `scale_n.to(torch.float3"),
    "elsewhere": ({"scale_m": torch.ones(16, device="meta")}, "found device meta; expected a CUDA device, or the CPU"),
    "that requires grad": ({"scale_m": torch.ones(16).requires_grad_()}, "a kernel call is not recorded by autograd"),
    "missing": ({"scale_m": None}, "operand scale_m: found none"),
    "one bias of two": ({"bias_n": None, "bias": torch.ones(24)}, "operand bias: found one; expected none"),
    "bias of one element": ({"bias_n": torch.ones(1).bfloat16()}, "found shape (1,); expected (24,), (N) of the res"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_found_and_expected(compiled: Compile, case: str) -> None:
    kernel, (changed, message) = compiled(CASES["sm90_swapped"]), REFUSED[case]
    if "scale_n" in changed:
        kernel = compiled(CASES["sm90_e4m3"])
    float8 = kernel.contract.tensor("a").dtype == "e4m3"
    a, b = torch.zeros(16, 32).half(), torch.zeros(24, 32).half().t()
    extras = {
        "scale_m": torch.ones(16),
        "bias_n": torch.ones(24).to(torch.float32 if float8 else torch.bfloat16),
        "bias_m": torch.ones(16).to(torch.float32 if float8 else torch.bfloat16),
    }
    if float8:
        a, b = a.to(torch.float8_e4m3fn), b.t().to(torch.float8_e4m3fn).t()
        extras |= {"scale_n": torch.ones(24), "residual": torch.zeros(16, 24).bfloat16()}
    with pytest.raises(OperandError) as caught:
        kernel(a, b, **{**extras, **changed})
    assert message in str(caught.value)
