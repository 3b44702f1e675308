"""Which thread and register hold an element of C: against PTX ISA's fragments, not the plan's algebra."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.scheduler import STATIC
from cutegen.spec import Operand, Problem, Raster, Schedule, Tile, load_spec
from cutegen.spec.model import GemmSpec
from cutegen.verify.trial import block_of, producer


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "cute_tutorial_tn"])
def test_it_is_the_fragment_of_ptx_isa(name: str) -> None:
    """mma.m16n8k8 and m16n8k16: c_i lies at row lane / 4 + 8 (i / 2), column 2 (lane mod 4) + i mod 2; 2 x 2 warps."""
    planned, generator = plan(load_spec(name), "sm_80"), random.Random(5)
    for _ in range(20):
        row, column = generator.randrange(300), generator.randrange(200)
        found = producer(planned, row, column, m=300, n=200)
        lane, warp, (value, atom_m, atom_n) = found.thread % 32, found.thread // 32, found.value
        assert found.cta == (row // 128, column // 128)
        assert row % 128 == atom_m * 32 + warp % 2 * 16 + lane // 4 + 8 * (value // 2)
        assert column % 128 == atom_n * 16 + warp // 2 * 8 + 2 * (lane % 4) + value % 2
        assert found.register in str(found)


def swapped_kernel() -> GemmPlan:
    spec = load_spec("sm90_hgemm_tn")
    made = plan(replace(spec, schedule=replace(spec.schedule, swap=True)), "sm_90")
    assert isinstance(made, GemmPlan)
    return made


def test_rows_of_a_swapped_kernel_are_columns_of_the_result() -> None:
    """D of wgmma: d_i lies at row 16 warp + lane / 4 + 8 (i / 2 mod 2), column 8 (i / 4) + 2 (lane mod 4) + i mod 2."""
    planned, generator = swapped_kernel(), random.Random(6)
    of_m, of_n, _ = planned.cta_tile
    assert (of_m, of_n, planned.atoms_mnk) == (128, 256, (2, 1, 1))
    for _ in range(20):
        row, column = generator.randrange(600), generator.randrange(300)
        found = producer(planned, row, column, m=600, n=300)
        lane, warp, (value, atom_m, atom_n) = found.thread % 32, found.thread // 32, found.value
        assert found.cta == (row // of_n, column // of_m)
        assert (atom_m, atom_n) == (0, 0)
        assert column % of_m == warp * 16 + lane // 4 + 8 * (value // 2 % 2)
        assert row % of_n == value // 4 * 8 + 2 * (lane % 4) + value % 2


def test_persistent_ctas_have_no_block_of_their_own() -> None:
    planned = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    persistent = replace(planned, scheduler=replace(planned.scheduler, source=STATIC))
    found, other = (producer(each, 130, 5, m=300, n=200) for each in (persistent, planned))
    assert str(found) + f", blockIdx.x {other.block}" == str(other)
    assert found.block is None


def visited(planned: GemmPlan, index: int, tiles_m: int, tiles_n: int) -> tuple[int, int]:
    """The kernel's tile_coordinate, written again from what a raster means: bands of tiles, each swept once."""
    raster = planned.scheduler.order
    along, sweep = (tiles_n, tiles_m) if raster.along == "n" else (tiles_m, tiles_n)
    order = []
    for band, first in enumerate(range(0, along, raster.group)):
        swept = range(sweep)[::-1] if raster.zigzag and band % 2 else range(sweep)
        order += [(s, x) for s in swept for x in range(first, min(first + raster.group, along))]
    swept_tile, along_tile = order[index]
    return (swept_tile, along_tile) if raster.along == "n" else (along_tile, swept_tile)


@pytest.mark.parametrize("raster", [Raster(a, g, z) for a, g, z in product("mn", (1, 2, 3), (False, True))], ids=str)
def test_the_block_is_the_one_that_visits_the_tile(raster: Raster) -> None:
    f16 = Operand("f16", "k")
    problem = Problem(a=f16, b=f16, c=Operand("f16", "n"))
    tile = Tile(cta=(64, 32, 32), stages=2)
    planned = plan(GemmSpec(family="sm80", problem=problem, tile=tile, schedule=Schedule(raster)), "sm_80")
    blocks = [block_of(planned, visited(planned, i, 5, 8), m=300, n=250) for i in range(40)]
    assert blocks == list(range(40))
    # The same kernel called for the swapped product: its rows of tiles are columns of the call's.
    swapped = replace(planned, swapped=True, launch=planned.launch.exchanged())
    blocks = [block_of(swapped, visited(planned, i, 5, 8)[::-1], m=250, n=300) for i in range(40)]
    assert blocks == list(range(40))


def test_sums_in_tensor_memory_are_of_the_thread_that_loads_their_lane() -> None:
    found = plan(load_spec("sm100_hgemm_tn"), "sm_100")
    made = producer(found, 128 + 37, 256 + 200, m=256, n=512)
    assert (made.cta, made.thread, made.value) == ((1, 1), 37, (0, 0, 200))
