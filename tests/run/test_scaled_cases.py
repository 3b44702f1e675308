"""A share of the random kernels with factors of blocks; `tests/run/scaled_cases.py` has all of them."""

from __future__ import annotations

import pytest

from cutegen.build import Cache
from tests.run.scaled_cases import drawn, failure

SHARE = 12


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SHARE))
def test_a_random_scaled_kernel_agrees_with_float64(seed: int, kernels: Cache) -> None:
    assert failure(seed, kernels) == ""


@pytest.mark.slow
def test_the_sample_has_every_recipe_epilogue_and_result() -> None:
    specs = [drawn(seed)[0] for seed in range(60)]
    assert {spec.problem.scale_a.block[0] for spec in specs if spec.problem.scale_a} == {1, 128}
    assert {spec.problem.scale_b.block[0] for spec in specs if spec.problem.scale_b} == {1, 128}
    assert {spec.problem.groups.layout for spec in specs if spec.problem.groups} == {"packed", "padded"}
    assert {spec.epilogue.quantize.scale for spec in specs if spec.epilogue.quantize} == {"f32", "ue8m0"}
    assert {spec.epilogue.pairs.first for spec in specs if spec.epilogue.pairs} == {"gate", "up"}
    assert any(spec.schedule.swap for spec in specs)
    assert any(spec.problem.groups and spec.epilogue.quantize for spec in specs)
