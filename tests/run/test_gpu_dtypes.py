"""Kernels of every element type on a GPU: edges against float64, integers exactly, tf32 as it was asked for."""

from __future__ import annotations

from functools import cache

import pytest

import cutegen
from cutegen.hardware import target
from cutegen.hardware.targeting import choose_target
from cutegen.run import Kernel
from cutegen.verify import compare, float64_reference, random_operands
from tests.run.against_float64 import check
from tests.run.dtype_cases import ARCHES, CASES, EDGES
from tests.run.on_gpu import ON_A_GPU, made

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU
LARGER = [(7, 16, 64), (129, 127, 257), (257, 1000, 520), (1000, 264, 4096), (512, 512, 16384)]


@cache
def compiled(name: str) -> Kernel:
    if choose_target().compute_capability < target(ARCHES[name]).compute_capability:
        pytest.skip(f"is for {ARCHES[name]}")
    return cutegen.compile(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_right_against_float64(name: str) -> None:
    for extents in [*EDGES, *LARGER]:
        check(compiled(name), *made(compiled(name), *extents))


@pytest.mark.parametrize("name", ["s8", "s8 across K", "s8 of 16", "u8", "u8 and s8"])
def test_integers_are_exact_over_their_whole_range(name: str) -> None:
    kernel = compiled(name)
    a, b, out = random_operands(kernel.contract, 300, 500, 4096, seed=0, framework="torch", device="cuda")
    for x in (a, b):
        ends = torch.iinfo(x.dtype)
        x.random_(ends.min, ends.max + 1)
    kernel(a, b, out=out)
    assert torch.equal(out.double(), a.double() @ b.double())


def test_sums_stop_at_the_ends_of_s32() -> None:
    kernel = compiled("s8")
    a = torch.full((1, 131072), -128, dtype=torch.int8, device="cuda")
    b = torch.full((2, 131072), -128, dtype=torch.int8, device="cuda")
    b[1] = 127
    assert kernel(a, b.t()).tolist() == [[2**31 - 1, -128 * 127 * 131072]]


@pytest.mark.parametrize(("name", "nearest"), [("tf32", False), ("tf32 nearest", True)])
def test_tf32_takes_the_bits_that_the_plan_says(name: str, nearest: bool) -> None:
    kernel = compiled(name)
    a, b, out = random_operands(kernel.contract, 300, 200, 512, seed=11, framework="torch", device="cuda")
    kernel(a, b, out=out)

    def kept(values: torch.Tensor, up: bool) -> torch.Tensor:
        bits = values.contiguous().view(torch.int32) + (0x1000 if up else 0)
        return (bits & -0x2000).view(torch.float32).double()

    bound = 2.0**-18 * (a.double().abs() @ b.double().abs())
    right, other = (kept(a, up) @ kept(b, up) for up in (nearest, not nearest))
    assert bool(((out - right).abs() <= bound).all())
    assert not bool(((out - other).abs() <= bound).all())


@pytest.mark.parametrize("name", ["e4m3", "e4m3 and e5m2", "e5m2 and e4m3 across K"])
def test_8_bit_floats_sum_as_well_as_f16_where_they_are_multiplied_as_such(name: str) -> None:
    """On sm_90 and sm_100 no bit of a sum is lost that f16 operands would keep: the general bound without its e."""
    if choose_target().name not in ("sm_90", "sm_100"):
        pytest.skip("tensor cores here take 8-bit floats")
    kernel = compiled(name)
    a, b, out = random_operands(kernel.contract, 256, 256, 8192, seed=3, framework="torch", device="cuda")
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype=kernel.contract.tensor("c").dtype).ok
