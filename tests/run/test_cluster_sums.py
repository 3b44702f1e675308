"""Slices of K that clusters add: counts beside the plan, tile after tile, and the same bits in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cutegen.plan import GemmPlan, plan
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from cutegen.verify.counts import count_launch
from tests.run.wgmma import CASES

pytestmark = pytest.mark.dsl


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("slices_of_a_cluster", {"cluster.write", "cluster.read"}),
        pytest.param(
            "s8_in_a_cluster",
            {"cluster.write", "cluster.read", "split_k.write", "split_k.read"},
            marks=pytest.mark.slow,
        ),
        pytest.param("slices_share_copies", {"split_k.write", "split_k.read"}, marks=pytest.mark.slow),
    ],
)
def test_a_launch_does_what_the_plan_says(compiled: Any, name: str, keys: set[str]) -> None:
    kernel, planned = compiled(CASES[name]), plan(CASES[name], "sm_90")
    assert isinstance(planned, GemmPlan)
    assert kernel.artifact.manifest.warnings == ()
    a, b, out = random_operands(kernel.contract, 128, 64, 8 * planned.cta_tile[2], seed=1)
    report = kernel.execute(a, b, out=out)
    assert report.violations == ()
    # Whoever shares copies arrives at a neighbor's barrier at the scope of its own CTA, in other kernels too.
    assert bool(report.conventions) is (planned.mma.cluster[0] > 1)
    counts = count_launch(planned, kernel.call_size(a, b, out), report)
    assert counts.differing() == {}
    assert keys <= counts.wavefronts.keys() | counts.sectors.keys()
    assert all(table[key].measured > 0 for table in (counts.wavefronts, counts.sectors) for key in keys & table.keys())


@pytest.mark.slow
def test_tile_after_tile(compiled: Any) -> None:
    """Three blocks of tiles for a cluster: the stages hold k-tiles, then sums, then k-tiles again."""
    kernel = compiled(CASES["cluster_of_tiles_and_slices"])
    a, b, out = random_operands(kernel.contract, 256, 192, 456, seed=2)
    kernel.execute(a, b, out=out, policy="random:3")
    assert compare(out, expected_outcome(kernel.contract, a, b, {}, accumulator="f32").result, dtype="f16").ok


@pytest.mark.parametrize("name", ["slices_of_a_cluster", pytest.param("clusters_leave_shares", marks=pytest.mark.slow)])
def test_the_same_bits_in_any_order(compiled: Any, name: str) -> None:
    kernel = compiled(CASES[name])
    a, b, first = random_operands(kernel.contract, 72, 64, 328, seed=5)
    extras = random_extras(kernel.contract, 72, 64, seed=5)
    kernel.execute(a, b, out=first, **extras)
    for policy in ("reversed", "random:1", "random:2"):
        again = np.zeros_like(first)
        kernel.execute(a, b, out=again, **extras, policy=policy)
        assert again.tobytes() == first.tobytes(), policy
