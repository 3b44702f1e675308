"""Orders of grids that fill the GPU once: which orders plans select, and what the page says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan import plan
from cutegen.plan.kernel.scheduler import TileOrder
from cutegen.plan.schedule import order as tile_order_rules
from cutegen.plan.schedule.order import bands_of
from cutegen.spec import GemmSpec, Operand, Problem, Schedule, Tile
from tests.gpu.measured import STORED, TORCH, geometric_mean
from tests.gpu.settings import Setting, parsed
from tests.gpu.sweep_kernels import shape_of
from tests.gpu.sweep_orders import order_of
from tests.plan.pages import words_of
from tests.plan.worth import rows_of_choices

TABLE = json.loads(STORED.with_name("h100_one_round.json").read_text())
CHOICES: Mapping[str, tuple[float, ...]] = TABLE["choices"]
PAGE = words_of("lab/tile_orders.md")
GPCS_OF_A_CHIP = [16, 18, 16, 16, 18, 16, 16, 16]
"""SMs: larger ones neither first nor last, as the rule has them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel on a problem as it multiplies it, its microseconds by order, and torch.matmul's."""

    setting: Setting
    problem: ProblemShape
    us: Mapping[str, float]
    before: str
    torch: float

    @property
    def grid(self) -> tuple[int, int]:
        """Clusters along M and N."""
        rows, columns = self.setting.block
        return -(-self.problem.m // rows), -(-self.problem.n // columns)

    @property
    def is_alone(self) -> bool:
        return self.setting.cluster == (1, 1)

    @property
    def is_once(self) -> bool:
        ctas = self.setting.cluster[0] * self.setting.cluster[1]
        return self.grid[0] * self.grid[1] * ctas <= 132

    def of(self, order: TileOrder) -> float:
        """Times as long as in the order before, in the measured order that visits tiles alike."""
        taken = way(order, self.grid)
        return (
            next(us for name, us in self.us.items() if way(order_of(name), self.grid) == taken) / self.us[self.before]
        )

    def selected(self) -> float:
        return self.of(bands_of(self.setting.cta, (*self.setting.cluster, 1), self.problem))


def way(order: TileOrder, grid: tuple[int, int]) -> bytes:
    return b"".join(each.tobytes() for each in order.tiles(grid))


def measured() -> Iterator[Measured]:
    for text, kernels in TABLE["orders"].items():
        m, n, k = shape_of(text)
        for name, row in kernels.items():
            setting, us = parsed(name), dict(row["us"])
            problem = ProblemShape(n, m, k) if setting.swap else ProblemShape(m, n, k)
            yield Measured(setting, problem, us, row["before"], us.pop(TORCH))


ALONE_ONCE = [each for each in measured() if each.is_alone and each.is_once]
SQUARE = [each for each in ALONE_ONCE if min(each.grid) >= 7]


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


def test_the_page_says_what_the_rule_gains() -> None:
    """On the kernels that it was derived from, and on others."""
    selected = [each.selected() for each in SQUARE]
    best = [min(each.us.values()) / each.us[each.before] for each in SQUARE]
    said = f"On {len(SQUARE)} kernels in up to {max(len(each.us) for each in SQUARE)} orders"
    assert said in PAGE
    assert f"takes {geometric_mean(selected):.3f} times as long" in PAGE
    assert (
        f"({min(selected):.2f} to {max(selected):.2f}), and the best of all orders {geometric_mean(best):.3f}" in PAGE
    )
    shorter = [each.of(TileOrder("m" if each.grid[0] < each.grid[1] else "n", 4, False)) for each in SQUARE]
    assert f"Bands of 4 along the shorter side take {geometric_mean(shorter):.3f}, and up to {max(shorter):.2f}" in PAGE
    before = [each.torch / each.us[each.before] for each in SQUARE]
    since = [speed / factor for speed, factor in zip(before, selected, strict=True)]
    assert f"{geometric_mean(before):.2f} times as fast as torch, and are {geometric_mean(since):.2f}" in PAGE
    pairs = [us for kernels in TABLE["since"].values() for us in kernels.values()]
    graph = [since / before for before, since, *_ in pairs]
    launch = [since / before for *_, before, since in pairs]
    assert f"On {len(pairs)} kernels of {len(TABLE['since'])} other problems" in PAGE
    assert f"{geometric_mean(graph):.3f} times as long, {min(graph):.2f} to {max(graph):.2f}, and" in PAGE
    assert f"{geometric_mean(launch):.3f} in one launch" in PAGE
    assert not TABLE["since"].keys() & TABLE["orders"].keys()


def test_the_page_says_where_the_rule_gains_nothing() -> None:
    every = list(measured())
    many = [each for each in every if each.is_alone and not each.is_once]
    clusters = [each for each in every if not each.is_alone and each.is_once]
    assert f"On {len(many)} kernels without clusters and several rounds" in PAGE
    assert f"on {len(clusters)} with clusters that run all at once" in PAGE
    assert all(each.selected() == 1.0 for each in (*many, *clusters))


def test_the_page_says_what_the_rule_would_cost_on_narrow_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_order_rules, "SQUARE", 6)
    narrow = [each.selected() for each in ALONE_ONCE if min(each.grid) == 6]
    average = geometric_mean(narrow)
    said = f"on {len(narrow)} kernels with 6 the count selects orders that take {average:.3f} times as long"
    assert f"{said}, {max(narrow):.2f} at most" in PAGE
    assert average > 1.0


def test_the_page_says_what_the_choice_gains_on_problems_drawn_apart() -> None:
    assert all(row in PAGE for row in rows_of_choices(CHOICES))
    shares = {text: since / before for text, (before, since, *_) in CHOICES.items()}
    said = [f"{geometric_mean(shares.values()):.3f} times as long in a graph, from"]
    for found in (min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)):
        kind, _, shape = found.partition(": ")
        said.append(f"{shares[found]:.2f} ({shape.replace('x', ' x ')}, {kind})")
    assert f"{said[0]} {said[1]} to {said[2]}" in PAGE
