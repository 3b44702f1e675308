"""`schedule.pace` on a GPU: the same bits, and no k-tile sooner than the clock allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.api import compile_gemm
from cutegen.spec import Schedule, Tile
from tests.plan.specs import gemm

SLOW = 50_000
"""Cycles per k-tile: far more than anything else takes."""
LAUNCHES = 5


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("consumers", "cluster"), [("cooperative", (1, 1)), ("pingpong", (1, 1)), ("cooperative", (2, 1))]
)
def test_a_pace_changes_when_k_tiles_arrive_and_nothing_else(consumers: str, cluster: tuple[int, int]) -> None:
    import torch

    m, n, k, tile = 1000, 712, 2056, (64, 64, 64)
    a, b = (torch.randn(x, k, device="cuda", dtype=torch.float16) for x in (m, n))
    found = []
    for pace in (None, 200, SLOW):
        schedule = Schedule(consumers=consumers, cluster=cluster, pace=pace)
        kernel = compile_gemm(replace(gemm(), family="sm90", tile=Tile(tile), schedule=schedule), "sm_90")
        out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float16)
        kernel(a, b.T, out=out)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(LAUNCHES):
            kernel(a, b.T, out=out)
        end.record()
        torch.cuda.synchronize()
        found.append(out)
    seconds = begin.elapsed_time(end) * 1e-3 / LAUNCHES  # of the slow one
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    # The second k-tile is due at once, each later one SLOW cycles after the one before, at 2 GHz or less.
    assert seconds > (k // tile[2] - 2) * SLOW / 2e9
