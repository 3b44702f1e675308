"""The Hopper twin of family sm100 on a real GPU: random problems, groups, factors of blocks and quantized results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cutegen.build import Cache
from tests.run.against_float64 import hold
from tests.run.hopper_twin import (
    Case,
    compiled,
    expected_of,
    made_for,
    random_case,
    random_grouped_case,
    random_quantized_case,
    random_scaled_case,
    registered,
)
from tests.run.on_gpu import ON_A_GPU

torch = pytest.importorskip("torch")
pytestmark = [
    *ON_A_GPU,
    pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="no wgmma"),
]
LAUNCHES = 4
"""Launches back to back, which must all have the same bits."""


@pytest.fixture(autouse=True)
def _family() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.parametrize("seed", range(50))
def test_a_random_problem_is_right(seed: int, kernels: Cache) -> None:
    try_on_gpu(random_case(seed), kernels)


@pytest.mark.parametrize("seed", range(100, 150))
def test_random_groups_are_right(seed: int, kernels: Cache) -> None:
    try_on_gpu(random_grouped_case(seed), kernels)


@pytest.mark.parametrize("seed", range(40))
def test_random_factors_of_blocks_are_right(seed: int, kernels: Cache) -> None:
    try_on_gpu(random_scaled_case(seed), kernels)


@pytest.mark.parametrize("seed", range(20))
def test_random_quantized_results_are_right(seed: int, kernels: Cache) -> None:
    try_on_gpu(random_quantized_case(seed), kernels)


def try_on_gpu(case: Case, kernels: Cache) -> None:
    """Raise AssertionError unless launches for both problems are right, and all have the same bits."""
    planned, kernel = compiled(case.spec, kernels)
    for problem in (case.small, case.large):
        a, b, out, extras = made_for(kernel, problem, framework="torch", device="cuda")
        outcome, poisoned = expected_of(planned, kernel, a, b, extras), out.clone()
        kernel(a, b, out=out, **extras)
        hold(kernel, out, extras, outcome)
        first = bits(out)
        for _ in range(LAUNCHES):
            out.copy_(poisoned)
            kernel(a, b, out=out, **extras)
            assert torch.equal(bits(out), first), problem


def bits(x: torch.Tensor) -> torch.Tensor:
    """A copy whose elements compare equal if their bits do: 8-bit floats compare as none."""
    return x.clone().view(torch.uint8) if x.element_size() == 1 else x.clone()
