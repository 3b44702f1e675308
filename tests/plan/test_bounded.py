"""Planning costs little whatever is asked: work and bytes are bounded, never a time."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import offsets
from cutegen.errors import SpecError
from cutegen.hardware import wavefronts
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.scheduler import TileOrder
from cutegen.plan.operands import shared_memory, staging
from cutegen.plan.operands.shared_memory import choose_smem
from cutegen.plan.schedule import order
from cutegen.plan.schedule.order import MOST_WAVES, TileGrid, traffic
from cutegen.plan.values.operand import OperandTile
from cutegen.spec import GemmSpec, Smem, SmemLayout, Tile
from tests.plan.specs import gemm

MOST_PEAK_BYTES = 4 << 20
MATRICES = {"sm80": "f16", "sm120": "f16", "simt": "f32"}


def of_family(family: str, cta: tuple[int, int, int]) -> GemmSpec:
    bare = gemm(dtype=MATRICES[family], tile=Tile(cta))
    return replace(bare, family=family)


@pytest.mark.parametrize("family", MATRICES)
@pytest.mark.parametrize("cta", [(8192, 8192, 8192), (256, 256, 4096), (8192, 16, 8192), (2048, 2048, 16)], ids=str)
def test_what_cannot_fit_is_refused_before_its_tables_are_made(family: str, cta: tuple[int, int, int]) -> None:
    """A table of a tile holds 8 bytes for each element, which for 8192x8192 is half a gigabyte."""
    spec = of_family(family, cta)
    tracemalloc.start()
    try:
        with pytest.raises(SpecError) as caught:
            plan(spec, "sm_90")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.key == "tile.cta"
    assert peak_bytes < MOST_PEAK_BYTES


@pytest.mark.parametrize("cta", [(192, 256, 32), (128, 128, 32)], ids=str)
def test_a_ranking_counts_each_access_once_however_often_it_is_made(
    cta: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread's accesses are mostly one another's, moved by whole turns over the banks."""
    counted = Counter[str]()

    def counting(byte_offsets: np.ndarray[tuple[int, ...], np.dtype[np.int64]], access_bytes: int) -> Any:
        counted["accesses"] += byte_offsets.size // byte_offsets.shape[-1]
        counted["layouts"] += 1
        return wavefronts(byte_offsets, access_bytes)

    monkeypatch.setattr(shared_memory, "wavefronts", counting)
    plan(of_family("simt", cta), "sm_89")
    assert counted["layouts"] > 200
    assert counted["accesses"] < 64 * counted["layouts"]


def test_tiles_whose_stages_cannot_fit_are_passed_over_unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight stages leave few of the tiles that are compared for a problem."""
    ranked: list[tuple[int, int]] = []

    def counting(spec: GemmSpec, x: OperandTile, *others: Any) -> Any:
        ranked.append(x.extents)
        return choose_smem(spec, x, *others)

    for module in (staging, shared_memory):
        monkeypatch.setattr(module, "choose_smem", counting)
    spec = gemm(dtype="f16", tile=Tile(stages=8))
    found = plan(spec, "sm_120", (65536, 512, 1000))
    assert isinstance(found, GemmPlan)
    assert found.stages == 8
    (compared,) = (decision for decision in found.decisions if decision.key == "tile.cta")
    assert len(compared.rejected) > 10
    assert len(ranked) <= 3 * 2


def brute_force_bytes(order: TileOrder, grid: TileGrid, ctas: int, l2_bytes: int) -> int:
    """What the waves read from device memory, with the cache as a list of rows, the least recently used first."""
    tile_m, tile_n = order.tiles((grid.tiles_m, grid.tiles_n))
    held: list[tuple[str, int]] = []
    cost, read = {"a": grid.bytes_a, "b": grid.bytes_b}, 0
    for start in range(0, len(tile_m), ctas):
        part = slice(start, start + ctas)
        rows = [("a", x) for x in set(tile_m[part].tolist())] + [("b", x) for x in set(tile_n[part].tolist())]
        read += sum(cost[kind] for kind, x in rows if (kind, x) not in held)
        held = [row for row in held if row not in rows] + rows
        if sum(cost[kind] for kind, _ in rows) > l2_bytes:
            held = []
        while sum(cost[kind] for kind, _ in held) > l2_bytes:
            held.pop(0)
    return read


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_model_is_a_list_of_rows_that_forgets_the_oldest(seed: int) -> None:
    random = np.random.default_rng(seed)
    grid = TileGrid(
        tiles_m=int(random.integers(1, 20)),
        tiles_n=int(random.integers(1, 20)),
        bytes_a=100,
        bytes_b=int(random.integers(1, 300)),
    )
    ctas = int(random.integers(max(1, grid.tiles_m * grid.tiles_n // MOST_WAVES + 1), 80))
    order = TileOrder("mn"[int(random.integers(2))], int(random.integers(1, 9)), bool(random.integers(2)))
    l2_bytes = int(random.integers(100, 6000))
    assert traffic(order, grid, 1, ctas, l2_bytes).bytes == brute_force_bytes(order, grid, ctas, l2_bytes), f"{seed=}"


@pytest.mark.parametrize("problem", [(64, 65537, 100), (2147352576, 2147352576, 64)], ids=str)
def test_an_order_of_tiles_looks_at_each_wave_a_few_times(
    problem: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a wave are looked at when it is read and when they go: twice, and once more for each wave after it."""
    seen = Counter[str]()
    read, forget = order._Cache.read, order._Cache._forget

    def reading(cache: Any, rows: Any) -> int:
        seen["read"] += len(rows)
        return read(cache, rows)

    def forgetting(cache: Any, excess_bytes: int) -> None:
        seen["forgotten"] += len(cache._waves[0][1])
        forget(cache, excess_bytes)

    monkeypatch.setattr(order._Cache, "read", reading)
    monkeypatch.setattr(order._Cache, "_forget", forgetting)
    found = plan(gemm("mnm", tile=Tile((32, 8, 32))), "sm_86", problem)
    assert isinstance(found, GemmPlan)
    tiles_in_a_wave = 84 * found.predictions.occupancy.ctas_per_sm
    orders = 24
    assert 0 < seen["read"] <= 2 * orders * MOST_WAVES * tiles_in_a_wave
    assert seen["forgotten"] <= 2 * seen["read"]


PADDED = {
    "wider than two rows": ((16, 128, 16), SmemLayout(pad=24), 3),
    "a whole row": ((64, 64, 32), SmemLayout(pad=32), 3),
    "wider than a row": ((128, 96, 32), SmemLayout(pad=40), 3),
    "rows between those of an atom": ((64, 64, 32), SmemLayout(layout="(64,8):(48,1)"), 4),
}


@pytest.mark.parametrize("name", PADDED)
def test_stages_follow_one_another_whatever_the_pad(name: str) -> None:
    """Each stage lies as the first one does, as far behind it as its bytes say."""
    cta, layout, stages = PADDED[name]
    found = plan(gemm(tile=Tile(cta, stages), smem=Smem(a=layout)), "sm_90")
    assert isinstance(found, GemmPlan)
    smem, elems = found.a.smem, cta[0] * cta[2]
    placed = offsets(smem.layout).reshape(stages, elems)
    stage_elems = smem.bytes // stages // 2
    assert np.array_equal(placed, placed[0] + stage_elems * np.arange(stages)[:, None])
    assert len(np.unique(placed)) == placed.size
    assert placed[0].max() < stage_elems
