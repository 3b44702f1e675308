"""Pairs and clusters of family sm100 on the CPU: right, ordered by PTX alone, each mistake in a handshake noticed."""

from __future__ import annotations

import pytest

from cutegen.build import Cache
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.pipeline import Scope, initial_counts
from cutegen.spec import GemmSpec, Mma, Operand, Problem, Schedule, Tile
from tests.run.sm100_cases import POLICIES, Case, compiled, execute, shown_in_text

FEW_STAGES, WARPS = 2, 4


def _case(m: int, n: int, k: int, *, group: int, cluster: tuple[int, int], rows: int = 128) -> Case:
    """Tiles of `rows` x 32 in k-tiles of 64, two stages: a cluster has several tiles, more than buffers of sums."""
    operands = {name: Operand("f16", major) for name, major in zip("abc", "kkn", strict=True)}
    spec = GemmSpec(
        family="sm100",
        problem=Problem(**operands),  # type: ignore[arg-type]
        tile=Tile((rows, 32, 64), FEW_STAGES),
        mma=Mma(cta_group=group),
        schedule=Schedule(cluster=cluster),
        name="small",
    )
    return Case(spec, m, n, k, None)


def _planned(group: int, cluster: tuple[int, int]) -> GemmPlan:
    found = plan(_case(512, 160, 328, group=group, cluster=cluster).spec, "sm_100")
    assert isinstance(found, GemmPlan)
    return found


@pytest.mark.parametrize(
    ("group", "cluster", "commits", "warps"),
    [
        (1, (1, 1), 1, WARPS),
        (1, (2, 1), 2, WARPS),
        (1, (2, 2), 3, WARPS),
        (1, (4, 2), 5, WARPS),
        (2, (2, 1), 1, 2 * WARPS),
        (2, (4, 1), 2, 2 * WARPS),
        (2, (2, 2), 2, 2 * WARPS),
        (2, (4, 2), 3, 2 * WARPS),
    ],
)
def test_barriers_by_hand(group: int, cluster: tuple[int, int], commits: int, warps: int) -> None:
    """A stage is free when all have multiplied it that copies of its CTA reach: a row and a column of CTAs or pairs."""
    assert initial_counts(_planned(group, cluster).loop.pipelines) == {
        "ab.full": (FEW_STAGES, 1),
        "ab.empty": (FEW_STAGES, commits),
        "accumulator.full": (2, 1),
        "accumulator.empty": (2, warps),
    }


def test_a_cta_of_a_pair_has_half_of_b() -> None:
    """128 x 64 of A and 16 x 64 of B are 18 KiB; the CTA that multiplies waits for the bytes of both."""
    pair = _planned(2, (2, 1))
    assert [x.tile for x in pair.operands] == [(128, 64), (16, 64)]
    (ab, accumulator, _) = pair.loop.pipelines
    assert (ab.payload_bytes, ab.scope, accumulator.scope) == (2 * 18 * 1024, Scope.PAIR, Scope.PAIR)
    assert (pair.atom.shape_mnk, pair.atom.ctas) == ((256, 32, 16), 2)
    assert _planned(2, (4, 2)).loop.pipelines[0].scope is Scope.CLUSTER


SHAPES = {
    "pair": _case(512, 160, 328, group=2, cluster=(2, 1)),
    "cluster of pairs": _case(600, 96, 200, group=2, cluster=(4, 2)),
    "cluster": _case(300, 96, 328, group=1, cluster=(2, 2)),
    "half of the rows": _case(300, 96, 200, group=2, cluster=(2, 1), rows=64),
    "fragments": _case(200, 96, 200, group=1, cluster=(1, 1), rows=64),
}
OWN = "Int16(1) << Int16(rank)"
READY = "    cute.arch.cluster_arrive()\n    cute.arch.cluster_wait()\n"
ALLOCATED = "    if warp_idx == MMA_WARP:\n        allocate"
ANNOUNCED = "    if {}:\n                    with"
COPIERS = "COPIERS_OF_ROWS, COPIERS_OF_COLUMNS = {}, {}"
PLANTED = {
    "the peer's bytes are not awaited": ("pair", "STAGE_BYTES = 2, 36864", "STAGE_BYTES = 2, 18432"),
    "a CTA awaits its own bytes alone": ("pair", ANNOUNCED.format("leads"), ANNOUNCED.format("True")),
    "half of B twice": ("pair", "tile_n * 2 + rank % 2", "tile_n * 2"),
    "stages are freed in one CTA only": ("pair", "(empty + stage, copiers)", f"(empty + stage, {OWN})"),
    "sums are complete for one CTA only": ("pair", "(multiplied + buffer, pair)", f"(multiplied + buffer, {OWN})"),
    "sums of the peer are not awaited": ("pair", "init(drained + other, 8)", "init(drained + other, 4)"),
    "sums are released at each CTA's own barrier": ("pair", "(drained + buffer, leader)", "(drained + buffer, rank)"),
    "both CTAs multiply": ("pair", "rank % 2 == 0", "rank < 2"),
    "the peer frees tensor memory early": ("pair", f"    before_sync()\n{READY}", "    before_sync()\n"),
    "barriers are not ready when the peer copies": ("pair", READY + ALLOCATED, ALLOCATED),
    "an instruction for one CTA": ("pair", "tcgen05.mma.cta_group::2", "tcgen05.mma.cta_group::1"),
    "an arrival that the peer need not see": ("pair", "arrive.release.cluster", "arrive.release.cta"),
    "a wait that does not see the peer": ("pair", "parity.acquire.cluster", "parity.acquire.cta"),
    "the other half's columns": ("cluster of pairs", "rank_n * CLUSTER_M + rank_m % 2", "rank_n * CLUSTER_M"),
    "stages of a row are freed early": (
        "cluster of pairs",
        COPIERS.format("0b110011", "0b1111"),
        COPIERS.format("0b11", "0b1111"),
    ),
    "a CTA exits while others free its stages": (
        "cluster",
        "for _ in cutlass.range(STAGES, unroll=1):",
        "for _ in cutlass.range(0, unroll=1):",
    ),
    "rows are sent to another row": ("cluster", "Int16(ROW_MASK) << Int16(rank_m)", "Int16(ROW_MASK)"),
    "halves of the columns exchanged": ("half of the rows", "tile_n * 2 + group", "tile_n * 2 + 1 - group"),
    "a buffer of all columns": ("half of the rows", "buffer * (CTA_N // 2) + part", "buffer * CTA_N + part"),
    "lanes of a row each": ("fragments", "ld.sync.aligned.16x256b.x4", "ld.sync.aligned.32x32b.x16"),
    "stages are freed for one row only": ("cluster", COPIERS.format("0b101", "0b11"), COPIERS.format("0b101", "0b0")),
}
"""A mistake at one place of a kernel's text: the shape of its cluster, and what is written instead."""


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_right(shape: str, kernels: Cache) -> None:
    planned, kernel = compiled(SHAPES[shape], "sm_100", kernels)
    for policy in POLICIES:
        execute(planned, kernel, SHAPES[shape], policy)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    shape, before, after = PLANTED[mistake]
    assert shown_in_text(SHAPES[shape], kernels, (before, after))
