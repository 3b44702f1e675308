"""The Hopper twin of family sm100 on a real GPU: 50 random problems against float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cutegen.build import Cache
from tests.run.against_float64 import check
from tests.run.hopper_twin import compiled, random_case, registered
from tests.run.on_gpu import ON_A_GPU, made

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
    case = random_case(seed)
    _, kernel = compiled(case.spec, kernels)
    for problem in (case.small, case.large):
        a, b, out, extras = made(kernel, *problem)
        check(kernel, a, b, out, extras)
        first = out.clone()
        for _ in range(LAUNCHES):
            out.fill_(torch.nan if out.is_floating_point() else 77)
            kernel(a, b, out=out, **extras)
            assert torch.equal(out, first), problem
