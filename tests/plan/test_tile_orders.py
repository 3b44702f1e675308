"""What the page on tiles says of their orders, against the stored times and the model of the L2 cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan.predict.tile_orders import TileGrid, traffic
from cutegen.plan.rules.pipeline import given_order, order_of, sharing_more
from cutegen.plan.values.gemm_plan import RasterPlan
from cutegen.spec import Raster
from tests.gpu.families import FAMILIES
from tests.gpu.measured import STORED, geometric_mean
from tests.gpu.settings import parsed
from tests.gpu.sweep import RASTERS
from tests.gpu.sweep_kernels import shape_of

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "tile_model.md").read_text().split())
TIMES_US = json.loads(FAMILIES["sm80"].table.read_text())["times_us"]
ORDERS_OF_NARROW = STORED.with_name("h200_orders.json")
LONG_US = 100
KERNEL, SIDE, CTA_M, CTA_N = "128x256x64_2x4_s3_k1", 8192, 128, 256
BYTES = 2  # of an f16
ORDERS = {"n8": RasterPlan("n", 8, False)} | {
    name: RasterPlan(row.along, row.group, bool(row.zigzag)) for name, row in RASTERS.items()
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


def _bytes_read(order: RasterPlan) -> int:
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
        along, other = order_of(tile, (1, 1), problem).along, sharing_more(tile, problem)
        if along != other:
            seen.append(us[along] / us[other])
    assert len(seen) > 12
    assert geometric_mean(seen) < 0.98
    assert max(seen) < 1.005


def test_grids_of_up_to_sixteen_tiles_are_one_band() -> None:
    """As measured on an H200: each kernel in bands of 8 and in one of 16, of which the page says what comes of it."""
    factors = []
    for text, us in json.loads(ORDERS_OF_NARROW.read_text())["us"].items():
        (eight, sixteen), (us_eight, us_sixteen) = us, us.values()
        m, n, k = shape_of(text)
        settings = [parsed(name) for name in (eight, sixteen)]
        problem = ProblemShape(n, m, k) if settings[0].swap else ProblemShape(m, n, k)
        order = order_of(settings[0].cta[:2], settings[0].cluster[:2], problem)
        assert (order.along + str(order.group), settings[0].order[1]) == (settings[1].order, "8"), text
        factors.append(us_sixteen / us_eight)
    assert f"{geometric_mean(factors):.3f} times as long as in bands of 8 on average" in PAGE
    slower = sum(factor >= 1.01 for factor in factors)
    said = f"{min(factors):.2f} to {max(factors):.2f}, slower by 1 % or more on {slower} of {len(factors)}"
    assert f"on average, {said}" in PAGE


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (None, "n8"),
        ((1024, 1024, 64), "n8"),
        ((2048, 1152, 64), "n16"),
        ((1152, 2048, 64), "m16"),
        ((4096, 2048, 64), "n16"),
        ((2048, 2176, 64), "m16"),
        ((2176, 2176, 64), "n8"),
    ],
)
def test_the_width_of_bands_follows_the_grid(problem: tuple[int, int, int] | None, expected: str) -> None:
    order = order_of((128, 128), (1, 1), ProblemShape(*problem) if problem else None)
    assert f"{order.along}{order.group}" == expected


def test_what_a_spec_says_of_an_order_is_kept() -> None:
    default = RasterPlan("n", 16, False)
    assert given_order(Raster(), default) == default
    assert given_order(Raster(group=4, zigzag=True), default) == RasterPlan("n", 4, True)
    assert given_order(Raster(along="n"), default) == default
    assert given_order(Raster(along="m"), default) == RasterPlan("m", 8, False)
