"""The `simt` family: fused multiply-adds on shared memory that plain copies fill, after CuTe's sgemm_1.cu.

The preconditions of CuTe's gemm_device are errors here, under the same names.
"""

from __future__ import annotations

from cutegen.plan.families.family import Family
from cutegen.plan.mainloop.plain import Plain
from cutegen.plan.mma.fma import Fma, choose_cta_tile
from cutegen.plan.schedules import CtaPerTile

SIMT = Family(
    name="simt",
    mma=Fma(),
    mainloop=Plain(),
    schedule=CtaPerTile(splits=False),
    cta_tile=lambda spec, target: choose_cta_tile(spec),
)
