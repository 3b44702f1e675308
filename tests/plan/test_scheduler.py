"""The tile scheduler: every tile of every product goes to one CTA, once, for any launch and any sizes of groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest

from cutegen.algebra import Extents
from cutegen.contract.launch import LaunchContract, SplitContract
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.errors import ProofError
from cutegen.hardware import DTYPES
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.scheduler import (
    GRID,
    STATIC,
    SplitK,
    TileOrder,
    TileScheduler,
    WorkTile,
    k_tiles_of,
    slice_of,
)
from cutegen.plan.prove import prove
from cutegen.spec import load_spec

LEAST, MOST = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of a CTA, and the CTAs of a cluster."""

    cta_tile: Extents
    cluster: Extents = (1, 1, 1)


def random_order(random: np.random.Generator) -> TileOrder:
    return TileOrder("mn"[random.integers(2)], int(random.integers(1, 10)), bool(random.integers(2)))


def random_scheduler(random: np.random.Generator) -> tuple[Tiles, TileScheduler]:
    """Any scheduler of a family: a grid with or without slices, or persistent CTAs alone or in clusters."""
    slices = int(random.choice([1, 1, 2, 4]))
    split_k = SplitK(slices, DTYPES["f32"], 1) if slices > 1 else None
    source, cluster, spread = (GRID, STATIC)[random.integers(2)], (1, 1, 1), False
    if source is STATIC:
        along_n, along_k = (int(random.integers(1, 3)), 1) if split_k is None else (1, int(random.choice([1, 2])))
        cluster = (int(random.integers(1, 3)), along_n, along_k)
        spread = cluster == (1, 1, 1) and bool(random.integers(2))
    tile = (int(random.choice([16, 64])), int(random.choice([8, 32])), 16)
    order = random_order(random)
    return Tiles(tile, cluster), TileScheduler(order=order, source=source, split_k=split_k, spread=spread)


def launch_of(tiles: Tiles, scheduler: TileScheduler) -> LaunchContract:
    """What a launcher knows of it, written independently of the planner."""
    (m, n, k), split_k = tiles.cluster, scheduler.split_k
    return LaunchContract(
        entry="gemm",
        tensors=(),
        parameters=(),
        cta_tile=tiles.cta_tile[:2],
        threads=128,
        dynamic_smem_bytes=0,
        ctas_per_multiprocessor=1 if scheduler.source is STATIC else None,
        cluster=(m, k if split_k else n),
        split=SplitContract(split_k.slices, 16) if split_k else None,
        spread=scheduler.spread,
    )


def visited(
    tiles: Tiles,
    scheduler: TileScheduler,
    grid: tuple[int, int, int],
    problem: ProblemShape,
    given: tuple[int, ...] = (),
) -> Counter[WorkTile]:
    x, y, z = map(range, grid)
    return Counter(tile for cta in product(x, y, z) for tile in scheduler.work(tiles, cta, grid, problem, given))


@pytest.mark.parametrize("seed", range(60))
def test_every_tile_of_a_launch_is_computed_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    tiles, scheduler = random_scheduler(random)
    problem = ProblemShape(*(int(random.integers(1, 500)) for _ in "mnk"), int(random.integers(1, 3)))
    launch = launch_of(tiles, scheduler)
    grid = launch.geometry(problem, multiprocessors=int(random.integers(8, 40))).grid
    found = visited(tiles, scheduler, grid, problem)
    assert set(found.values()) == {1}
    (tile_m, tile_n, _), (m, n, _) = tiles.cta_tile, tiles.cluster
    tiles_m, tiles_n = -(-problem.m // (tile_m * m)) * m, -(-problem.n // (tile_n * n)) * n
    every = product(range(tiles_m), range(tiles_n), range(problem.batch), range(scheduler.slices))
    assert found.keys() == {WorkTile(*each) for each in every}
    assert len(found) == launch.tiles(problem) * scheduler.slices


def test_of_two_ctas_on_a_tpc_the_second_exits_and_each_cta_is_named_by_its_rank() -> None:
    """Which CTA has which tile, as the templates compute it: `index & spare` exits, ranks run along M first."""
    few = TileScheduler(order=TileOrder("n", 8, False), source=STATIC, spread=True)
    problem = ProblemShape(192, 64, 64)
    by_cta = [list(few.work(Tiles((64, 64, 64)), (x, 0, 0), (6, 1, 1), problem)) for x in range(6)]
    assert by_cta == [[WorkTile(0, 0)], [], [WorkTile(1, 0)], [], [WorkTile(2, 0)], []]
    clusters, problem = Tiles((64, 64, 64), (2, 2, 1)), ProblemShape(256, 256, 64)
    found = TileScheduler(order=TileOrder("n", 8, False), source=STATIC)
    assert list(found.work(clusters, (3, 1, 0), (4, 2, 1), problem)) == [WorkTile(1, 3), WorkTile(3, 3)]


@pytest.mark.parametrize("seed", range(40))
def test_an_order_and_its_inverse(seed: int) -> None:
    random = np.random.default_rng(seed)
    order, grid = random_order(random), (int(random.integers(1, 30)), int(random.integers(1, 30)))
    tiles = [order.tile(number, grid) for number in range(grid[0] * grid[1])]
    assert sorted(tiles) == list(product(range(grid[0]), range(grid[1])))
    assert [order.number(tile, grid) for tile in tiles] == list(range(len(tiles)))


@pytest.mark.parametrize("slices", [1, 2, 3, 7])
@pytest.mark.parametrize("k_tiles", [1, 2, 6, 7, 20])
def test_slices_cover_k_once_and_differ_by_one_at_most(slices: int, k_tiles: int) -> None:
    parts = [k_tiles_of(index, slices, k_tiles) for index in range(slices)]
    assert [k_tile for part in parts for k_tile in part] == list(range(k_tiles))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(k_tile in parts[slice_of(k_tile, slices, k_tiles)] for k_tile in range(k_tiles))


def garbage(random: np.random.Generator, count: int, rows: int) -> tuple[int, ...]:
    """Ends that mix plausible numbers with any bits."""
    plausible = np.sort(random.integers(0, rows + 1, count))
    wild = random.integers(LEAST, MOST + 1, count)
    return tuple(int(x) for x in np.where(random.random(count) < random.choice([0, 0.3, 1]), wild, plausible))


@pytest.mark.parametrize("seed", range(60))
def test_every_tile_of_every_group_is_computed_once_whatever_the_ends(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, groups = int(random.integers(0, 400)), int(random.integers(1, 9))
    ends, layout = garbage(random, groups, rows), ("packed", "padded")[random.integers(2)]
    scheduler = TileScheduler(order=random_order(random), source=STATIC, groups=Groups("m", layout))
    problem = ProblemShape(rows, int(random.integers(1, 200)), 16)
    found = visited(Tiles((32, 32, 16)), scheduler, (int(random.integers(1, 12)), 1, 1), problem, ends)
    # The same groups by numpy: clamped, and packed ones made monotone.
    clamped = np.clip(ends, 0, rows)
    last = np.maximum.accumulate(clamped)
    sizes = np.diff(last, prepend=0) if layout == "packed" else clamped
    expected = Counter(
        WorkTile(m, n, group)
        for group, size in enumerate(sizes)
        for m, n in product(range(-(-int(size) // 32)), range(-(-problem.n // 32)))
    )
    assert found == expected
    parts = scheduler.products(problem, ends)
    assert [len(part.m) for part in parts] == sizes.tolist()
    assert all(0 <= part.m.start <= part.m.stop <= rows for part in parts)
    if layout == "packed":
        assert [row for part in parts for row in part.m] == list(range(int(last[-1])))


def test_groups_of_k_each_have_all_tiles_even_without_k() -> None:
    scheduler = TileScheduler(order=TileOrder("n", 8, False), source=STATIC, groups=Groups("k", "packed"))
    problem = ProblemShape(64, 96, 100)
    ends = (0, 40, 40, 250)
    assert [part.k for part in scheduler.products(problem, ends)] == [
        range(0),
        range(40),
        range(40, 40),
        range(40, 100),
    ]
    found = visited(Tiles((32, 32, 16)), scheduler, (5, 1, 1), problem, ends)
    assert found == Counter(WorkTile(m, n, group) for m, n, group in product(range(2), range(3), range(4)))


def given_out_twice(found: GemmPlan) -> GemmPlan:
    """A launch of persistent CTAs whose scheduler gives each CTA one tile."""
    return replace(found, scheduler=replace(found.scheduler, source=GRID))


def test_a_scheduler_that_a_launch_does_not_fit_is_not_proved() -> None:
    found = plan(load_spec("sm120_hgemm_tn"), "sm_120")
    assert isinstance(found, GemmPlan)
    prove(found)
    with pytest.raises(ProofError, match="twice, or not at all"):
        prove(given_out_twice(found))


class _Forgetful(TileOrder):
    """Forgets the last, narrower band."""

    __slots__ = ()

    def tiles(self, grid: tuple[int, int], numbers: object = None) -> tuple[np.ndarray, np.ndarray]:
        tile_m, tile_n = super().tiles(grid)
        return tile_m, np.minimum(tile_n, grid[1] // self.group * self.group - 1) if grid[1] > self.group else tile_n


def test_an_order_that_forgets_a_band_is_not_proved() -> None:
    found = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    assert isinstance(found, GemmPlan)
    forgetful = replace(found.scheduler, order=_Forgetful("n", 8, False))
    with pytest.raises(ProofError, match="leaves one out, or has one twice"):
        prove(replace(found, scheduler=forgetful))
