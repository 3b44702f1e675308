"""The kernels that are compared where warpgroups multiply, and the constants of the model of time for them."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE
from cutegen.plan.search.warpgroup_model import WarpgroupConstants
from cutegen.spec.values import Consumers

UNMEASURED = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """A tile with its warpgroups along M and N, how they share it out, and what goes with it.

    With `swap` the tile is one of the exchanged product. `correction` is measured: what a k-tile takes beside what the
    model says.
    """

    cta: tuple[int, int, int]
    warpgroups: tuple[int, int]
    consumers: Consumers = COOPERATIVE
    cluster: Extents = ALONE
    swap: bool = False
    slices: int = 1
    correction: float = UNMEASURED


H200 = WarpgroupConstants(
    latency=1690.0,
    turn=65.7,
    store_per_kib=36.6,
    exchanged_store=0.131,
    fill_per_kib=7.2,
    warpgroup_start=317.0,
    cluster_start=333.0,
    fetched=132.0,
    l2=12500.0,
    summed=41.5,
    sum_us=3.58,
    cluster_summed=60.0,
    cluster_sum_us=0.8,
    half_line=1.50,
    quarter_line=1.64,
    eighth_line=2.47,
    launch_us=1.10,
    sm_us=0.008,
    memory_share=0.836,
    torn_lines=0.254,
    clock_share=0.891,
    power=0.328,
    power_us=522.0,
    sharpness=3.76,
    joined=2.15,
)
MEASURED: tuple[Row, ...] = tuple(
    Row(cta, (warpgroups, 1))
    for cta, warpgroups in (
        ((128, 256, 64), 2),
        ((256, 128, 64), 2),
        ((192, 192, 64), 3),
        ((128, 192, 64), 2),
        ((128, 128, 64), 2),
        ((64, 256, 64), 1),
        ((128, 64, 128), 2),
        ((64, 128, 128), 1),
        ((64, 64, 128), 1),
    )
)
