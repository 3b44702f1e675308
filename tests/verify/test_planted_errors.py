"""Mistakes planted in right results: the comparison finds each, or the test says what hides it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cutegen.run.call.bits import bf16_bits, bf16_values, float8_bits, float8_values
from cutegen.spec.steps import chain_of
from cutegen.verify import Bounded, Reference, compare, float64_reference
from cutegen.verify.error_bounds import run_chain
from tests.seeding import new_generator

UNIT = 2.0**-24
BITS = {"f16": 11, "bf16": 8, "f32": 24, "e4m3": 4}
"""Significant bits of each type of C."""


@pytest.fixture
def generator() -> np.random.Generator:
    return new_generator()


def operands(generator: np.random.Generator, k: int, m: int = 64, n: int = 48) -> tuple[Any, Any]:
    return tuple(generator.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))


def step(values: Any, dtype: str) -> Any:
    """The distance from each value to the next one away from zero, of normal numbers of the type."""
    return np.exp2(np.floor(np.log2(np.abs(values))) - (BITS[dtype] - 1))


def stored(values: Any, dtype: str) -> Any:
    """Values that the type has, as an array of it."""
    if dtype == "bf16":
        return bf16_bits(values)
    return float8_bits(values, dtype) if dtype == "e4m3" else values.astype({"f16": "f2", "f32": "f4"}[dtype])


def rounded(values: Any, dtype: str) -> Any:
    """Nearest values as float64, by arithmetic on the step alone: no kernel's and no comparison's conversion."""
    return np.rint(values / step(values, dtype)) * step(values, dtype)


def summed_in_f32(a: Any, b: Any) -> Any:
    """Products added one after the other in float32, as a chain of multiply-adds does."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        total = (total + a[:, i : i + 1].astype(np.float64) * b[i].astype(np.float64)).astype(np.float32)
    return total.astype(np.float64)


@pytest.mark.parametrize("k", [1, 8, 100, 4096])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "e4m3"])
def test_what_is_right_passes(generator: np.random.Generator, dtype: str, k: int) -> None:
    a, b = operands(generator, k)
    assert compare(stored(summed_in_f32(a, b), dtype), float64_reference(a, b), dtype=dtype).ok


@pytest.mark.parametrize("k", [16, 4096])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3"])
def test_truncation_instead_of_rounding_is_found(generator: np.random.Generator, dtype: str, k: int) -> None:
    """Half of all values lie nearer to the one away from zero; only a sum whose error reaches a middle hides it."""
    a, b = operands(generator, k)
    sums = summed_in_f32(a, b)
    cut = np.trunc(sums / step(sums, dtype)) * step(sums, dtype)
    share = compare(stored(cut, dtype), float64_reference(a, b), dtype=dtype).wrong / cut.size
    assert 0.2 < share < 0.6


@pytest.mark.parametrize("away", [1, -1])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_one_step_off_everywhere_is_found_wherever_a_step_is_larger_than_the_sums_error(
    generator: np.random.Generator, dtype: str, away: int
) -> None:
    a, b = operands(generator, 4096)
    right = rounded(summed_in_f32(a, b), dtype)
    wrong = right + away * np.sign(right) * step(right, dtype)
    assert compare(stored(right, dtype), float64_reference(a, b), dtype=dtype).ok
    assert compare(stored(wrong, dtype), float64_reference(a, b), dtype=dtype).wrong > 0.6 * wrong.size


@pytest.mark.parametrize(("k", "share"), [(1, 0.99), (8, 0.3)])
def test_8_steps_of_f32_are_found_where_the_sum_is_short(generator: np.random.Generator, k: int, share: float) -> None:
    a, b = operands(generator, k)
    sums = summed_in_f32(a, b)
    wrong = (sums + 8 * step(sums, "f32")).astype(np.float32)
    assert compare(wrong, float64_reference(a, b), dtype="f32").wrong > share * wrong.size


def test_8_steps_of_f32_are_what_a_tensor_core_may_be_off_after_4096_products(generator: np.random.Generator) -> None:
    """One that cuts each of 256 sums of 16 to 24 bits is further off itself, on average and in one direction."""
    a, b = operands(generator, 4096)
    total = np.zeros((64, 48))
    for start in range(0, 4096, 16):
        total += a[:, start : start + 16].astype(np.float64) @ b[start : start + 16].astype(np.float64)
        total = np.trunc(total / step(total, "f32")) * step(total, "f32")
    reference = float64_reference(a, b)
    assert compare(total.astype(np.float32), reference, dtype="f32").ok
    off = (np.sign(reference.product) * (total - reference.product)).mean() / step(reference.product, "f32").mean()
    assert off < -8
    wrong = (reference.product - 8 * step(reference.product, "f32")).astype(np.float32)
    assert compare(wrong, reference, dtype="f32").ok


@pytest.mark.parametrize(("dtype", "share"), [("f32", 1.0), ("f16", 0.95), ("bf16", 0.75)])
def test_a_product_that_is_missing_among_4096_is_found(
    generator: np.random.Generator, dtype: str, share: float
) -> None:
    """Its factors are 1/4 at least: a product of nearly nothing is missing within the error of the sum."""
    a, b = operands(generator, 4096)
    missing = int(generator.integers(4096))
    for factors in (a[:, missing], b[missing]):
        factors += np.copysign(np.float16(0.25), factors)
    short = summed_in_f32(np.delete(a, missing, 1), np.delete(b, missing, 0))
    assert compare(stored(short, dtype), float64_reference(a, b), dtype=dtype).wrong >= share * short.size


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_product_that_is_missing_in_one_element_is_found(generator: np.random.Generator, dtype: str) -> None:
    a, b = operands(generator, 4096)
    result, row, column = summed_in_f32(a, b), *generator.integers(0, 48, 2)
    products = a[row].astype(np.float64) * b[:, column]
    result[row, column] -= np.sort(products)[np.argmin(abs(np.sort(products) - 0.7))]  # one of usual size
    found = compare(stored(result, dtype), float64_reference(a, b), dtype=dtype)
    assert found.wrong == 1
    assert found.first_wrong is not None
    assert (found.first_wrong.row, found.first_wrong.column) == (row, column)


@pytest.mark.parametrize(("accumulator", "unit"), [("f32", UNIT), ("f16", 2.0**-11)])
def test_sums_have_twice_their_usual_error_and_no_more(accumulator: str, unit: float) -> None:
    """K = 4096: sqrt(K) = 64 roundings that do not know of each other, and K / 8 = 512 cuts to f32."""
    scale = np.full((2, 3), 8.0)
    reference = Reference(np.full((2, 3), 1.0), scale, 4096)
    usual = (64 * unit + 512 * UNIT) * scale
    assert compare(reference.product + 1.9 * usual, reference, dtype="f32", accumulator=accumulator).ok
    for factor in (2.2, -2.2, 3):
        found = compare(reference.product + factor * usual, reference, dtype="f32", accumulator=accumulator)
        assert found.wrong == 6


@pytest.mark.parametrize(("operands", "extra"), [("e4m3", 2 * 2.0**-13 * (128 + 5 * 128**0.5)), ("tf32", 2.0**-9)])
def test_what_tensor_cores_leave_out_has_its_own_room_and_no_more(operands: str, extra: float) -> None:
    """Of 8-bit floats 13 bits behind the point in each of K / 32 = 128 sums; of tf32 a 2**-9 of what the sum is."""
    reference = Reference(np.zeros((1, 1)), np.full((1, 1), 8.0), 4096, operands)
    usual = (2 * (64 + 512) * UNIT + extra) * 8.0
    assert compare(reference.product + 0.99 * usual, reference, dtype="f32").ok
    assert not compare(reference.product + 1.01 * usual, reference, dtype="f32").ok


@pytest.mark.parametrize("text", ["x -> exp(x)", "x -> tanh(x)", "x -> erf(x)"])
def test_a_function_may_be_off_by_8_units_and_no_more(text: str) -> None:
    x = np.linspace(0.1, 4, 50)
    found = run_chain(Bounded(x, 0 * x), chain_of([text]), {}).result
    units = found.error / abs(found.value) / UNIT
    assert ((units > 7.9) & (units < 8.1)).all()


def test_a_sigmoid_may_be_off_by_2_units_of_its_argument_besides() -> None:
    x = np.linspace(-6, 6, 51)
    found = run_chain(Bounded(x, 0 * x), chain_of(["x -> sigmoid(x)"]), {}).result
    of_argument = np.minimum(2 * abs(x) / 4, 2 * abs(x) * found.value)
    units = found.error / UNIT - 8 * found.value
    assert np.allclose(units, of_argument, atol=1e-3)


@pytest.mark.parametrize("text", ["x -> gelu_erf(x)", "x -> gelu_tanh(x)"])
def test_a_gelu_may_be_off_by_3e_7_of_its_argument_and_no_more(text: str) -> None:
    """Also where it is nearly 0: its polynomial is good to an absolute error."""
    x = np.array([-20.0, -6.5, -3.0, -0.5, 0.5, 3.0, 6.5])
    found = run_chain(Bounded(x, 0 * x), chain_of([text]), {}).result
    assert np.allclose(found.error, 3e-7 * np.minimum(abs(x), 6.5) + UNIT * abs(found.value), rtol=1e-3)
    moved = run_chain(Bounded(x, 0 * x + 1e-4), chain_of([text]), {}).result
    assert np.allclose(moved.error - found.error, 1.13e-4, rtol=1e-3)


def test_a_value_that_is_rounded_exactly_has_no_room() -> None:
    """Half a step is a tie, which goes to the even value; the other one does not pass."""
    middle = Bounded(np.array([[1 + 2.0**-11, 1 + 3 * 2.0**-11]]), np.zeros((1, 2)))
    even = np.array([[1, 1 + 2.0**-9]], np.float16)
    assert compare(even, middle, dtype="f16").ok
    assert compare(np.array([[1 + 2.0**-10] * 2], np.float16), middle, dtype="f16").wrong == 2
    assert compare(even, Bounded(middle.value, np.full((1, 2), 1e-9)), dtype="f16").ok


def test_bf16_of_values_beyond_its_range_is_infinite() -> None:
    huge = Bounded(np.array([[1e60, -1e60, 3.38e38]]), np.array([[1e50, 1e50, 1e30]]))
    assert compare(np.array([[np.inf, -np.inf, 3.38e38]], np.float32), huge, dtype="f32").ok
    found = bf16_values(bf16_bits(np.array([[np.inf, -np.inf, 3.38e38]], np.float32)))
    assert compare(bf16_bits(found), huge, dtype="bf16").ok


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_what_overflows_float64_is_that_infinity_though_its_bound_is_no_number(dtype: str) -> None:
    """exp(3000), whose bound is the difference of two infinities, beside a value that has one."""
    beyond = Bounded(np.array([[math.inf, -math.inf, 2.0]]), np.array([[math.nan, math.nan, 1e-3]]))
    encode = {"f16": np.float16, "bf16": bf16_bits, "f32": np.float32}[dtype]
    right = compare(encode(np.array([[math.inf, -math.inf, 2.0]], np.float32)), beyond, dtype=dtype)
    assert (right.ok, right.rel_error, right.max_abs_error) == (True, 0.0, 0.0)
    for wrong in ([-math.inf, -math.inf, 2.0], [math.inf, 7.0, 2.0], [math.nan, -math.inf, 2.0], [math.inf] * 3):
        assert compare(encode(np.array([wrong], np.float32)), beyond, dtype=dtype).wrong >= 1, wrong


def test_sums_that_reach_the_end_of_s32_are_its_last_value_and_not_one_that_f32_has() -> None:
    """2147483520 is the largest float32 below 2**31: it passes only where the sum may lie there."""
    beyond = Bounded(np.array([[4.1e9, -4.1e9]]), np.full((1, 2), 1000.0))
    assert compare(np.array([[2**31 - 1, -(2**31)]], np.int32), beyond, dtype="s32").ok
    assert compare(np.array([[2147483520, -2147483520]], np.int32), beyond, dtype="s32").wrong == 2
    near = Bounded(np.array([[2.0**31 - 300, 2.0**31 - 300]]), np.full((1, 2), 400.0))
    assert compare(np.array([[2147483520, 2**31 - 1]], np.int32), near, dtype="s32").ok


def test_8_bit_floats_clamp_at_their_largest_value() -> None:
    wanted = Bounded(np.array([[1000.0, -460.0, 440.0]]), np.array([[0.0, 20.0, 20.0]]))
    assert compare(float8_bits(np.array([[448.0, -448.0, 448.0]]), "e4m3"), wanted, dtype="e4m3").ok
    assert float8_values(np.array([0x7E], np.uint8), "e4m3")[0] == 448
    assert compare(float8_bits(np.array([[416.0, -416.0, 416.0]]), "e4m3"), wanted, dtype="e4m3").wrong == 2
