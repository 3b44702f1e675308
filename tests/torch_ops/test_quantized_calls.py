"""`quantize=` of matmul and scaled_mm: values and factors of a result, which the next product reads."""

from __future__ import annotations

import pytest
import torch

import cutegen
from cutegen.contract.problem import Pairs
from cutegen.dispatch.block_scales import members_have_blocks
from cutegen.dispatch.quantized import QUANTIZED
from cutegen.errors import OperandError, RequestError
from cutegen.run.call.operands import Form


def operands(rows: int = 72, k: int = 272, columns: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(61)
    return torch.randn(rows, k, generator=generator), torch.randn(k, columns, generator=generator)


@pytest.mark.parametrize("quantize", QUANTIZED)
def test_a_quantized_result_is_that_of_the_result_in_f32(quantize: str) -> None:
    a, b = operands()
    values, factors = cutegen.matmul(a, b, activation="silu", quantize=quantize)
    wide = cutegen.matmul(a, b, activation="silu")
    of_torch = cutegen.quantize(wide, scale=QUANTIZED[quantize])
    assert (values.dtype, values.shape, factors.shape) == (torch.float8_e4m3fn, (72, 200), (72, 2))
    assert factors.stride() == (1, 72)
    assert torch.equal(values.float(), of_torch[0].float())
    assert torch.equal(factors, of_torch[1])


def test_a_layer_passes_its_result_to_the_next_as_it_is() -> None:
    x, w = operands(columns=256)
    down = torch.randn(128, 256, generator=torch.Generator().manual_seed(1))
    (x8, of_x), (w8, of_w), (d8, of_d) = cutegen.quantize(x), cutegen.quantize(w.T, (128, 128)), cutegen.quantize(down)
    recipe = "BlockWise1x128"
    h8, of_h = cutegen.scaled_mm(x8, w8.T, of_x, recipe, of_w.T, "BlockWise128x128", quantize="e4m3")
    y = cutegen.scaled_mm(h8, d8.T, of_h, recipe, of_d, recipe, output_dtype=torch.float32)
    exact = x.double() @ w.double() @ down.double().T
    # Each of five roundings to three bits is off by up to 1/16: independently, sums of 256 by 0.03 on average.
    assert float((y - exact).norm() / exact.norm()) < 0.1


def test_a_batch_has_factors_of_all_of_its_rows_side_by_side() -> None:
    a, b = operands()
    values, factors = cutegen.matmul(a.expand(2, 3, -1, -1), b, quantize="e4m3")
    assert (values.shape, factors.shape) == ((2, 3, 72, 200), (2, 3, 72, 2))
    assert factors.stride() == (3 * 72, 72, 1, 6 * 72)
    assert torch.equal(factors[1, 2], cutegen.matmul(a, b, quantize="e4m3")[1])


def test_out_takes_values_and_factors() -> None:
    a, b = operands()
    made = cutegen.matmul(a, b, quantize="e4m3")
    out = torch.empty_like(made[0]), torch.empty(2, 76).T[:72]
    found = cutegen.matmul(a, b, quantize="e4m3", out=out)
    assert (found[0] is out[0], found[1] is out[1]) == (True, True)
    assert torch.equal(out[0].float(), made[0].float())
    assert torch.equal(out[1], made[1])


@pytest.mark.slow
def test_no_gradients_pass_and_compiled_calls_agree() -> None:
    a, b = operands()
    a.requires_grad_()
    values, factors = cutegen.matmul(a, b, quantize="e4m3")
    assert not values.requires_grad
    assert not factors.requires_grad
    compiled = torch.compile(lambda x: cutegen.matmul(x, b, quantize="e4m3"), backend="aot_eager")
    again = compiled(a.detach())
    assert torch.equal(again[0].float(), values.float())
    assert (again[1].stride(), torch.equal(again[1], factors)) == (factors.stride(), True)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"quantize": "e5m2"}, r"quantize: found \"e5m2\"; expected None or one of e4m3, e4m3_ue8m0"),
        ({"quantize": "e4m3", "out_dtype": torch.bfloat16}, "out_dtype: found torch.bfloat16 with quantize"),
        ({"quantize": "e4m3", "out": torch.empty(2)}, r"out: found a Tensor; expected \(values, factors\)"),
    ],
)
def test_what_does_not_go_with_it_is_refused(terms: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        cutegen.matmul(*operands(), **terms)  # type: ignore[arg-type]


def test_factors_of_another_shape_or_of_rows_apart_are_refused() -> None:
    a, b = operands()
    values = torch.empty(72, 200, dtype=torch.float8_e4m3fn)
    with pytest.raises(OperandError, match=r"scale_c: found f32 of shape \(72, 3\); expected f32 of shape \(72, 2\)"):
        cutegen.matmul(a, b, quantize="e4m3", out=(values, torch.empty(3, 72).T))
    with pytest.raises(OperandError, match=r"scale_c: found strides \(2, 1\); expected contiguous rows"):
        cutegen.matmul(a, b, quantize="e4m3", out=(values, torch.empty(72, 2)))
    with pytest.raises(OperandError, match=r"a: found a vector; expected matrices"):
        cutegen.matmul(a[0], b, quantize="e4m3")


def form(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "f32") -> Form:
    return Form(shape, strides, dtype, ("cuda", 0), "torch", read_only=False)


@pytest.mark.parametrize(
    ("pairs", "columns", "strides", "whole"),
    [
        (Pairs("gate"), 512, (1, 4), True),
        (Pairs("gate", 1), 512, (1, 4), False),  # a block has columns of both
        (Pairs("up"), 384, (1, 4), False),  # a block has columns of both
        (Pairs("up"), 512, (4, 1), False),  # factors are not contiguous along K
        (Pairs("up"), 512, (1, 3), True),  # without a tensor map: lanes copy them, or the call does
    ],
)
def test_kernels_take_pairs_whose_members_have_blocks_of_their_own(
    pairs: Pairs, columns: int, strides: tuple[int, int], whole: bool
) -> None:
    a, b = form((64, 384), (384, 1), "e4m3"), form((384, columns), (1, 384), "e4m3")
    scales = {"scale_a": form((64, 3), (1, 64)), "scale_b": form((3, columns // 128), strides)}
    assert members_have_blocks({"a": a, "b": b, **scales}, pairs, "sm_90") is whole
    assert members_have_blocks({"a": a, "b": b}, pairs, "sm_90")
    assert not members_have_blocks({"a": a, "b": b, **scales}, pairs, "sm_100")  # sums of pairs are not scaled there


def test_a_source_of_another_type_is_refused_with_fake_tensors_too() -> None:
    """C's type is that of the quantized result, not that of A."""
    from torch._subclasses import FakeTensorMode

    a, b = (x.half() for x in operands())
    c = torch.zeros(72, 200, dtype=torch.float8_e4m3fn)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(x) for x in (a, b, c)]
        values, factors = cutegen.matmul(*fake[:2], c=fake[2], quantize="e4m3")
        assert (values.dtype, values.shape, factors.stride()) == (torch.float8_e4m3fn, (72, 200), (1, 72))
        for given in (torch.float16, torch.bfloat16):
            with pytest.raises(OperandError, match=r"c: found dtype .*; expected e4m3"):
                cutegen.matmul(*fake[:2], c=fake[2].to(given), quantize="e4m3")
        out = fake[2], torch.empty(3, 72).T
        with pytest.raises(OperandError, match=r"scale_c: found .* \(72, 3\); expected .* \(72, 2\)"):
            cutegen.matmul(*fake[:2], quantize="e4m3", out=out)


CUT = 2**-12 * (9 + 5 * 3)
"""What tensor cores cut off from sums of 9 k-blocks of 32, at most, relative to the size of the sums."""


@pytest.mark.dsl
@pytest.mark.slow
def test_the_executor_agrees_with_torch_and_is_replayed() -> None:
    a, b = operands()
    (a8, of_a), (b8, of_b) = cutegen.quantize(a), cutegen.quantize(b.T, (128, 128))
    call = {"scale_a": of_a, "scale_b": of_b.T, "quantize": "e4m3"}
    by_torch = cutegen.matmul(a8, b8.T, **call)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        for _ in range(2):
            values, factors = cutegen.matmul(a8, b8.T, **call)
            torch.testing.assert_close(factors, by_torch[1], rtol=CUT, atol=0.0)
            # A step of e4m3 is an eighth at most, and the largest value of a block is 448.
            close = (values.float() - by_torch[0].float()).abs() <= 0.126 * by_torch[0].float().abs() + 448 * CUT
            assert bool(close.all())
        out = torch.empty_like(values), torch.empty_like(factors)
        cutegen.matmul(a8, b8.T, out=out, **call)
    assert torch.equal(out[0].float(), values.float())
    assert torch.equal(out[1], factors)
