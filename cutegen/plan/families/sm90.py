"""The `sm90` family: wgmma on shared memory that bulk tensor copies (TMA) fill, after CUTLASS's cooperative kernels.

CTAs are persistent, so that the next tile's copies overlap the stores of C.
"""

from __future__ import annotations

from cutegen.plan.families.family import Family
from cutegen.plan.mainloop.tma import TmaSs
from cutegen.plan.mma.wgmma import Wgmma, choose_cta_tile
from cutegen.plan.schedules import Persistent
from cutegen.plan.search.warpgroups import settled_for, space_for

SM90 = Family(
    name="sm90",
    mma=Wgmma(),
    mainloop=TmaSs(),
    schedule=Persistent(
        "one CTA fills an SM's shared memory; the next tile's copies overlap the stores of C",
        splits=True,
        short_of_l2=True,
        spreads_alone=True,
    ),
    cta_tile=lambda spec, target: choose_cta_tile(spec),
    search=settled_for,
    space=space_for,
)
