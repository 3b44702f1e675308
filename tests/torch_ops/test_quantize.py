"""`cutegen.quantize`: factors and values as its formula has them, in the layouts that kernels read in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

import cutegen  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402

SHAPES = ((5, 128), (130, 300), (1, 1), (128, 256))


def by_hand(x: Tensor, rows: int, most: float, floor: float = 1e-4) -> tuple[Tensor, Tensor]:
    """Values before their last rounding, and factors, block by block in NumPy's f32."""
    values, wide = np.empty(x.shape, np.float32), x.float().numpy()
    factors = np.empty((-(-x.shape[0] // rows), -(-x.shape[1] // 128)), np.float32)
    for i, j in np.ndindex(factors.shape):
        at = slice(i * rows, (i + 1) * rows), slice(j * 128, (j + 1) * 128)
        factors[i, j] = np.maximum(np.abs(wide[at]).max(), np.float32(floor)) / np.float32(most)
        values[at] = wide[at] * (np.float32(1) / factors[i, j])
    return torch.from_numpy(values).clamp(-most, most), torch.from_numpy(factors)


@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize(("dtype", "kind"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
@pytest.mark.parametrize("of", [torch.float32, torch.bfloat16])
def test_values_and_factors_are_those_of_the_formula(rows: int, dtype: Any, kind: Any, of: Any) -> None:
    for shape in SHAPES:
        x = (torch.randn(shape) * torch.exp2(torch.randint(-20, 20, shape).float())).to(of)
        values, factors = cutegen.quantize(x, (rows, 128), dtype=dtype)
        exact, wanted = by_hand(x, rows, torch.finfo(kind).max)
        assert torch.equal(factors, wanted)
        assert torch.equal(values.float(), exact.to(kind).float())
        contiguous, leading = (0, 1) if rows == 1 else (1, 0)
        assert factors.stride(leading) % 4 == 0
        assert factors.shape[contiguous] == 1 or factors.stride(contiguous) == 1


def test_a_block_of_zeros_and_one_with_nan() -> None:
    x = torch.zeros(2, 256)
    x[1, 3] = torch.nan
    values, factors = cutegen.quantize(x)
    assert factors[0].tolist() == [np.float32(1e-4) / np.float32(448)] * 2
    assert values[0].float().tolist() == [0.0] * 256
    assert values[1, :128].isnan().all()
    assert values[1, 128:].float().tolist() == [0.0] * 128


def test_powers_of_two_are_the_next_above() -> None:
    x = torch.tensor([448.0, 449.0, 224.0, 3.0]).repeat_interleave(128).reshape(4, 128)
    _, factors = cutegen.quantize(x, scale="ue8m0")
    assert factors.flatten().tolist() == [1.0, 2.0, 0.5, 2.0**-7]


def test_a_chain_of_layers_is_that_of_its_quantized_operands() -> None:
    x, w = torch.randn(9, 300), torch.randn(130, 300)
    (x8, of_x), (w8, of_w) = cutegen.quantize(x), cutegen.quantize(w, (128, 128))
    found = cutegen.scaled_mm(x8, w8.T, of_x, "BlockWise1x128", of_w.T, "BlockWise128x128", output_dtype=torch.float32)
    assert (found - x @ w.T).norm() < 0.06 * (x @ w.T).norm()  # each element errs by up to 2^-4 of itself


def test_what_is_no_block_or_no_matrix_is_refused() -> None:
    with pytest.raises(RequestError, match=r"block: found \(1, 64\); expected \(1, 128\) or \(128, 128\)"):
        cutegen.quantize(torch.ones(4, 4), (1, 64))
    with pytest.raises(OperandError, match=r"operand x: found dtype torch.float32, shape \(4,\)"):
        cutegen.quantize(torch.ones(4))
    with pytest.raises(RequestError, match="scale: found 'e8m0'"):
        cutegen.quantize(torch.ones(4, 4), scale="e8m0")  # type: ignore[arg-type]
