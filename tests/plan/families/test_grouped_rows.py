"""A toy family: another scheduler of packed groups of rows, on sm80's main loop and skeleton.

Everything here is the scheduler: its fragments below, and its value, from which the proof and the expected tiles come.
Unlike that of cutegen it finds each tile from the first group on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.contract.launch import CallSize, Strides
from cutegen.contract.problem import ProblemShape
from cutegen.errors import PtxFault
from cutegen.plan import GemmPlan, plan
from cutegen.plan.families import FAMILIES, Family, register
from cutegen.plan.kernel.scheduler import TileSource
from cutegen.plan.mainloop.threads import CpAsync
from cutegen.plan.mma.atoms import choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.schedules import Persistent
from cutegen.ptx import Program
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import GemmSpec, Grouped, Operand, Problem, Tile
from cutegen.spec.families import PartKeys

NAME = "grouped_rows"
SCHEDULER = '''
{% block grid %}
"""Each CTA computes every `ctas`-th of the tiles of all groups.
{% endblock %}
{% block functions %}


@cute.jit
def find_tile(tile: Int32, ends: cute.Tensor, rows: Int32, tiles_n: Int32):
    # Returns (group, its first row, its end, the tile's number in it, tiles of all groups), for any bits in `ends`.
    group, begin, end, first, reached, tiles = Int32(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0)
    for g in cutlass.range(cute.size(ends), unroll=1):
        last = cutlass.max(cutlass.min(ends[g], rows), reached)
        more = cute.ceil_div(last - reached, CTA_M) * tiles_n
        if tiles <= tile and tile < tiles + more:
            group, begin, end, first = Int32(g), reached, last, tiles
        reached, tiles = last, tiles + more
    return group, begin, end, tile - first, tiles
{% endblock %}
{% block cta %}
(first_tile, _, _), (ctas, _, _) = cute.arch.block_idx(), cute.arch.grid_dim()
ends, rows, tiles_n, batches = cute.make_tensor(ends, cute.make_layout(groups)), m, cute.ceil_div(n, CTA_N), groups
tiles = find_tile(0, ends, rows, tiles_n)[4]
{% endblock %}
{% block every_tile %}
for tile in cutlass.range(first_tile, tiles, ctas, unroll=1):
    batch, first_row, end, number, _ = find_tile(tile, ends, rows, tiles_n)
    m = end - first_row
    tile_m, tile_n = tile_coordinate(number, cute.ceil_div(m, CTA_M), tiles_n)
    {% at work %}
    cute.arch.sync_threads()
{% endblock %}
{% block slice %}
mA, mC = cute.domain_offset((first_row, 0), mA), cute.domain_offset((first_row, 0), mC)
{% endblock %}
{% block launch %}
@cute.jit
def launch(
    {% for x in host_parameters %}{{ x.name }}: {{ x.type }}, {% endfor %}

    batches: Int32, multiprocessors: Int32, stream: cuda.CUstream
):
    gemm({% for x in parameters %}{{ x.name }}, {% endfor %}).launch(
        grid=(multiprocessors, 1, 1), block=(THREADS, 1, 1), smem=SMEM_BYTES, min_blocks_per_mp=1, stream=stream
    )
{% endblock %}
'''


class GroupedRows(Persistent):
    """Persistent CTAs whose tiles are those of packed groups of rows."""

    source_of_groups = TileSource(loops=True, template=SCHEDULER, opcodes=(("ld.global.b32", 2),))
    keys = PartKeys()


class FeedOfGroups(CpAsync):
    """Vector copies, which do not mind groups."""

    keys = PartKeys(CpAsync.keys.needs)


def registered(schedule: Persistent) -> Family:
    composed = Family(
        name=NAME,
        mma=MmaSync(),
        mainloop=FeedOfGroups(),
        schedule=schedule,
        cta_tile=lambda spec, target: choose_cta_tile(spec),
    )
    register(composed, "mma.sync, ldmatrix, cp.async")
    return composed


@pytest.fixture(autouse=True)
def leaves_no_family() -> Iterator[None]:
    yield
    del FAMILIES[NAME], SPEC_FAMILIES[NAME]


def compiled(schedule: Persistent, kernels: Cache) -> tuple[GemmPlan, Program]:
    registered(schedule)
    row = Operand("f16", "k")
    problem = Problem(a=row, b=row, c=Operand("f32", "n"), accumulator="f32", groups=Grouped("m"))
    spec = GemmSpec(family=NAME, problem=problem, tile=Tile(TILE, 2), name=NAME)
    planned = plan(spec, "sm_80")
    assert isinstance(planned, GemmPlan)
    artifact = build(request_of(planned), kernels)
    assert artifact.manifest.warnings == ()  # emitted as predicted
    return planned, Program.parse(artifact.ptx)


TILE = (32, 32, 32)
MMA_OF_A_K_TILE = 2 * 4 * 2
"""`mma.sync.m16n8k16` of a k-tile, by all warps together."""
N, K = 72, 80
SMS = 3
CASES: dict[str, tuple[int, tuple[int, ...]]] = {
    "empty groups at both ends": (100, (0, 33, 33, 100, 100)),
    "one group": (64, (64,)),
    "a group of 1, and rows past the last end": (70, (1, 32, 65)),
    "no row at all": (40, (0, 0)),
    "any bits": (80, (-5, 2**31 - 1, 3, -(2**31), 50)),
}


def failure(planned: GemmPlan, program: Program, rows: int, ends: tuple[int, ...]) -> str:
    """Run one launch on the executor; return what is wrong with it, "" if nothing is."""
    random, groups, launch = np.random.default_rng(60), len(ends), planned.launch
    a = random.standard_normal((rows, K)).astype(np.float16)
    b = random.standard_normal((groups, N, K)).astype(np.float16)
    c = np.full((rows, N), np.nan, np.float32)
    problem = ProblemShape(rows, N, K, groups=groups)
    geometry = launch.geometry(problem, multiprocessors=SMS)
    strides = {"a": Strides(K), "b": Strides(K, N * K), "c": Strides(N)}  # every group has the same A and C
    size = CallSize(problem=problem, strides=strides)
    arguments = launch.arguments((a, b, c, np.array(ends, np.int32)), (), size)
    smem_bytes = geometry.dynamic_smem_bytes
    try:
        report = program.launch(
            launch.entry, grid=geometry.grid, block=geometry.block, args=arguments, dynamic_smem_bytes=smem_bytes
        )
    except PtxFault as fault:
        return f"fault: {fault}"
    if report.violations:
        return f"violation: {report.violations[0]}"
    ctas = range(geometry.grid[0])
    tiles = [
        tile for cta in ctas for tile in planned.scheduler.work(planned.mma, (cta, 0, 0), geometry.grid, problem, ends)
    ]
    if report.executed("mma.sync") != len(tiles) * -(-K // TILE[2]) * MMA_OF_A_K_TILE:
        return "other tiles than the scheduler's"
    exact, bound = np.full((2, rows, N), np.nan)
    for product, weight in zip(planned.scheduler.products(problem, ends), b.astype(np.float64), strict=True):
        of_group = a[product.m].astype(np.float64)
        exact[product.m] = of_group @ weight.T
        # Each of K products and sums in f32 errs by 2^-24 of its size, in any order.
        bound[product.m] = K * 2.0**-23 * (np.abs(of_group) @ np.abs(weight.T))
    wrong = np.where(np.isnan(exact), ~np.isnan(c), ~(np.abs(c - exact) <= bound))
    return f"wrong elements: {np.count_nonzero(wrong)}" if wrong.any() else ""


@pytest.mark.dsl
def test_groups_of_rows_with_ends_on_the_device(kernels: Cache) -> None:
    planned, program = compiled(GroupedRows("a test asks for it"), kernels)
    assert {case: failure(planned, program, *given) for case, given in CASES.items()} == dict.fromkeys(CASES, "")


CLAMPED = "cutlass.max(cutlass.min(ends[g], rows), reached)"
PLANTED = {
    "an end is not clamped to the rows": (CLAMPED, "cutlass.max(ends[g], reached)"),
    "an end may lie before the previous one": (CLAMPED, "cutlass.min(ends[g], rows)"),
    "the weights are those of the next group": ("first = Int32(g), reached", "first = Int32(g + 1), reached"),
    "a group also has the next group's rows": ("m = end - first_row", "m = rows - first_row"),
    "tiles of a group are numbered over all groups": ("tile - first, tiles", "tile, tiles"),
    "the next tile overwrites stages that are read": ("    cute.arch.sync_threads()\n", ""),
}


@pytest.mark.dsl
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_scheduler_is_noticed(mistake: str, kernels: Cache) -> None:
    assert SCHEDULER.count(PLANTED[mistake][0]) == 1

    class Wrong(GroupedRows):
        source_of_groups = replace(GroupedRows.source_of_groups, template=SCHEDULER.replace(*PLANTED[mistake]))

    planned, program = compiled(Wrong("a test asks for it"), kernels)
    assert any(failure(planned, program, *given) for given in CASES.values())
