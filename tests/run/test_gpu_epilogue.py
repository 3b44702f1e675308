"""Fused epilogues and batches on a real GPU, against float64."""

from __future__ import annotations

from functools import cache

import pytest

import cutegen
from cutegen.run import Kernel
from cutegen.spec import load_spec
from tests.run.against_float64 import check
from tests.run.epilogues import CASES, spec
from tests.run.on_gpu import ON_A_GPU, made

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU
SHIPPED = ("cute_tutorial_nt", "sm80_hgemm_bias_gelu")
EDGES = [(1, 1, 1), (7, 127, 33), (127, 7, 8), (128, 256, 64), (257, 1000, 0), (1000, 257, 1000), (512, 2048, 4096)]


@cache
def compiled(name: str) -> Kernel:
    return cutegen.compile(CASES[name] if name in CASES else load_spec(name))


@pytest.mark.parametrize("name", [*CASES, *SHIPPED])
@pytest.mark.parametrize(("m", "n", "k"), EDGES)
def test_right_against_float64(name: str, m: int, n: int, k: int) -> None:
    kernel = compiled(name)
    check(kernel, *made(kernel, m, n, k))


@pytest.mark.parametrize("name", ["blas", "bias_aux_gelu", "bias_m_residual_silu", *SHIPPED])
@pytest.mark.parametrize("batch", [1, 5, 300])
def test_batches(name: str, batch: int) -> None:
    kernel = compiled(name)
    a, b, out, extras = made(kernel, 65, 72, 40, batch)
    check(kernel, a, b, out, extras)
    check(kernel, a[0], b, out, extras)
    check(
        kernel, a, b[0], out, {**extras, **{name: x[0] for name, x in extras.items() if name in ("bias", "residual")}}
    )


def test_a_batch_that_spans_more_than_2_to_the_32_bytes() -> None:
    """The last of the batch lies 8 GiB behind the first."""
    kernel = compiled("blas")
    buffer = torch.empty(2**32 + 64 * 64, dtype=torch.float16, device="cuda")
    a = buffer.as_strided((2, 64, 64), (2**32, 64, 1))
    _, b, out, extras = made(kernel, 64, 64, 64, 2)
    a.copy_(torch.randn(2, 64, 64, device="cuda"))
    check(kernel, a, b, out, extras)


def test_rows_that_lie_more_than_2_to_the_31_elements_apart() -> None:
    """A's, the result's and C's as it was: 4 GiB from one row to the next."""
    kernel = compiled("blas")
    pitch = 2**31 + 16
    wide = [torch.empty(pitch + 64, dtype=torch.float16, device="cuda").as_strided((2, 64), (pitch, 1)) for _ in "aoc"]
    _, b, _, extras = made(kernel, 2, 64, 64)
    for matrix in wide:
        matrix.copy_(torch.randn(2, 64, device="cuda"))
    check(kernel, wide[0], b, wide[1], {**extras, "c": wide[2]})


@pytest.mark.parametrize("name", ["gelu_tanh", "gelu_erf", "silu"])
@pytest.mark.parametrize("result", ["f16", "bf16", "f32"])
def test_a_function_of_every_finite_f16(name: str, result: str) -> None:
    """A times 1, so that sums are A's elements: what the special function unit makes of all of them."""
    kernel = cutegen.compile(spec(name, name, c=result))
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32, device="cuda").to(torch.int16).view(torch.float16)
    a = every[every.isfinite()].view(-1, 64)
    one = torch.eye(64, dtype=torch.float16, device="cuda").T
    types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    check(kernel, a, one, torch.full(a.shape, torch.nan, dtype=types[result], device="cuda"), {})


def test_in_place_and_beta_zero() -> None:
    kernel = compiled("blas")
    a, b, out, extras = made(kernel, 300, 200, 100)
    kernel(a, b, out=out, **extras)
    kernel(a, b, out=extras["c"], **extras)
    assert torch.equal(out, extras["c"])
    extras["c"].fill_(torch.nan)
    check(kernel, a, b, out, {**extras, "beta": 0.0})


def test_scalars_of_a_captured_call_are_kept() -> None:
    kernel = compiled("blas")
    a, b, out, extras = made(kernel, 64, 64, 64)
    kernel(a, b, out=out, **extras)
    expected = out.clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out, **extras)
    kernel(a, b, out=out, **{**extras, "alpha": 100.0})
    graph.replay()
    assert torch.equal(out, expected)
