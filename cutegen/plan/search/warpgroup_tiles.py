"""The kernels that are compared where warpgroups multiply, and the constants of the model of time for them."""

from __future__ import annotations

from dataclasses import dataclass

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
    cluster: tuple[int, int] = (1, 1)
    swap: bool = False
    slices: int = 1
    correction: float = UNMEASURED


H200 = WarpgroupConstants(
    k_tile_alone=60.0,
    k_tile_together=30.0,
    latency=1000.0,
    turn=100.0,
    tile=600.0,
    store_per_kib=20.0,
    fill=1500.0,
    sum=2000.0,
    summed=60.0,
    fetched=64.0,
    l2=6000.0,
    launch_us=1.5,
    sm_us=0.003,
    memory_share=0.9,
    clock_share=0.95,
    power=0.1,
    power_us=100.0,
    sharpness=6.0,
    joined=4.0,
    cluster_wait=20.0,
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
