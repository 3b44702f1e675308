"""Bounds of tf32, 8-bit floats and integers: they pass what such tensor cores do, and not much more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cutegen.contract.launch import LaunchContract
from cutegen.plan import plan
from cutegen.run.call.bits import float8_bits, float8_values
from cutegen.run.call.check import check_call
from cutegen.run.call.operands import view_of
from cutegen.spec import parse_spec
from cutegen.verify import Bounded, compare, expected_outcome, float64_reference, random_operands
from cutegen.verify.reference import float64

torch = pytest.importorskip("torch")
MakeContract = Callable[..., LaunchContract]
TYPES = [
    ("tf32", "tf32", "f32"),
    ("s8", "s8", "s32"),
    ("u8", "s8", "u8"),
    ("e4m3", "e5m2", "bf16"),
    ("e5m2", "e4m3", "e4m3"),
]


def typed(made: LaunchContract, *dtypes: str) -> LaunchContract:
    """The contract with other types of A, B and C."""
    tensors = (replace(tensor, dtype=dtype) for tensor, dtype in zip(made.tensors, dtypes, strict=True))
    return replace(made, tensors=tuple(tensors))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("dtypes", TYPES, ids=str)
def test_random_operands_fit_the_kernel_they_are_for(
    contract: MakeContract, framework: str, dtypes: tuple[str, str, str]
) -> None:
    compiled = typed(contract("knm"), *dtypes)
    operands = random_operands(compiled, 40, 30, 50, seed=4, framework=framework)
    forms = [view_of(operand, name).form for operand, name in zip(operands, "abc", strict=True)]
    problem = check_call(compiled, *forms).size.problem
    assert (problem.m, problem.k) == (40, 50)
    a, _, out = (np.asarray(float64(x, dtype)) for x, dtype in zip(operands, dtypes, strict=True))
    spread = {"s32": 8}.get(dtypes[2], 1)
    assert 0.9 * spread < np.sqrt((a[a < 128] ** 2).mean()) < 1.1 * spread
    assert (a.min() >= 0) is np.bool_(dtypes[0] == "u8")
    assert (a.max() >= 128) is np.bool_(dtypes[0] == "u8")
    poison = {"s32": -0x55555556, "u8": 0xAA}.get(dtypes[2])
    assert np.isnan(out).all() if poison is None else (out == poison).all()


def products(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """A B in int64, held within the range of an 8-bit integer `dtype`, as an array of it."""
    element = np.dtype({"s8": "i1", "u8": "u1"}[dtype])
    limits = np.iinfo(element)
    return (a.astype(np.int64) @ b.astype(np.int64)).clip(limits.min, limits.max).astype(element)


@pytest.mark.parametrize("dtypes", [("u8", "u8", "u8"), ("u8", "u8", "s8"), ("u8", "s8", "u8"), ("s8", "s8", "s8")])
def test_mistakes_show_in_8_bit_integers(contract: MakeContract, dtypes: tuple[str, str, str]) -> None:
    """Few of the results saturate, none is there before the launch, and some operands have the sign bit of s8."""
    compiled = typed(contract(), *dtypes)
    a, b, out = random_operands(compiled, 128, 128, 192, seed=2)
    wanted = expected_outcome(compiled, a, b, {}, accumulator="s32").result
    c = dtypes[2]
    assert compare(products(a, b, c), wanted, dtype=c).ok
    assert compare(out, wanted, dtype=c).wrong > 0.95 * out.size
    assert compare(products(a[:, :-64], b[:-64], c), wanted, dtype=c).wrong > 0.3 * out.size
    if dtypes[0] == "u8":
        assert not compare(products(a.view(np.int8), b, c), wanted, dtype=c).ok


def cut(values: np.ndarray, significant_bits: int) -> np.ndarray:
    """float64 values with so many bits kept, towards zero."""
    kept = np.uint64(2**64 - 2 ** (53 - significant_bits))
    return (values.view(np.uint64) & kept).view(np.float64)


@pytest.mark.parametrize("k", [1, 8, 64, 1000, 16384])
def test_tf32_may_cut_operands_to_11_bits(contract: MakeContract, k: int) -> None:
    a, b, _ = random_operands(typed(contract(), "tf32", "tf32", "f32"), 64, 48, k, seed=k)
    reference = float64_reference(a, b, typed(contract(), "tf32", "tf32", "f32"))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    assert compare(cut(wide_a, 11) @ cut(wide_b, 11), reference, dtype="f32").ok
    assert not compare(cut(wide_a, 11) @ cut(wide_b, 11), float64_reference(a, b), dtype="f32").ok
    if k >= 64:
        assert not compare(cut(wide_a, 8) @ cut(wide_b, 8), reference, dtype="f32").ok


@pytest.mark.parametrize("k", [64, 1000, 4096])
def test_a_product_that_tf32_leaves_out_is_found(contract: MakeContract, k: int) -> None:
    a, b, _ = random_operands(typed(contract(), "tf32", "tf32", "f32"), 64, 48, k, seed=k)
    reference = float64_reference(a, b, typed(contract(), "tf32", "tf32", "f32"))
    missing = cut(a[:, 1:].astype(np.float64), 11) @ cut(b[1:].astype(np.float64), 11)
    assert compare(missing, reference, dtype="f32").wrong > 0.5 * missing.size


@pytest.mark.parametrize(("kept_bits", "passes"), [(14, True), (10, False)])
def test_sums_of_8_bit_floats_may_be_cut_to_13_bits_behind_the_point(
    contract: MakeContract, kept_bits: int, passes: bool
) -> None:
    """A sum that is cut after each instruction of 32 products, at K = 4096."""
    compiled = typed(contract(), "e4m3", "e4m3", "f32")
    a, b, _ = random_operands(compiled, 64, 48, 4096, seed=9)
    values_a, values_b = (float8_values(x, "e4m3").astype(np.float64) for x in (a, b))
    total = np.zeros((64, 48))
    for start in range(0, 4096, 32):
        total = cut(total + values_a[:, start : start + 32] @ values_b[start : start + 32], kept_bits)
    reference = float64_reference(a, b, compiled)
    assert compare(total, reference, dtype="f32").ok is passes
    assert not compare(total, float64_reference(values_a, values_b), dtype="f32").ok


def test_integers_have_no_room_at_all(contract: MakeContract) -> None:
    compiled = typed(contract(), "s8", "s8", "s32")
    a, b, _ = random_operands(compiled, 16, 24, 300, seed=1)
    reference = float64_reference(a, b, compiled)
    exact = a.astype(np.int32) @ b.astype(np.int32)
    assert compare(exact, reference, dtype="s32", accumulator="s32").ok
    exact[3, 5] += 1
    found = compare(exact, reference, dtype="s32", accumulator="s32")
    assert (found.wrong, found.first_wrong.row, found.first_wrong.column) == (1, 3, 5)


def test_types_with_an_end_stop_there() -> None:
    wanted = Bounded(np.array([[1000.0, -1000.0, 126.4, 2.5]]), 0.0)
    assert compare(np.array([[127, -128, 126, 2]], np.int8), wanted, dtype="s8").ok
    assert compare(np.array([[127, -128, 127, 2]], np.int8), wanted, dtype="s8").wrong == 1
    assert compare(np.array([[-24, -128, 126, 2]], np.int8), wanted, dtype="s8").wrong == 1  # 1000 modulo 256
    assert compare(np.array([[127, -128, 126, 3]], np.int8), wanted, dtype="s8").wrong == 1  # ties go to even
    assert compare(np.array([[255, 0, 126, 2]], np.uint8), wanted, dtype="u8").ok
    assert compare(np.array([[232, 24, 127, 2]], np.uint8), wanted, dtype="u8").wrong == 3  # modulo 256
    assert compare(float8_bits(wanted.value, "e4m3"), wanted, dtype="e4m3").ok
    assert not compare(float8_bits(np.array([[np.nan, -1000.0, 128.0, 2.5]]), "e4m3"), wanted, dtype="e4m3").ok


def test_what_uint8_means_is_the_contracts_to_say(contract: MakeContract) -> None:
    a, b = (float8_bits(np.ones(shape), name) for shape, name in (((3, 5), "e4m3"), ((5, 2), "e5m2")))
    compiled = typed(contract(), "e4m3", "e5m2", "f32")
    assert float64_reference(a, b, compiled).product.tolist() == [[5.0, 5.0]] * 3
    outcome = expected_outcome(compiled, a, b, {})
    assert outcome.result.value.tolist() == [[5.0, 5.0]] * 3
    ones = np.ones((2, 2), np.uint8)
    assert float64_reference(ones, ones, typed(contract(), "u8", "u8", "s32")).product.tolist() == [[2.0, 2.0]] * 2


def test_sums_of_integers_that_pass_through_f32_are_allowed_one_rounding(contract: MakeContract) -> None:
    """On the way to C of s32 there is none."""
    a, b = np.ones((2, 2), np.int8), np.ones((2, 2), np.int8)
    as_f32 = expected_outcome(typed(contract(), "s8", "s8", "f32"), a, b, {}, accumulator="s32").result
    as_s32 = expected_outcome(typed(contract(), "s8", "s8", "s32"), a, b, {}, accumulator="s32").result
    assert (as_f32.error == 2.0**-24 * 2).all()
    assert (as_s32.error == 0).all()


def test_s32_that_an_epilogue_reads_is_rounded_to_f32() -> None:
    """Also where sums cancel it: 2**24 + 1 - 2**24 is 0 there."""
    spec = parse_spec(
        """
        family = "sm80"
        problem.a = { dtype = "f16", major = "k" }
        problem.b = { dtype = "f16", major = "k" }
        problem.c = { dtype = "f32", major = "n" }
        problem.bias = { dtype = "s32" }
        problem.residual = { dtype = "s32" }
        epilogue.expression = "x -> x + alpha * (bias_n - residual)"
        """,
        name="integers",
    )
    compiled, zeros = plan(spec, "sm_80").launch, np.zeros((1, 1), np.float16)
    extras = {"bias": np.array([2**24 + 1], np.int32), "residual": np.array([[2**24]], np.int32), "alpha": 1.0}
    for make in (np.asarray, torch.from_numpy):
        given = {name: x if isinstance(x, float) else make(x) for name, x in extras.items()}
        wanted = expected_outcome(compiled, make(zeros), make(zeros), given).result
        assert compare(make(np.zeros((1, 1), np.float32)), wanted, dtype="f32").ok
