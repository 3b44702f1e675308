"""Fused epilogues of compiled kernels, on the CPU executor, against float64. Needs no GPU."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutegen.analysis.sass import main_loop
from cutegen.build.cubin import disassemble
from cutegen.errors import OperandError
from cutegen.plan import plan
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, load_spec
from cutegen.verify import compare, random_extras, random_operands
from cutegen.verify.counts import count_launch
from cutegen.verify.error_bounds import Bounded
from cutegen.verify.reference import bf16_bits, bf16_values, float64
from tests.run.against_float64 import check, expected
from tests.run.epilogues import CASES, spec

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.dsl
Compile = Callable[[GemmSpec], Kernel]
FAST = ("blas", "bias_aux_gelu", "bias_m_residual_silu")


def names(chosen: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", names(FAST))
def test_right_against_float64_at_every_edge(compiled: Compile, name: str) -> None:
    kernel = compiled(CASES[name])
    for m, n, k in [(1, 1, 1), (7, 127, 33), (127, 7, 8), (64, 32, 64), (65, 33, 0)]:
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n)
        check(kernel, a, b, out, random_extras(kernel.contract, m, n, seed=m + n))


def test_against_pytorchs_own_functions(compiled: Compile) -> None:
    """The reference itself is held against an independent one."""
    kernel = compiled(CASES["bias_aux_gelu"])
    a, b, _ = random_operands(kernel.contract, 70, 40, 50, seed=1, framework="torch")
    extras = random_extras(kernel.contract, 70, 40, seed=1, framework="torch")
    out = kernel(a, b, **extras)
    before = a.double() @ b.double() + extras["bias"].double()
    after, bounds = torch.nn.functional.gelu(before, approximate="tanh"), expected(kernel, a, b, extras)
    assert compare(extras["aux"], Bounded(before, bounds.aux.error), dtype="f32").ok
    assert compare(out, Bounded(after, bounds.result.error), dtype="f16").ok


def test_nothing_beside_aux_is_written(compiled: Compile) -> None:
    kernel = compiled(CASES["bias_aux_gelu"])  # aux is f32 and M-major
    a, b, out = random_operands(kernel.contract, 13, 21, 40, seed=2)
    extras = random_extras(kernel.contract, 13, 21, seed=2)
    whole = np.lib.stride_tricks.as_strided(extras["aux"].T, (21, 16), (64, 4))
    check(kernel, a, b, out, extras)
    assert np.isnan(whole[:, 13:]).all()


@pytest.mark.parametrize("batched", ["ab", "a", "b"])
def test_batches_and_operands_that_all_of_a_batch_uses(compiled: Compile, batched: str) -> None:
    kernel = compiled(CASES["bias_m_residual_silu"])
    m, n, k, batch = 33, 40, 24, 3
    a, b, out = random_operands(kernel.contract, m, n, k, seed=3, batch=batch)
    extras = random_extras(kernel.contract, m, n, seed=3, batch=batch)
    if "a" not in batched:
        a = a[1]
    if "b" not in batched:
        b, extras = b[2], {**extras, "bias": extras["bias"][0], "residual": extras["residual"][1]}
    check(kernel, a, b, out, extras)
    fresh = kernel(a, b, **extras)
    assert fresh.shape == (batch, m, n)
    assert np.array_equal(fresh, out)


def test_strides_of_a_batch_are_the_tensors_own(compiled: Compile) -> None:
    """Views: a batch expanded from one matrix, a batch that lies between the rows, one that has a gap."""
    kernel = compiled(CASES["blas"])
    m, n, k, batch = 16, 24, 32, 2
    generator = torch.Generator().manual_seed(4)
    a = torch.randn(1, m, k, generator=generator).half().expand(batch, m, k)
    b = torch.randn(n, batch, k, generator=generator).half().permute(1, 2, 0)
    c = torch.randn(batch + 3, m, n, generator=generator).half()[::3][:batch]
    out = torch.full((m, batch, n), torch.nan).half().transpose(0, 1)
    check(kernel, a, b, out, {"c": c, "alpha": 0.5, "beta": 2.0})


def test_the_result_may_be_written_over_c(compiled: Compile) -> None:
    kernel = compiled(CASES["blas"])
    a, b, out = random_operands(kernel.contract, 70, 40, 24, seed=5)
    extras = random_extras(kernel.contract, 70, 40, seed=5)
    separate = kernel(a, b, out=out, **extras).copy()
    assert kernel(a, b, out=extras["c"], **extras) is extras["c"]
    assert np.array_equal(extras["c"], separate)


@pytest.mark.parametrize("name", ["blas", pytest.param("blas_column_major", marks=pytest.mark.slow)])
def test_c_is_not_read_when_beta_is_zero(compiled: Compile, name: str) -> None:
    kernel = compiled(CASES[name])
    a, b, out = random_operands(kernel.contract, 64, 40, 24, seed=6)
    c = random_extras(kernel.contract, 64, 40, seed=6)["c"]
    c[...] = np.nan
    check(kernel, a, b, out, {"c": c, "alpha": 0.25, "beta": 0.0})
    assert np.isfinite(out).all()


@pytest.mark.parametrize(
    ("alpha", "beta"), [(math.inf, 1.0), (0.0, 1.0), (-1.5, math.nan), (1, 2), (np.float32(0.1), 0.1)]
)
def test_scalars_as_float32_holds_them(compiled: Compile, alpha: float, beta: float) -> None:
    kernel = compiled(CASES["blas"])
    a, b, out = random_operands(kernel.contract, 8, 8, 8, seed=7)
    c = random_extras(kernel.contract, 8, 8, seed=7)["c"]
    kernel(a, b, out=out, c=c, alpha=alpha, beta=beta)
    with np.errstate(invalid="ignore"):
        exact = float(np.float32(alpha)) * (float64(a) @ float64(b)) + float(np.float32(beta)) * float64(c)
    if not np.isfinite(exact).all():
        assert np.array_equal(float64(out), exact, equal_nan=True)
    bounds = expected(kernel, a, b, {"c": c, "alpha": alpha, "beta": beta}).result
    assert compare(out, Bounded(exact, bounds.error), dtype="f16").ok


def test_relu_keeps_nan_and_rounds_once(compiled: Compile) -> None:
    kernel = compiled(CASES["relu"])
    a, b = np.zeros((8, 8), np.float16), np.asfortranarray(np.zeros((8, 8), np.float16))
    a[0, 0], b[0, :3] = 1, (np.nan, -1, 2)
    found = kernel(a, b)
    assert np.isnan(found[0, 0])
    assert (found[0, 1], found[0, 2]) == (0, 2)


@pytest.mark.parametrize("function", ["max", "min"])
def test_a_nan_of_the_first_argument_stays_one(function: str, compiled: Compile) -> None:
    """As layouts/README.md says: one of the second argument alone is ignored."""
    kernel = compiled(spec(f"{function}_of_two", expression=f"x -> {function}(x, residual)"))
    a, b = np.zeros((8, 8), np.float16), np.asfortranarray(np.zeros((8, 8), np.float16))
    a[0, 0], b[0, :4] = 1, (np.nan, -1, 2, np.nan)
    residual = np.zeros((8, 8), np.float16)
    residual[0, 1], residual[0, 3] = np.nan, np.nan
    found = kernel(a, b, residual=residual)
    assert np.isnan(found[0, [0, 3]]).all()
    assert (found[0, 1], found[0, 2]) == (-1, getattr(builtins, function)(2, 0))


def test_one_rounding_at_the_end(compiled: Compile) -> None:
    """257 - 250 is 7; bf16 has 8 bits, so 257 rounded on the way would be 256, and the result 6."""
    kernel = compiled(spec("once", "alpha", "beta", dtype="bf16"))
    a, b = np.zeros((8, 8), np.uint16), np.zeros((8, 8), np.uint16, order="F")
    a[:, 0], b[0, :] = bf16_bits(np.array([256.0, 1.0]))
    c = bf16_bits(np.full((8, 8), 250.0))
    assert (bf16_values(kernel(a, b, c=c, alpha=257 / 256, beta=-1.0)) == 7).all()


@pytest.mark.parametrize("name", names(("blas", "bf16_gelu_erf_staged_column")))
def test_traffic_is_what_the_plan_says(compiled: Compile, name: str) -> None:
    kernel, planned = compiled(CASES[name]), plan(CASES[name], "sm_80")
    a, b, out = random_operands(kernel.contract, 128, 64, 64, seed=8)
    extras = random_extras(kernel.contract, 128, 64, seed=8)
    report = kernel.execute(a, b, out=out, **extras)
    counts = count_launch(planned, kernel.call_size(a, b, out, **extras), report)
    assert counts.differing() == {}
    assert counts.sectors["epilogue"].predicted is not None


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "cute_tutorial_nt", "sm80_hgemm_bias_gelu"])
def test_the_main_loop_does_not_spill(compiled: Compile, name: str) -> None:
    """What only the epilogue needs may wait on the stack while the main loop has all registers."""
    artifact = compiled(load_spec(name)).artifact
    loop = main_loop(disassemble(artifact.cubin), artifact.manifest.entry)
    assert (loop.count("STL"), loop.count("LDL")) == (0, 0)
    assert artifact.manifest.warnings == ()


def test_what_was_not_asked_for_is_refused(compiled: Compile) -> None:
    kernel = compiled(CASES["relu"])
    a, b, out = random_operands(kernel.contract, 8, 8, 8, seed=10)
    with pytest.raises(
        OperandError, match="operand bias: found one; expected none: this kernel's epilogue takes no op"
    ):
        kernel(a, b, out=out, bias=np.zeros(8, np.float16))
