"""The families of kernels: an MMA, a main loop and a schedule each. None refers to another."""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.hardware import Target, dtype
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.families.family import Family
from cutegen.plan.mainloop.tensor_memory import TmaTmem
from cutegen.plan.mainloop.threads import CpAsync, Plain
from cutegen.plan.mainloop.tma import TmaRs, TmaSs
from cutegen.plan.mma import fma, tcgen05, wgmma
from cutegen.plan.mma.atoms import becomes_f16, choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.schedules import CtaPerTile, Persistent
from cutegen.plan.search import bulk, cp_async, tensor_memory, warpgroups
from cutegen.plan.values.decision import Choice, Decision
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

# The `simt` family: fused multiply-adds on shared memory that plain copies fill, after CuTe's sgemm_1.cu.
#
# The preconditions of CuTe's gemm_device are errors here, under the same names.


SIMT = Family(
    name="simt",
    mma=fma.Fma(),
    mainloop=Plain(),
    schedule=CtaPerTile(splits=False),
    cta_tile=lambda spec, target: fma.choose_cta_tile(spec),
)


# The `sm80` family: mma.sync fed by ldmatrix from shared memory that a cp.async pipeline fills.


SM80 = Family(
    name="sm80",
    mma=MmaSync(),
    mainloop=CpAsync(),
    schedule=CtaPerTile(),
    cta_tile=lambda spec, target: choose_cta_tile(spec),
    search=cp_async.settled_for,
)


# The `sm120` family: mma.sync fed by ldmatrix from shared memory that bulk tensor copies (TMA) fill.
#
# CTAs are persistent, so that the next tile's copies overlap the stores of C.


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
    search=bulk.settled_for,
)


# The `sm90` family: wgmma on shared memory that bulk tensor copies (TMA) fill, after CUTLASS's cooperative kernels.
#
# CTAs are persistent, so that the next tile's copies overlap the stores of C.


SM90 = Family(
    name="sm90",
    mma=wgmma.Wgmma(),
    mainloop=TmaSs(),
    schedule=Persistent(
        "one CTA fills an SM's shared memory; the next tile's copies overlap the stores of C",
        splits=True,
        short_of_l2=True,
        spreads_alone=True,
    ),
    cta_tile=lambda spec, target: wgmma.choose_cta_tile(spec),
    search=warpgroups.settled_for,
    space=warpgroups.space_for,
)


# The `sm100` family: tcgen05.mma on shared memory that bulk tensor copies (TMA) fill, sums in tensor memory.
#
# CTAs are persistent: a tile is multiplied while the previous one is stored. Its kernels have never run on hardware
# (docs/blackwell.md).


SM100 = Family(
    name="sm100",
    mma=tcgen05.Tcgen05(),
    mainloop=TmaTmem(),
    schedule=Persistent(
        "one CTA fills an SM's tensor memory; a tile is multiplied while the previous one is stored", splits=True
    ),
    cta_tile=lambda spec, target: tcgen05.choose_cta_tile(spec),
    search=tensor_memory.settled_for,
)
