"""The predicted time of groups of uneven sizes: that of even ones, by the work of the busiest CTA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cutegen.contract.distributions import Distribution
from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import MAX_BATCH, ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan.values.gemm_plan import PlannedGemm
from cutegen.plan.values.predicted_time import AT_LEAST, shown_us


def times_of_sizes(plan: PlannedGemm) -> Mapping[Distribution, float]:
    """Return the predicted microseconds of each distribution of the problem's rows over its groups.

    The plan's time is that of groups of their mean size, rounded up. It changes as the k-tiles of the CTA that has most
    of them, on the target's reference GPU. Nothing without a performance model's time, without packed groups, or with
    more of them than such a time is for.
    """
    problem, time, launch = plan.problem, plan.predicted_time, plan.launch
    if problem is None or time is None or launch.groups is None or launch.ctas_per_multiprocessor is None:
        return {}
    if time.how == AT_LEAST or launch.groups.layout == "padded" or not 0 < problem.products <= MAX_BATCH:
        return {}
    extent, ctas = problem.extents[launch.groups.of], launch.ctas_per_multiprocessor * GPUS[plan.target.name].sms
    mean = (-(-extent // problem.products),) * problem.products
    room = replace(problem, **{launch.groups.of: sum(mean)})
    even = most_k_tiles(launch, plan.cta_tile[2], room, mean, ctas)
    return {
        each: time.us
        * most_k_tiles(launch, plan.cta_tile[2], problem, each.sizes(extent, problem.products), ctas)
        / even
        for each in Distribution
    }


def most_k_tiles(launch: LaunchContract, k_of_tile: int, problem: ProblemShape, sizes: Sequence[int], ctas: int) -> int:
    """Return the k-tiles of the CTA that has most: each of `ctas` has every so many-th tile of all packed groups.

    A tile without K is one k-tile of zeros. Tiles of a cluster count once, for its CTAs together.
    """
    assert launch.groups is not None
    of_cluster = launch.cluster[0] * launch.cluster[1]
    places, alone = max(1, ctas // of_cluster), replace(launch, groups=None)
    loads, first = np.zeros(places, np.int64), 0
    for product in launch.groups.products(np.cumsum(sizes).tolist(), problem):
        shape = ProblemShape(len(product.m), len(product.n), len(product.k))
        tiles, k_tiles = alone.tiles(shape) // of_cluster, max(1, -(-shape.k // k_of_tile))
        loads += tiles // places * k_tiles
        loads[(first + np.arange(tiles % places)) % places] += k_tiles
        first += tiles
    return int(loads.max())


def sizes_line(plan: PlannedGemm) -> tuple[str, ...]:
    """Return the sentence that says these times, and how much longer the worst takes than the best; none without."""
    if not (times := times_of_sizes(plan)):
        return ()
    listed = ", ".join(f"{each} {shown_us(us)}" for each, us in times.items())
    worst = max(times.values()) / min(times.values())
    return (f"sizes of groups: {listed}, by the busiest CTA; the worst takes {worst:.2f} times the best",)
