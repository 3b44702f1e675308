"""Kernels of every element type on the CPU: their PTX executed, against float64 and against what is exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cutegen.errors import OperandError
from cutegen.run import Kernel, float8_bits
from cutegen.run.call.bits import float8_values
from cutegen.verify import random_operands
from tests.run.against_float64 import check, made
from tests.run.dtype_cases import ARCHES, CASES, EDGES, FAST, SHIPPED

pytestmark = pytest.mark.dsl
Compiled = Callable[[str], Kernel]
by_case = pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in SHIPPED],
)


@pytest.fixture(scope="module")
def named(compiled: Callable[..., Kernel]) -> Compiled:
    return lambda name: compiled(CASES[name], ARCHES[name])


@by_case
def test_right_against_float64(name: str, named: Compiled) -> None:
    for extents in EDGES:
        check(named(name), *made(named(name), *extents))


@by_case
def test_the_emitted_instructions_are_the_predicted_ones(name: str, named: Compiled) -> None:
    manifest = named(name).artifact.manifest
    assert dict(manifest.instructions.emitted) == dict(manifest.instructions.predicted)


def tf32(values: np.ndarray, *, nearest: bool) -> np.ndarray:
    """What is left of float32 in 19 bits; the nearest, ties away from zero, as cvt.rna has it."""
    bits = values.view(np.uint32) + np.uint32(0x1000 if nearest else 0)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "nearest"), [("tf32 nearest", True), pytest.param("tf32", False, marks=pytest.mark.slow)]
)
def test_tf32_takes_the_bits_that_the_plan_says(name: str, nearest: bool, named: Compiled) -> None:
    """Held against the operands as they are after rounding, the sums are as good as float32's."""
    kernel = named(name)
    a, b, out = random_operands(kernel.contract, 40, 24, 96, seed=11)
    kernel(a, b, out=out)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    right, other = (tf32(a, nearest=how) @ tf32(b, nearest=how) for how in (nearest, not nearest))
    assert (np.abs(out - right) <= 2.0**-20 * size).all()
    assert not (np.abs(out - other) <= 2.0**-20 * size).all()


@pytest.mark.parametrize(
    "name", ["u8 and s8", *(pytest.param(x, marks=pytest.mark.slow) for x in ("s8", "s8 across K", "s8 of 16", "u8"))]
)
def test_integers_are_exact_over_their_whole_range(name: str, named: Compiled) -> None:
    kernel = named(name)
    a, b, out = random_operands(kernel.contract, 70, 70, 300, seed=0)
    generator = np.random.default_rng(5)
    for x in (a, b):
        ends = np.iinfo(x.dtype)
        x[...] = generator.integers(ends.min, ends.max, x.shape, dtype=x.dtype, endpoint=True)
    a[0], b[:, 0] = (255 if x.dtype == np.uint8 else -128 for x in (a, b))  # the largest product
    kernel(a, b, out=out)
    np.testing.assert_array_equal(out, a.astype(np.int64) @ b.astype(np.int64))


def test_a_quantized_result_is_rounded_to_even_and_clamped(named: Compiled) -> None:
    """A scale of 1/2 makes ties of odd sums; relu is before the rounding, the bias moves it to the ends."""
    kernel = named("s8 scaled")
    a, b = np.zeros((8, 16), np.int8), np.zeros((16, 48), np.int8)
    a[:, 0] = 1
    b[0] = np.arange(-16, 32)
    bias = np.zeros(48, np.float32)
    bias[-1], bias[0] = 500.0, np.nan
    out = kernel(a, np.asfortranarray(b), alpha=0.5, bias=bias)
    expected = np.rint(np.maximum(0.5 * np.arange(-16, 32), 0))
    expected[-1], expected[0] = 127, 0
    np.testing.assert_array_equal(out, np.tile(expected, (8, 1)))


def test_an_unsigned_result_is_clamped_at_both_ends(named: Compiled) -> None:
    kernel = named("s8 to u8")
    a, b = np.zeros((8, 16), np.int8), np.zeros((16, 64), np.int8)
    a[:, 0], b[0] = 8, np.arange(-8, 56)
    out = kernel(a, np.asfortranarray(b))
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(out, np.tile((8 * np.arange(-8, 56)).clip(0, 255), (8, 1)))


def test_an_operand_of_the_other_sign_is_refused(named: Compiled) -> None:
    kernel = named("u8 and s8")
    a, b, _ = random_operands(kernel.contract, 24, 16, 48, seed=2)
    with pytest.raises(OperandError, match=r"a: found dtype s8; expected u8; `a.astype\(np.uint8\)`"):
        kernel(a.view(np.int8), b)


@pytest.mark.slow
def test_8_bit_floats_stop_at_the_largest(named: Compiled) -> None:
    kernel = named("e4m3 to e4m3")
    a, b = (float8_bits(np.full(shape, 16.0), "e4m3") for shape in ((8, 16), (16, 16)))
    residual = float8_bits(np.full((8, 16), -448.0), "e4m3")
    a[1, 0] = 0x7F  # NaN
    out = kernel(a, np.asfortranarray(b), alpha=1.0, residual=residual)
    values = float8_values(out, "e4m3")
    assert (values[0] == 448.0).all()
    assert np.isnan(values[1]).all()


def test_bits_in_uint8_are_taken_as_what_the_kernel_multiplies(named: Compiled) -> None:
    """A is e4m3 and B e5m2, both of them uint8 in NumPy; torch has the types themselves."""
    torch = pytest.importorskip("torch")
    kernel = named("e4m3 and e5m2")
    a, b, out = random_operands(kernel.contract, 24, 16, 48, seed=2, framework="torch")
    assert (a.dtype, b.dtype, out.dtype) == (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16)
    kernel(a, b, out=out)
    again = kernel(a.view(torch.uint8).numpy(), b.view(torch.uint8).numpy())
    assert again.dtype == np.uint16
    np.testing.assert_array_equal(again, out.view(torch.uint16).numpy())


@pytest.mark.parametrize(("value", "other"), [(127, 127), (-128, 127), (64, 64)])
def test_s32_ends_at_its_last_value_which_no_float32_is(value: int, other: int, named: Compiled) -> None:
    """Around both ends of s32, beside the product in Python's integers; one is 2^31, which a float32 is."""
    kernel = named("s8 scaled to s32")
    a, b = np.full((16, 64), value, np.int8), np.full((64, 16), other, np.int8, order="F")
    for alpha in (2048, 2079, 2080, 2100, 1 << 13, 1 << 20, 1 << 40):
        out, aux, c = (np.full((16, 16), 7, np.int32) for _ in range(3))
        kernel(a, b, out=out, aux=aux, c=c, alpha=alpha, beta=0.0)
        wanted = min(max(value * other * 64 * alpha, -(2**31)), 2**31 - 1)
        end = wanted in (-(2**31), 2**31 - 1)
        assert abs(int(out[0, 0]) - wanted) <= (0 if end else 128), alpha
        assert (out == out[0, 0]).all()
        assert (aux == out).all()
