"""Which orders of tiles plans select, and what they say of them."""

from __future__ import annotations

import json
import re

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import plan
from cutegen.plan.kernel.scheduler import TileOrder
from cutegen.plan.schedule.order import TileGrid, bands_of, given_order, traffic
from cutegen.spec import GemmSpec, Operand, Problem, Raster, Schedule, Tile
from tests.gpu.measured import STORED
from tests.gpu.sweep_orders import merged, name_of
from tests.plan.pages import DOCS

ORDERS_OF_WGMMA = json.loads(STORED.with_name("h100_orders.json").read_text())["problems"]
SIDE, CTA_M, CTA_N = 8192, 128, 256
BYTES = 2  # of an f16
GPCS_OF_A_CHIP = [16, 18, 16, 16, 18, 16, 16, 16]
"""SMs: larger ones neither first nor last, as the rule has them."""


def _bytes_read(order: TileOrder) -> int:
    grid = TileGrid(
        tiles_m=SIDE // CTA_M, tiles_n=SIDE // CTA_N, bytes_a=CTA_M * SIDE * BYTES, bytes_b=CTA_N * SIDE * BYTES
    )
    gpu = GPUS["sm_90"]
    return traffic(order, grid, 1, gpu.sms, gpu.l2_bytes).bytes


def test_the_page_of_experiments_has_what_was_measured() -> None:
    """Each row: the tile, and two orders with what their times are of torch.matmul's, in a graph and rested."""
    text = (DOCS / "lab/hopper_experiments.md").read_text()
    order, times = r"bands of (\d+) along (\w)(, zigzag)?", r"([\d.]+) \| ([\d.]+)"
    rows = re.findall(rf"^\| ([\d x]+) \| (\d+ x \d+)[^|]* \| {order} \| {times} \| {order} \| {times} \|$", text, re.M)
    assert len(rows) == 9
    for problem, tile, *both in rows:
        row = ORDERS_OF_WGMMA[problem.replace(" ", "")]
        assert tile == " x ".join(map(str, row["tile"][:2]))
        for group, along, zigzag, graph, rested in (both[:5], both[5:]):
            us = row["us"][f"{along}{group}{'z' if zigzag else ''}"]
            said = [f"{torch_us / own_us:.2f}" for torch_us, own_us in zip(row["us"]["torch"], us, strict=True)]
            assert [graph, rested] == [said[0], said[2]]


def test_times_of_several_files_are_one() -> None:
    row = {"tile": [64, 64, 64], "cluster": [1, 1, 1], "swap": False}
    first = {"device": "GPU", "problems": {"8x8x8": {**row, "us": {"torch": [2, 2, 2], "m8": [1, 2, 9]}}}}
    other = {"device": "GPU", "problems": {"8x8x8": {**row, "us": {"torch": [8, 2, 2], "m8": [4, 8, 4]}}}}
    found = merged([first, other])
    assert found["problems"]["8x8x8"]["us"] == {"torch": [4, 2, 2], "m8": [2, 4, 6]}
    assert found["problems"]["8x8x8"]["tile"] == row["tile"]


def test_a_large_grid_with_slices_in_clusters_has_bands_of_eight() -> None:
    """Of a few clusters the widths are tried, where 8 is not the best; of many they are not, which would take long."""
    tile, cluster = (64, 96, 64), (1, 1, 4)
    assert bands_of(tile, cluster, ProblemShape(272, 456, 3680)).group == 4
    assert bands_of(tile, cluster, ProblemShape(64 * 20_000, 96 * 20_000, 3680)).group == 8


@pytest.mark.parametrize(
    ("raster", "cluster", "expected", "said"),
    [
        (None, None, "m8", "adjacent CTAs, which are on one GPC, share 256 rows of B"),
        (None, (2, 1), "m8", "every 8th, share 256 rows of A"),
        (Raster(zigzag=True), None, "m8z", "CTAs in flight cover a block 8 tiles wide"),
        (Raster(along="n"), None, "n8", "CTAs in flight cover a block 8 tiles wide"),
        (Raster("m", 1, False), None, "m1", "CTAs in flight share their rows of A"),
    ],
)
def test_a_plan_says_what_is_shared(
    raster: Raster | None, cluster: tuple[int, int] | None, expected: str, said: str
) -> None:
    row = Operand("f16", "k")
    problem = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
    schedule = Schedule(raster=raster, cluster=cluster, swap=False)
    tile = Tile((CTA_M, CTA_N, 64))
    spec = GemmSpec(family="sm90", problem=problem, tile=tile, schedule=schedule, name="orders")
    made = plan(spec, "sm_90", (SIDE, SIDE, SIDE))
    assert name_of(made.scheduler.order) == expected
    (why,) = (each for each in made.decisions if each.key == "schedule.raster")
    assert said in why.why
    assert why.given == (raster == Raster("m", 1, False))
    assert bool(why.for_problem) != why.given


def test_bytes_decide_nothing_where_tensor_cores_read_shared_memory() -> None:
    """Of 128 rows by 256 columns: zigzag along N reads least, and bands along M share 256 rows."""
    row = Operand("f16", "k")
    problem = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
    spec = GemmSpec(family="sm90", problem=problem, tile=Tile((CTA_M, CTA_N, 64)), name="orders")
    made = plan(spec, "sm_90", (SIDE, SIDE, SIDE))
    assert made.scheduler.order == TileOrder("m", 8, False)
    assert _bytes_read(TileOrder("n", 8, True)) < _bytes_read(made.scheduler.order)
    (why,) = (each for each in made.decisions if each.key == "schedule.raster")
    assert "256 rows of B" in why.why
    assert [each.why for each in why.rejected] == ["they would share 128 rows of A"]


def rows_requested(order: TileOrder, grid: tuple[int, int], tile: tuple[int, int]) -> int:
    tiles = list(zip(*(each.tolist() for each in order.tiles(grid)), strict=True))
    rows = 0
    for sms in GPCS_OF_A_CHIP:
        of_gpc, tiles = tiles[:sms], tiles[sms:]
        rows += tile[0] * len({m for m, _ in of_gpc}) + tile[1] * len({n for _, n in of_gpc})
    return rows


@pytest.mark.parametrize("grid", [(16, 8), (13, 10), (11, 12), (9, 14), (7, 18)])
def test_the_ctas_of_a_gpc_request_few_rows(grid: tuple[int, int]) -> None:
    """Also on a chip that has its larger GPCs elsewhere: at most a tenth more than in the best of all orders."""
    tile = (64, 128)
    order = bands_of((*tile, 64), (1, 1, 1), ProblemShape(grid[0] * tile[0], grid[1] * tile[1], 4096))
    every = [TileOrder(along, width, False) for along in ("m", "n") for width in range(1, 17)]
    requested = [rows_requested(each, grid, tile) for each in every]
    assert rows_requested(order, grid, tile) <= 1.1 * min(requested)
    assert 1.4 * min(requested) < max(requested)


@pytest.mark.parametrize(
    ("grid", "cluster", "expected"),
    [
        ((16, 8), (1, 1, 1), "n3"),
        ((19, 6), (1, 1, 1), "n8"),  # a narrow grid is one band
        ((8, 8), (1, 1, 1), "m8"),  # leaves half of the SMs idle
        ((19, 7), (1, 1, 1), "n8"),  # a second round
        ((16, 8), (2, 1, 1), "m8"),
    ],
)
def test_which_grids_have_other_orders(grid: tuple[int, int], cluster: tuple[int, int, int], expected: str) -> None:
    problem = ProblemShape(grid[0] * cluster[0] * 64, grid[1] * cluster[1] * 128, 4096)
    order = bands_of((64, 128, 64), cluster, problem)
    assert f"{order.along}{order.group}" == expected


def test_a_plan_says_why() -> None:
    row = Operand("f16", "k")
    problem = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
    schedule = Schedule(cluster=(1, 1), swap=False)
    spec = GemmSpec(family="sm90", problem=problem, tile=Tile((64, 128, 64)), schedule=schedule, name="once")
    (why,) = (each for each in plan(spec, "sm_90", (1024, 1024, 4096)).decisions if each.key == "schedule.raster")
    assert why.chosen.startswith("bands of 3 tiles along n")
    assert "16 or 18 adjacent CTAs, request fewer rows of A and B" in why.why
    assert why.for_problem.endswith("all are in flight at once")


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (None, "n8"),
        ((1024, 1024, 64), "n8"),
        ((2048, 1152, 64), "n16"),
        ((1152, 2048, 64), "m16"),
        ((1280, 2048, 64), "m16"),
        ((1408, 2048, 64), "m8"),
        ((4096, 2048, 64), "n8"),
        ((1920, 2176, 64), "m8"),
        ((2048, 2176, 64), "m8"),
        ((2176, 2176, 64), "n8"),
    ],
)
def test_the_width_of_bands_follows_the_grid(problem: tuple[int, int, int] | None, expected: str) -> None:
    order = bands_of((128, 128, 64), (1, 1, 1), ProblemShape(*problem) if problem else None)
    assert f"{order.along}{order.group}" == expected


def test_what_a_spec_says_of_an_order_is_kept() -> None:
    default = TileOrder("n", 16, False)
    assert given_order(Raster(), default) == default
    assert given_order(Raster(group=4, zigzag=True), default) == TileOrder("n", 4, True)
    assert given_order(Raster(along="n"), default) == default
    assert given_order(Raster(along="m"), default) == TileOrder("m", 8, False)
