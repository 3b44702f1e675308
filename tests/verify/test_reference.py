"""The comparison passes what rounding explains and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import OperandError
from cutegen.run import bf16_bits
from cutegen.run.call.check import check_call
from cutegen.run.call.memory_overlap import check_address
from cutegen.run.call.operands import view_of
from cutegen.verify import compare, float64_reference, random_operands
from cutegen.verify.reference import accumulation_error, bf16_values, float64

torch = pytest.importorskip("torch")
MakeContract = Callable[..., LaunchContract]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("majors", ["kkn", "mnm", "knm"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 32, 48), (7, 257, 13), (1, 1, 1), (8, 8, 0)])
def test_random_operands_fit_the_kernel_they_are_for(
    contract: MakeContract, framework: str, dtype: str, majors: str, m: int, n: int, k: int
) -> None:
    compiled = contract(majors, dtype)
    a, b, out = random_operands(compiled, m, n, k, seed=m + n, framework=framework)
    views = [view_of(operand, name) for operand, name in ((a, "a"), (b, "b"), (out, "out"))]
    call = check_call(compiled, *(view.form for view in views))
    assert call.size.problem == ProblemShape(m, n, k)
    for placed, view in zip(call.placed.values(), views, strict=True):
        check_address(placed, view.pointer)
    assert np.isnan(np.asarray(float64(out))).all()
    assert np.isfinite(np.asarray(float64(a))).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "array", [np.array([0x7F81, 0x3F80], np.uint16), np.array([0x7C01, 0x3C00], np.uint16).view("f2")]
)
def test_a_signalling_nan_is_read_without_a_warning(array: Any) -> None:
    """Memory that a wrong kernel did not write holds any bits."""
    nan, one = float64(array)
    assert np.isnan(nan)
    assert one == 1


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_random_operands_are_normal_reproducible_and_padded_with_nan(contract: MakeContract, framework: str) -> None:
    a, b, _ = random_operands(contract("knn"), 500, 301, 401, seed=7, framework=framework)
    again, _, _ = random_operands(contract("knn"), 500, 301, 401, seed=7, framework=framework)
    other, _, _ = random_operands(contract("knn"), 500, 301, 401, seed=8, framework=framework)
    values, padded = np.asarray(a), np.lib.stride_tricks.as_strided(np.asarray(b), (401, 304))
    assert np.array_equal(values, np.asarray(again))
    assert not np.array_equal(values, np.asarray(other))
    assert abs(values.astype(float).mean()) < 0.01
    assert abs(values.astype(float).std() - 1) < 0.01
    assert padded.strides == (608, 2)
    assert np.isnan(padded[:, 301:]).all()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_alignment_beyond_what_allocators_give(contract: MakeContract, framework: str) -> None:
    kept = []
    for seed in range(20):
        kept.append(random_operands(contract(align=128), 5, 6, 7, seed=seed, framework=framework))
        views = [view_of(operand, name) for operand, name in zip(kept[-1], ("a", "b", "out"), strict=True)]
        call = check_call(contract(align=128), *(view.form for view in views))
        assert [strides.leading for strides in call.size.strides.values()] == [64, 64, 64]
        assert [view.pointer % 128 for view in views] == [0, 0, 0]


def test_reference_is_the_float64_product_of_the_operands_as_stored() -> None:
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((5, 9), (9, 4)))
    reference = float64_reference(a, b)
    expected = [[sum(float(a[i, k]) * float(b[k, j]) for k in range(9)) for j in range(4)] for i in range(5)]
    np.testing.assert_allclose(reference.product, expected, rtol=1e-14)
    tensors = float64_reference(torch.from_numpy(a), torch.from_numpy(b))
    np.testing.assert_allclose(tensors.product.numpy(), reference.product, rtol=1e-14)
    np.testing.assert_allclose(tensors.scale.numpy(), reference.scale, rtol=1e-14)


@pytest.mark.parametrize("k", [1, 16, 1000, 4096])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_one_rounding_of_the_exact_product_passes(contract: MakeContract, dtype: str, k: int) -> None:
    a, b, _ = random_operands(contract("kkn", dtype), 32, 40, k, seed=k, framework="torch")
    reference = float64_reference(a, b)
    comparison = compare(reference.product.to(a.dtype), reference, dtype=dtype)
    assert comparison.ok
    assert comparison.wrong == 0
    assert comparison.rel_error < {"f16": 2**-11, "bf16": 2**-8}[dtype]


@pytest.mark.parametrize(("step_k", "seed"), [(1, 0), (8, 1), (16, 2)])
def test_accumulation_in_f16_passes_as_f16_and_not_as_f32(contract: MakeContract, step_k: int, seed: int) -> None:
    """A sum that is rounded to f16 after each instruction of `step_k` products, as the tensor core does."""
    a, b, _ = random_operands(contract(), 32, 40, 2048, seed=seed)
    total = np.zeros((32, 40), np.float16)
    for start in range(0, 2048, step_k):
        part = float64(a)[:, start : start + step_k] @ float64(b)[start : start + step_k]
        total = (total + part).astype(np.float16)
    reference = float64_reference(a, b)
    assert compare(total, reference, dtype="f16", accumulator="f16").ok
    assert not compare(total, reference, dtype="f16", accumulator="f32").ok


def test_accumulation_that_truncates_to_f32_passes(contract: MakeContract) -> None:
    """Cutting off instead of rounding, each time towards zero, at K = 16384."""
    a, b, _ = random_operands(contract(), 16, 16, 16384, seed=5)
    wide_a, wide_b = float64(a), float64(b)
    total = np.zeros((16, 16))
    for start in range(0, 16384, 8):
        total += wide_a[:, start : start + 8] @ wide_b[start : start + 8]
        total = (total.view(np.uint64) & np.uint64(0xFFFFFFFFE0000000)).view(np.float64)  # keeps 24 bits
    reference = float64_reference(a, b)
    assert compare(total, reference, dtype="f32").ok
    assert not np.array_equal(total, reference.product)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("accumulator", ["f32", "f16"])
def test_a_single_wrong_element_of_a_large_result_is_found(
    contract: MakeContract, framework: str, accumulator: str
) -> None:
    a, b, _ = random_operands(contract(), 600, 700, 64, seed=11, framework=framework)
    reference = float64_reference(a, b)
    out = reference.product.astype(np.float16) if framework == "numpy" else reference.product.half()
    expected = float(out[417, 233])
    out[417, 233] = expected + 8
    out[599, 1] = 60000
    comparison = compare(out, reference, dtype="f16", accumulator=accumulator)
    assert not comparison.ok
    assert comparison.wrong == 2
    first = comparison.first_wrong
    assert first is not None
    assert (first.row, first.column, first.found) == (417, 233, float(out[417, 233]))
    assert abs(first.expected - expected) < 0.01
    assert first.allowed_error < 8


@pytest.mark.parametrize("dropped", [slice(496, 512), slice(511, 512)])
def test_a_part_of_k_that_was_left_out_is_found(contract: MakeContract, dropped: slice) -> None:
    a, b, _ = random_operands(contract(), 64, 64, 512, seed=13)
    reference = float64_reference(a, b)
    shortened = a.copy()
    shortened[:, dropped] = 0
    out = float64_reference(shortened, b).product.astype(np.float16)
    for accumulator in ("f32", "f16"):
        assert not compare(out, reference, dtype="f16", accumulator=accumulator).ok


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_never_pass(contract: MakeContract, poison: float) -> None:
    a, b, out = random_operands(contract(), 16, 24, 32, seed=17)
    reference = float64_reference(a, b)
    assert compare(out, reference, dtype="f16").wrong == 16 * 24
    out[...] = reference.product
    out[3, 5] = poison
    comparison = compare(out, reference, dtype="f16")
    assert not comparison.ok
    assert comparison.first_wrong is not None
    assert (comparison.first_wrong.row, comparison.first_wrong.column) == (3, 5)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 8), (8, 0, 8), (8, 8, 0)])
def test_empty_results_and_zeros(contract: MakeContract, m: int, n: int, k: int) -> None:
    a, b, _ = random_operands(contract(), m, n, k, seed=0)
    reference = float64_reference(a, b)
    comparison = compare(np.zeros((m, n), np.float16), reference, dtype="f16")
    assert comparison.ok
    assert (comparison.rel_error, comparison.max_abs_error) == (0, 0)


def test_k_zero_must_be_exactly_zero(contract: MakeContract) -> None:
    a, b, _ = random_operands(contract(), 8, 8, 0, seed=0)
    assert not compare(np.full((8, 8), 1e-6, np.float16), float64_reference(a, b), dtype="f16").ok


def test_shapes_must_agree(contract: MakeContract) -> None:
    a, b, _ = random_operands(contract(), 8, 16, 8, seed=0)
    with pytest.raises(OperandError, match=r"found shape \(16, 8\); expected the reference's \(8, 16\)"):
        compare(np.zeros((16, 8), np.float16), float64_reference(a, b), dtype="f16")


def test_accumulation_error_grows_with_k_and_with_the_accumulators_step() -> None:
    assert accumulation_error("f32", 64) < accumulation_error("f32", 4096) < accumulation_error("f16", 64)


def test_bf16_bits_round_like_torch() -> None:
    generator = np.random.default_rng(23)
    values: Any = np.concatenate(
        [
            generator.standard_normal(10000).astype(np.float32),
            generator.integers(0, 2**32, 10000, dtype=np.uint32).view(np.float32),
            np.array([0.0, -0.0, np.inf, -np.inf, 3.3895314e38, 3.4e38, 1e-45], np.float32),
        ]
    )
    expected = torch.from_numpy(values).bfloat16()
    found = torch.from_numpy(bf16_values(bf16_bits(values)))
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.float().nan_to_num())


@pytest.mark.parametrize("k", [8, 16])
def test_right_sums_pass_however_large_they_become(k: int) -> None:
    """Of two million sums of few products some are far larger than most, and so are their roundings."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((1500, k)), rng.standard_normal((k, 1500))
    sums = np.zeros((1500, 1500), np.float32)
    for i in range(k):
        sums = (sums + np.outer(a[:, i], b[i])).astype(np.float32)
    assert compare(sums, float64_reference(a, b), dtype="f32").ok
