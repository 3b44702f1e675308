"""The `sm100` family: tcgen05.mma on shared memory that bulk tensor copies (TMA) fill, sums in tensor memory.

CTAs are persistent: a tile is multiplied while the previous one is stored. Its kernels have never run on hardware
(docs/blackwell.md).
"""

from __future__ import annotations

from cutegen.plan.families.family import Family
from cutegen.plan.mainloop.tensor_memory import TmaTmem
from cutegen.plan.mma.tcgen05 import Tcgen05, choose_cta_tile
from cutegen.plan.schedules import Persistent
from cutegen.plan.search.tensor_memory import settled_for

SM100 = Family(
    name="sm100",
    mma=Tcgen05(),
    mainloop=TmaTmem(),
    schedule=Persistent(
        "one CTA fills an SM's tensor memory; a tile is multiplied while the previous one is stored", splits=True
    ),
    cta_tile=lambda spec, target: choose_cta_tile(spec),
    search=settled_for,
)
