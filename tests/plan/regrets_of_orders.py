"""What the selected orders of tiles cost on stored tables, beside the best order of the same kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Instruction, dtype
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.scheduler import TileOrder
from cutegen.plan.schedule import order as rules
from cutegen.plan.schedule.order import BAND, in_flight_of, mode_of_bands
from cutegen.plan.search import warpgroup_model
from cutegen.plan.search.warpgroup_rows import is_small
from cutegen.spec import Mma, Schedule, Tile
from tests.gpu.estimates import compared_us
from tests.gpu.families import FAMILIES
from tests.gpu.families import name_of as tile_of
from tests.gpu.measured import TORCH
from tests.gpu.settings import Setting, parsed
from tests.gpu.sweep import RASTERS
from tests.gpu.sweep_kernels import Shape, shape_of
from tests.gpu.sweep_orders import grid_of, multiplied, order_of
from tests.gpu.sweep_spread import SIDE_BY_SIDE
from tests.plan.study import OF_ORDERS, Case, Patch, Study
from tests.plan.worth import DEVICE, OPEN

DEFAULT = "n8"
Grid = tuple[int, int]
"""Clusters along M and N."""


def way(order: TileOrder, grid: Grid) -> bytes:
    """Return the tiles of a grid in an order, to compare orders by."""
    return b"".join(each.tobytes() for each in order.tiles(grid))


def _alike(order: TileOrder, grid: Grid, names: Iterable[str]) -> str | None:
    """Return the first of the orders that visits tiles as the given one does, None if none was measured."""
    return next((name for name in names if way(order_of(name), grid) == way(order, grid)), None)


def _shape(setting: Setting, text: str) -> ProblemShape:
    """Return the problem as a kernel multiplies it."""
    return multiplied({"swap": setting.swap}, shape_of(text))


def _grid(setting: Setting, problem: ProblemShape) -> Grid:
    return -(-problem.m // setting.block[0]), -(-problem.n // setting.block[1])


def of_mma_sync(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield kernels of `sm80` in several orders, of which plans select by what they read from device memory."""
    family = FAMILIES["sm80"]
    for text, us in table["times_us"].items():
        for candidate in family.candidates:
            kernel = tile_of(candidate, 1)
            found = {raster: us[f"{kernel}_{raster}"] for raster in RASTERS if f"{kernel}_{raster}" in us}
            if found:
                tile = Tile(candidate.cta, candidate.stages)
                spec = replace(OPEN, family="sm80", tile=tile, mma=Mma(atom_layout=candidate.atom_layout))
                made = plan(replace(spec, schedule=Schedule(split_k=1)), DEVICE.name, shape_of(text))
                assert isinstance(made, GemmPlan)
                m, n, _ = shape_of(text)
                times = {DEFAULT: us[kernel], **found}
                grid = -(-m // candidate.cta[0]), -(-n // candidate.cta[1])
                name = _alike(made.scheduler.order, grid, times)
                if name is not None:
                    yield Case(times, us[TORCH], name)


def of_selected_kernels(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the kernels that plans select, in all orders; a time is the mean of a rested GPU and one that is not."""
    for text, row in table["problems"].items():
        shape = shape_of(text)
        us = {name: math.sqrt(graph * rested) for name, (graph, _, rested) in row["us"].items()}
        torch_us, problem = us.pop(TORCH), multiplied(row, shape)
        name = _alike(rules.bands_of(tuple(row["tile"]), tuple(row["cluster"]), problem), grid_of(row, shape), us)
        if name is not None:
            yield Case(us, torch_us, name)


def of_two_widths(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield kernels in bands of 8 and in one of 16; the mode along which they go is not what is compared."""
    for text, measured in table["us"].items():
        (eight, _), (us_eight, us_sixteen) = measured, measured.values()
        setting = parsed(eight)
        across = _grid(setting, _shape(setting, text))[setting.order[0] == "n"]
        selected = "16" if across in rules.ONE_BAND else "8"
        yield Case({"8": us_eight, "16": us_sixteen}, None, selected)


def of_narrow_grids(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield kernels without clusters in bands along both modes, where the wider tile says otherwise than the grid."""
    for run in table["runs"]:
        names = {index: name for index, name in enumerate(run["names"]) if "_c1x1_k1_" in name and "sm90" in name}
        for text, rows in run["us"].items():
            us = {names[index]: graph for index, graph, *_ in rows if index in names}
            for name in us:
                if "_m8" in name and (other := name.replace("_m8", "_n8")) in us:
                    setting = parsed(name)
                    asked = setting.cta, (1, 1, 1), _shape(setting, text)
                    if NARROW(*asked).along != mode_of_bands(*asked):
                        yield Case({"m": us[name], "n": us[other]}, None, rules.bands_of(*asked).along)


NARROW = rules.bands_of
"""The rule itself, which tells the kernels of which both modes are compared from the others."""


def of_one_round(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield kernels in many orders, most of which fill the GPU once."""
    for text, kernels in table["orders"].items():
        for kernel, row in kernels.items():
            setting, us = parsed(kernel), dict(row["us"])
            problem, torch_us = _shape(setting, text), us.pop(TORCH)
            order = rules.bands_of(setting.cta, (*setting.cluster, 1), problem)
            name = _alike(order, _grid(setting, problem), us)
            if name is not None:
                yield Case(us, torch_us, name)


def of_one_round_since(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield kernels of other problems in their order before the rule for one round, and in that since."""
    for text, kernels in table["since"].items():
        for kernel, (before, since, *_) in kernels.items():
            setting = parsed(kernel)
            cluster = (*setting.cluster, 1)
            is_searched = rules._is_searched(cluster, rules._across(setting.cta, cluster, _shape(setting, text)))
            yield Case({"before": before, "since": since}, None, "since" if is_searched else "before")


def _of_kernels(us: Mapping[str, Any]) -> dict[str, float]:
    """Return microseconds in a graph of each kernel, spread where it has few CTAs."""
    return {name: graph for name, (graph, _) in us.items() if name != TORCH and SIDE_BY_SIDE not in name}


def of_few_ctas(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield each kernel of few CTAs, on every second SM and side by side."""
    for text, measured in table["problems"].items():
        for name, graph in _of_kernels(measured).items():
            setting, beside = parsed(name), measured.get(f"{name}, {SIDE_BY_SIDE}")
            if beside is not None:
                problem = _shape(setting, text)
                tile, slices = (setting.cta[0], setting.cta[1]), setting.slices
                tiles = in_flight_of(problem, DEVICE, tile, (dtype("f16"), dtype("f16")), slices, Instruction.WGMMA)
                selected = "spread" if tiles.leaves_half else SIDE_BY_SIDE
                yield Case({"spread": graph, SIDE_BY_SIDE: beside[0]}, measured[TORCH][0], selected)


def of_kernels_with_few_ctas(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield problems with kernels of few CTAs among others; plans compare others still for small products."""
    for text, measured in table["problems"].items():
        shape: Shape = shape_of(text)
        us = _of_kernels(measured)
        predicted = {name: compared_us(parsed(name), shape) for name in us}
        if not is_small(OPEN, ProblemShape(*shape)) and min(predicted.values()) < math.inf:
            yield Case.fastest(us, measured[TORCH][0], predicted)


def _bands_of_eight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "bands_of", lambda *asked: TileOrder(mode_of_bands(*asked), BAND, False))


def _side_by_side(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules.InFlight, "leaves_half", False)


def _set(module: object, name: str, value: object) -> Patch:
    return lambda patch: patch.setattr(module, name, value)


def _default(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "FELT", math.inf)


_study = partial(Study, page=OF_ORDERS)
STUDIES = (
    _study(file="h200_tiles.json", part="`mma.sync`", cases=of_mma_sync, uncorrected=_default, constants={}),
    _study(
        file="h100_orders.json",
        cases=of_selected_kernels,
        uncorrected=_bands_of_eight,
        constants={},
    ),
    _study(
        file="h100_one_round.json",
        cases=of_one_round,
        uncorrected=_set(rules, "ALONE_IN_ONE_ROUND", ()),
        constants={"SQUARE": _set(rules, "SQUARE", 6)},
        choices="choices",
    ),
    _study(
        file="h100_one_round.json",
        part="other problems",
        cases=of_one_round_since,
        uncorrected=_set(rules, "ALONE_IN_ONE_ROUND", ()),
        constants={},
    ),
    _study(
        file="h200_kernels.json",
        part="narrow grids",
        cases=of_narrow_grids,
        uncorrected=_bands_of_eight,
        constants={},
    ),
    _study(file="h200_orders.json", cases=of_two_widths, uncorrected=_set(rules, "ONE_BAND", ()), constants={}),
    _study(
        file="h100_spread.json",
        part="each kernel",
        cases=of_few_ctas,
        uncorrected=_side_by_side,
        constants={},
    ),
    _study(
        file="h100_spread.json",
        part="the selected ones",
        cases=of_kernels_with_few_ctas,
        uncorrected=_set(warpgroup_model, "SPREAD_LATENCY", 1.0),
        constants={"SPREAD_LATENCY": _set(warpgroup_model, "SPREAD_LATENCY", 1.0)},
    ),
)
