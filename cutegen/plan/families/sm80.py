"""The `sm80` family: mma.sync fed by ldmatrix from shared memory that a cp.async pipeline fills."""

from __future__ import annotations

from cutegen.plan.families.family import Family
from cutegen.plan.mainloop.cp_async import CpAsync
from cutegen.plan.mma.atom import choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.schedules import CtaPerTile
from cutegen.plan.search.cp_async import settled_for

SM80 = Family(
    name="sm80",
    mma=MmaSync(),
    mainloop=CpAsync(),
    schedule=CtaPerTile(),
    cta_tile=lambda spec, target: choose_cta_tile(spec),
    search=settled_for,
)
