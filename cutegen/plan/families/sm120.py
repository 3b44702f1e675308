"""The `sm120` family: mma.sync fed by ldmatrix from shared memory that bulk tensor copies (TMA) fill.

CTAs are persistent, so that the next tile's copies overlap the stores of C.
"""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.hardware import Target, dtype
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.families.family import Family
from cutegen.plan.mainloop.tma import TmaRs
from cutegen.plan.mma.atom import becomes_f16, choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.schedules import Persistent
from cutegen.plan.search.bulk import settled_for
from cutegen.plan.values.decision import Choice, Decision
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

DEFAULT_CTA_ROWS = (128, 256)
DEFAULT_CTA_ROWS_BESIDE_F16 = (128, 128)


def choose_large_tile(spec: GemmSpec, target: Target) -> Choice[Extents]:
    """Choose the largest tile whose accumulators leave registers for fragments, with 128-byte lines along K."""
    if spec.tile.cta is not None:
        return choose_cta_tile(spec)
    element = dtype(spec.problem.a.dtype)
    as_f16 = becomes_f16(element, target)
    m, n = DEFAULT_CTA_ROWS_BESIDE_F16 if as_f16 else DEFAULT_CTA_ROWS
    chosen = (m, n, LINE_BYTES // element.bytes)
    why = (
        f"{m * n // (m + n)} multiply-adds per element fetched; each thread of 8 warps has {m * n // 256} "
        "registers of sums"
    )
    if as_f16:
        why += f", which leaves some for the f16 values that {target.name} converts {element.name} to"
    return Choice(chosen, Decision("tile.cta", extents(chosen), why))


SM120 = Family(
    name="sm120",
    mma=MmaSync(),
    mainloop=TmaRs(),
    schedule=Persistent("one CTA fills an SM's registers; the next tile's copies overlap the stores of C"),
    cta_tile=choose_large_tile,
    search=settled_for,
)
