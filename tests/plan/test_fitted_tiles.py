"""Tiles whose N follows the problem: their grid fills the GPU so many times, and no narrower tile's does."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search.warpgroup_rows import (
    COLUMNS,
    COLUMNS_OF_SECTORS,
    OF_ROWS,
    WAVES,
    KernelConfig,
    fitted_rows,
    of_size,
)
from tests.plan.specs import gemm

H200, MOST = GPUS["sm_90"], 132


def ctas(problem: ProblemShape, row: KernelConfig, n: int) -> int:
    """CTAs of tiles of `n` columns, with those that fill up clusters."""
    of_m, of_n = (problem.n, problem.m) if row.swap else (problem.m, problem.n)
    (m, _, _), (ctas_m, ctas_n, _) = row.cta, row.cluster
    return -(-of_m // (m * ctas_m)) * ctas_m * -(-of_n // (n * ctas_n)) * ctas_n


def at_once(row: KernelConfig) -> int:
    """Counted on an H200: all multiprocessors hold clusters of two, 120 larger ones."""
    return MOST if row.cluster[0] * row.cluster[1] <= 2 else 120


def test_grids_fill_the_gpu_and_tiles_are_no_wider_than_that_takes() -> None:
    seen = set()
    for _ in range(200):
        problem = ProblemShape(*(random.randrange(8, 8192, 8) for _ in "mnk"))
        for row in set(fitted_rows(problem, H200)):
            n, room = row.cta[1], at_once(row)
            waves = -(-ctas(problem, row, n) // room)
            whole = max(COLUMNS if row.swap else COLUMNS_OF_SECTORS, COLUMNS * row.cluster[0])
            step, narrowest, most = (COLUMNS, 40, 1) if is_of_its_size(row) else (whole, 64, max(WAVES))
            assert waves <= most, (problem, row)
            assert n % step == 0, (problem, row)
            assert n == step or -(-ctas(problem, row, n - step) // room) > waves or n - step < narrowest, (problem, row)
            seen.add((row.cta[0], row.cluster, row.swap, waves))
    assert len(seen) > 50


def is_of_its_size(row: KernelConfig) -> bool:
    """Return whether its corrections are those of tiles of its size."""
    return row.cta[0] in OF_ROWS and row == of_size(row)


def test_a_kernel_has_one_row() -> None:
    for problem in (ProblemShape(1248, 264, 2336), ProblemShape(240, 6976, 4328), ProblemShape(512, 1560, 4400)):
        kernels = [(row.cta, row.cluster, row.swap) for row in fitted_rows(problem, H200)]
        assert len(kernels) == len(set(kernels))


@pytest.mark.parametrize(
    "shape",
    [(512, 1560, 504), (4096, 4096, 4096), (2048, 2048, 2048)],
    ids=["the store decides", "power decides", "just so"],
)
def test_problems_that_no_size_was_measured_on_keep_their_rows(shape: tuple[int, int, int]) -> None:
    assert not any(map(is_of_its_size, fitted_rows(ProblemShape(*shape), H200)))


@pytest.mark.parametrize(
    ("shape", "tile", "cluster", "swapped"),
    [
        ((512, 1560, 4400), (64, 112), (4, 2), False),
        ((264, 3056, 1576), (64, 136), (4, 2), True),
        ((5016, 536, 1656), (128, 184), (4, 1), False),
        ((784, 704, 6816), (64, 80), (4, 2), True),
    ],
)
def test_tiles_and_clusters_that_cublas_has_are_compared(
    shape: tuple[int, int, int], tile: tuple[int, int], cluster: tuple[int, int], swapped: bool
) -> None:
    """As the names of its kernels say, on an H200."""
    found = {(row.cta[:2], row.cluster[:2], row.swap) for row in fitted_rows(ProblemShape(*shape), H200)}
    assert (tile, cluster, swapped) in found


def test_a_batch_has_none() -> None:
    assert not list(fitted_rows(ProblemShape(824, 5456, 5088, 2), H200))


@pytest.mark.parametrize(
    ("problem", "tile", "cluster", "swapped"),
    [
        ((824, 5456, 5088), (256, 144), (1, 2), True),
        ((3760, 1208, 4840), (256, 160), (1, 4), False),
        ((4400, 2224, 4576), (192, 200), (1, 2), True),
        ((704, 7920, 5792), (256, 176), (1, 2), True),
        ((3000, 3000, 3000), (192, 192), (2, 1), True),
    ],
)
def test_odd_pitches_choose_what_was_fast_on_an_h200(
    problem: tuple[int, int, int], tile: tuple[int, int], cluster: tuple[int, int], swapped: bool
) -> None:
    """In a graph: 66.7, 69.2, 122.7, 90.2 and 80.5 us, where the fastest of other tiles took 77.1, 82.0, 136.0,
    102.1 and 81.6.
    """
    found = plan(replace(gemm(), family="sm90"), "sm_90", problem)
    assert isinstance(found, GemmPlan)
    assert (found.cta_tile[:2], found.mma.cluster[:2], found.swapped) == (tile, cluster, swapped)


def test_a_tile_of_the_spec_and_other_elements_are_left_alone() -> None:
    given = plan(
        replace(gemm(), family="sm90", tile=replace(gemm().tile, cta=(128, 128, 64))), "sm_90", (824, 5456, 5088)
    )
    assert isinstance(given, GemmPlan)
    assert given.cta_tile == (128, 128, 64)
