"""Slices of K that follow the problem: they fill the GPU once, where larger tiles gain more than slices cost."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search.warpgroup_rows import (
    SHORTEST_SLICE,
    SLICES_HANDICAP,
    KernelConfig,
    as_nearest,
    fitted_slices,
)
from tests.gpu.measured import STORED, TORCH, geometric_mean
from tests.gpu.sweep_kernels import shape_of
from tests.plan.pages import words_of
from tests.plan.regrets import kernel_of, predicted_by_kernel
from tests.plan.specs import gemm

H200, DEVICE = GPUS["sm_90"], target("sm_90")
OPEN = replace(gemm(), family="sm90")
TABLE = json.loads(STORED.with_name("h100_slices.json").read_text())
US = {shape_of(text): us for text, us in TABLE["us"].items()}
CHOICES = TABLE["choices"]
PAGE = words_of("lab/tile_model.md")

Kernel = tuple[tuple[int, ...], str, tuple[int, ...], bool, int]
"""Tile, consumers, CTAs of a cluster along M, N and K, exchanged or not, slices."""


def tiles(problem: ProblemShape, row: KernelConfig) -> int:
    m, n = (problem.n, problem.m) if row.swap else (problem.m, problem.n)
    return -(-m // row.cta[0]) * -(-n // row.cta[1]) * problem.batch


def made(problem: tuple[int, int, int], precision: str = "f16") -> GemmPlan:
    operand = replace(gemm().problem.a, dtype=precision)
    spec = replace(OPEN, problem=replace(OPEN.problem, a=operand, b=operand))
    found = plan(spec, "sm_90", problem)
    assert isinstance(found, GemmPlan)
    return found


def test_slices_fill_the_gpu_once_and_have_the_corrections_of_the_tile_with_k_whole() -> None:
    seen = set()
    for _ in range(300):
        m, n = (8 * round(2 ** random.uniform(1, 8)) for _ in "mn")
        problem = ProblemShape(m, n, 8 * round(2 ** random.uniform(6, 14)), random.choice((1, 1, 3)))
        for row in fitted_slices(problem, H200):
            assert row.slices > 1
            assert tiles(problem, row) * row.slices <= H200.sms, (problem, row)
            assert problem.k // row.slices >= SHORTEST_SLICE, (problem, row)
            whole = as_nearest(KernelConfig(row.cta, row.warpgroups, row.consumers, row.cluster, row.swap))
            assert (row.correction, row.overall) == (whole.correction, pytest.approx(SLICES_HANDICAP * whole.overall))
            seen.add((row.cta, row.slices))
    assert len({slices for _, slices in seen}) > 30


@pytest.mark.parametrize(
    "problem", [(512, 512, 16384), (1024, 256, 16384), (96, 2048, 32768), (128, 128, 65536)], ids=str
)
def test_few_tiles_of_deep_k_are_one_wave(problem: tuple[int, int, int]) -> None:
    """Slices in clusters would be up to four waves of CTAs, or leave half of the multiprocessors idle."""
    found = made(problem)
    assert found.split_k is not None
    extents = problem[::-1][1:] if found.swapped else problem[:2]
    grid = -(-extents[0] // found.cta_tile[0]) * -(-extents[1] // found.cta_tile[1]) * found.split_k.slices
    assert 0.9 * H200.sms < grid <= H200.sms


@pytest.mark.parametrize("precision", ["f16", "e4m3", "s8"])
def test_every_type_has_them(precision: str) -> None:
    found = made((256, 256, 65536), precision)
    assert found.split_k is not None
    assert found.split_k.shared
    assert found.mma.cluster == (1, 1, 1)


def test_the_page_says_what_choices_gained() -> None:
    """On problems drawn for it, where the kernel is another one: of those before the last CTA alone added slices."""
    for shape, row in CHOICES.items():
        times = predicted_by_kernel(shape_of(shape))
        assert min(times, key=times.__getitem__) == kernel_of(row["since"][0]), shape
    before, since, share = (
        geometric_mean([row[TORCH] / row["before"][1] for row in CHOICES.values()]),
        geometric_mean([row[TORCH] / row["since"][1] for row in CHOICES.values()]),
        [row["since"][1] / row["before"][1] for row in CHOICES.values()],
    )
    said = f"{geometric_mean(share):.2f} times as long, {min(share):.2f} to {max(share):.2f}"
    said = f"for {len(CHOICES)} problems and takes {said}: {before:.2f} times as fast as torch before"
    assert f"{said}, {since:.2f} since" in PAGE
