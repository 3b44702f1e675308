"""Unsigned operands of the epilogue: MLIR's i8 has no sign, so a load that does not name the type reads 255 as -1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cutegen
from cutegen import api
from cutegen.build import Cache
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, parse_spec
from tests.seeding import new_generator

pytestmark = pytest.mark.dsl

CASES = {
    "sm80": ("sm_80", "tile.cta = [32, 32, 32]"),
    "simt": ("sm_80", "tile.cta = [32, 32, 8]"),
    "sm120": ("sm_90", "tile.cta = [32, 32, 32]"),
    "sm90": ("sm_90", "tile.cta = [64, 32, 64]"),  # vectors are shuffled
    "sm90 split": ("sm_90", "tile.cta = [64, 32, 64]\nschedule.split_k = 2"),  # vectors are loaded in the epilogue
}
FAST = ("simt", "sm90")
U8 = '{ dtype = "u8", major = "n", align = 1 }'


def unsigned(name: str) -> GemmSpec:
    text = f"""
        family = "{name.split()[0]}"
        problem.a = {{ dtype = "f16", major = "k" }}
        problem.b = {{ dtype = "f16", major = "k" }}
        problem.c = {U8}
        problem.residual = {U8}
        problem.bias.dtype = "u8"
        epilogue.expression = "x -> x + (c + residual + bias_n + bias_m) * 0.25"
        {CASES[name][1]}
    """
    return parse_spec(text, name="unsigned")


def check(kernel: Kernel, place: Callable[[np.ndarray], Any] = np.asarray) -> None:
    """Multiply a complete tile, whose vectors are loaded, and one at the edges, whose single elements are."""
    numbers = new_generator()
    tile_m, tile_n = kernel.contract.cta_tile
    for m, n, k in ((tile_m, tile_n, 16), (tile_m - 3, tile_n - 1, 8)):
        a, b = (numbers.integers(-1, 1, shape, endpoint=True).astype(np.float16) for shape in ((m, k), (n, k)))
        shapes = {"c": (m, n), "residual": (m, n), "bias_n": (n,), "bias_m": (m,)}
        beside = {each: numbers.integers(0, 255, shape, np.uint8, endpoint=True) for each, shape in shapes.items()}
        wide = {each: values.astype(np.float64) for each, values in beside.items()}
        read = wide["c"] + wide["residual"] + wide["bias_n"] + wide["bias_m"][:, None]
        expected = np.clip(np.rint(a.astype(np.float64) @ b.T + read * 0.25), 0, 255)
        result = kernel(place(a), place(b).T, **{each: place(values) for each, values in beside.items()})
        assert np.array_equal(result if place is np.asarray else result.cpu().numpy(), expected), (m, n, k)


@pytest.mark.parametrize("name", [x if x in FAST else pytest.param(x, marks=pytest.mark.slow) for x in CASES])
def test_every_byte_is_read_as_it_is(name: str, kernels: Cache) -> None:
    kernel = api.compile(unsigned(name), CASES[name][0], cache=kernels)
    assert isinstance(kernel, Kernel)
    check(kernel)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_every_byte_is_read_as_it_is_on_a_gpu(name: str) -> None:
    torch = pytest.importorskip("torch")
    check(cutegen.compile(unsigned(name)), lambda values: torch.from_numpy(values).cuda())
