"""What the page on tiles says of their orders, against the stored times and the model of the L2 cache."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import plan
from cutegen.plan.kernel.scheduler import TileOrder
from cutegen.plan.schedule.order import ONE_BAND, TileGrid, bands_of, given_order, mode_of_bands, traffic
from cutegen.spec import GemmSpec, Operand, Problem, Raster, Schedule, Tile
from tests.gpu.families import FAMILIES
from tests.gpu.measured import STORED, geometric_mean
from tests.gpu.settings import Setting, parsed
from tests.gpu.sweep import RASTERS
from tests.gpu.sweep_kernels import shape_of
from tests.gpu.sweep_orders import grid_of, merged, multiplied, name_of, order_of
from tests.plan.pages import DOCS, words_of

PAGE = words_of("lab/tile_orders.md")
TIMES_US = json.loads(FAMILIES["sm80"].table.read_text())["times_us"]
ORDERS_OF_NARROW = STORED.with_name("h200_orders.json")
ORDERS_OF_WGMMA = json.loads(STORED.with_name("h100_orders.json").read_text())["problems"]
LARGE = 2**33
"""Multiply-adds."""
LONG_US = 100
KERNEL, SIDE, CTA_M, CTA_N = "128x256x64_2x4_s3_k1", 8192, 128, 256
BYTES = 2  # of an f16
ORDERS = {"n8": TileOrder("n", 8, False)} | {
    name: TileOrder(row.along, row.group, bool(row.zigzag)) for name, row in RASTERS.items()
}


def test_the_page_has_every_order_with_its_time_and_its_bytes() -> None:
    rows = re.findall(r"\| `(\w+)`[^|]*\| (\d+) \| ([nm]) \| ([\d,]+) \| ([\d.]+) \|", PAGE)
    assert {name for name, *_ in rows} == set(ORDERS)
    for name, group, along, megabytes, factor in rows:
        order = ORDERS[name]
        assert (int(group), along) == (order.group, order.along)
        assert int(megabytes.replace(",", "")) == round(_bytes_read(order) / 1e6)
        assert float(factor) == round(_factor(TIMES_US[f"{SIDE}x{SIDE}x{SIDE}"], KERNEL, name), 3)


def test_the_page_says_how_little_an_order_matters() -> None:
    factors = [_factor(times, kernel, order) for times, kernel, order in _ordered() if order != "n8"]
    near = sum(0.97 <= factor <= 1.03 for factor in factors)
    assert f"{near} of {len(factors)} times lie within 3 % of the default's" in PAGE


def test_the_page_compares_the_two_directions_as_they_were_measured() -> None:
    factors = [
        _us(times, kernel, order) / _us(times, kernel, order.replace("m", "n"))
        for times, kernel, order in _ordered()
        if order.startswith("m")
    ]
    assert len(factors) > 50
    said = f"{min(factors):.2f} to {max(factors):.2f} times their time, {median(factors):.2f} in the median"
    assert said in PAGE
    assert median(factors) == pytest.approx(1, abs=0.01), "then the page may not say that they are no slower"


def _ordered() -> Iterator[tuple[dict[str, float], str, str]]:
    """(times, kernel, order) of every kernel of a long launch that was measured in several orders."""
    for times in TIMES_US.values():
        for name in times:
            kernel, _, order = name.rpartition("_")
            if order in ORDERS and times[kernel] >= LONG_US:
                yield times, kernel, order


def _factor(times: dict[str, float], kernel: str, order: str) -> float:
    return _us(times, kernel, order) / times[kernel]


def _us(times: dict[str, float], kernel: str, order: str) -> float:
    return times[kernel] if order == "n8" else times[f"{kernel}_{order}"]


def _bytes_read(order: TileOrder) -> int:
    grid = TileGrid(
        tiles_m=SIDE // CTA_M, tiles_n=SIDE // CTA_N, bytes_a=CTA_M * SIDE * BYTES, bytes_b=CTA_N * SIDE * BYTES
    )
    gpu = GPUS["sm_90"]
    return traffic(order, grid, 1, gpu.sms, gpu.l2_bytes).bytes


def in_both_orders() -> Iterator[tuple[tuple[int, int], ProblemShape, dict[str, float]]]:
    """Kernels of CTAs alone that a run measured along both modes: tile, problem as they multiply it, microseconds."""
    for run in json.loads(STORED.read_text())["runs"]:
        names = {index: name for index, name in enumerate(run["names"]) if "_c1x1_k1_" in name and "sm90" in name}
        for text, rows in run["us"].items():
            us = {names[index]: graph for index, graph, *_ in rows if index in names}
            for name in us:
                if "_m8" in name and (other := name.replace("_m8", "_n8")) in us:
                    m, n, k = shape_of(text)
                    setting = parsed(name)
                    problem = ProblemShape(n, m, k) if setting.swap else ProblemShape(m, n, k)
                    yield setting.cta[:2], problem, {"m": us[name], "n": us[other]}


def test_narrow_grids_go_along_their_shorter_side() -> None:
    """As measured on an H200, where the wider tile says otherwise."""
    seen = []
    for tile, problem, us in in_both_orders():
        along, other = bands_of((*tile, 1), (1, 1, 1), problem).along, mode_of_bands((*tile, 1), (1, 1, 1), problem)
        if along != other:
            seen.append(us[along] / us[other])
    assert len(seen) > 12
    assert geometric_mean(seen) < 0.98
    assert max(seen) < 1.005


def test_which_grids_are_one_band() -> None:
    """As measured on an H200: each kernel in bands of 8 and in one of 16, of which the page says what comes of it."""
    one, others = [], []
    for text, us in json.loads(ORDERS_OF_NARROW.read_text())["us"].items():
        (eight, sixteen), (us_eight, us_sixteen) = us, us.values()
        assert (parsed(eight).order[1:], parsed(sixteen).order[1:]) == ("8", "16"), text
        (one if _across(parsed(eight), text) in ONE_BAND else others).append(us_sixteen / us_eight)
    said = f"{geometric_mean(one):.3f} times as long as in bands of 8 on average, {min(one):.2f} to {max(one):.2f}"
    assert f"{said}, on {len(one)}" in PAGE
    alone = [
        us["m16"][0] / us["m8"][0]
        for us in (ORDERS_OF_WGMMA[problem]["us"] for problem in ("832x1280x4992", "1344x1664x5632"))
    ]
    assert geometric_mean(others) == pytest.approx(1, abs=0.01)
    assert min(alone) > 1.1, "then a grid of 13 may be one band, too"


def _across(setting: Setting, shape: str) -> int:
    """How many tiles, of clusters, lie along the mode of a kernel's bands."""
    m, n, _ = shape_of(shape)
    side = m if (setting.order[0] == "m") != setting.swap else n
    return -(-side // setting.block[setting.order[0] == "n"])


def orders_of_wgmma() -> Iterator[tuple[ProblemShape, dict[str, Any], dict[TileOrder, float], TileOrder | None]]:
    """Of each problem, as the kernel multiplies it, microseconds of each order, and which of them the rule takes.

    Orders that go through a grid alike were measured once; None: the order of the rule was not. A time is the geometric
    mean of a GPU that rests and of one that does not.
    """
    for text, row in ORDERS_OF_WGMMA.items():
        shape = shape_of(text)
        problem, grid = multiplied(row, shape), grid_of(row, shape)
        times = {order_of(name): math.sqrt(us[0] * us[2]) for name, us in row["us"].items() if name != "torch"}
        taken = [x.tolist() for x in bands_of(tuple(row["tile"]), tuple(row["cluster"]), problem).tiles(grid)]
        alike = [order for order in times if [x.tolist() for x in order.tiles(grid)] == taken]
        yield problem, row, times, alike[0] if alike else None


def test_the_page_says_how_good_the_order_of_warpgroups_is() -> None:
    """As measured on H100s: beside the best of all orders, and beside the one that reads least from device memory."""
    beside_best: dict[str, list[float]] = {"large problems": [], "other problems": [], "with clusters along K": []}
    beside_least, left_out = [], 0
    for problem, row, times, taken in orders_of_wgmma():
        if taken is None:
            left_out += 1
            continue
        (m, n, _), k = row["tile"], problem.k
        size = "large problems" if problem.m * problem.n * k >= LARGE else "other problems"
        of = "with clusters along K" if row["cluster"][2] > 1 else size
        beside_best[of].append(times[taken] / min(times.values()))
        grid = TileGrid(
            tiles_m=-(-problem.m // m), tiles_n=-(-problem.n // n), bytes_a=m * k * BYTES, bytes_b=n * k * BYTES
        )
        gpu = GPUS["sm_90"]
        read = {order: traffic(order, grid, 1, gpu.sms, gpu.l2_bytes).bytes for order in times}
        least = min(read, key=read.__getitem__)
        if read[taken] > 1.02 * read[least]:
            beside_least.append(times[least] / times[taken])
    for which, factors in beside_best.items():
        said = f"{geometric_mean(factors):.3f} times as long as the best of all that were measured, {max(factors):.2f}"
        assert f"{said} at most, on {len(factors)} {which}" in PAGE
    said = f"{min(beside_least):.3f} to {max(beside_least):.2f} times as long, {geometric_mean(beside_least):.3f}"
    assert f"{said} on average, on {len(beside_least)}" in PAGE
    assert {2: "Two more problems are left out"}[left_out] in PAGE


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
