"""Floats as bits, against the conversions of torch."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.run import float8_bits
from cutegen.run.call.bits import bf16_bits, float8_values

torch = pytest.importorskip("torch")
TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}

by_name = pytest.mark.parametrize("name", TORCH)


@by_name
def test_every_code_has_the_value_that_torch_gives_it(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(codes.copy()).view(TORCH[name]).float().numpy()
    np.testing.assert_array_equal(float8_values(codes, name), theirs)


@by_name
def test_values_round_as_torch_rounds_them(name: str) -> None:
    generator = np.random.default_rng(3)
    values = generator.standard_normal(20_000).astype(np.float32) * np.exp2(generator.integers(-20, 9, 20_000))
    finite = float8_values(np.arange(256, dtype=np.uint8), name)
    finite = np.sort(finite[np.isfinite(finite)]).astype(np.float64)
    middles = (finite[:-1] + finite[1:]) / 2  # ties, and what lies just beside them
    values = np.concatenate([values, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), finite])
    values = values[np.abs(values) <= LARGEST[name]].astype(np.float32)
    theirs = torch.from_numpy(values).to(TORCH[name]).view(torch.uint8).numpy()
    np.testing.assert_array_equal(float8_bits(values, name), theirs)


@by_name
def test_what_is_too_large_stops_at_the_largest(name: str) -> None:
    large = np.array([LARGEST[name] * 2, -1e30, np.inf, -np.inf])
    expected = [LARGEST[name], -LARGEST[name]] * 2
    assert float8_values(float8_bits(large, name), name).tolist() == expected
    assert np.isnan(float8_values(float8_bits(np.array([np.nan]), name), name)).all()


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F808000, 0x3F80),  # a tie, to even
        (0x3F818000, 0x3F82),
        (0x3F808001, 0x3F81),
        (0x3F807FFF, 0x3F80),
        (0x7F7FFFFF, 0x7F80),
        (0xFF800000, 0xFF80),
    ],
)
def test_rounding_to_bf16(bits: int, rounded: int) -> None:
    assert bf16_bits(np.array([bits], np.uint32).view(np.float32)).tolist() == [rounded]
