"""Rule for the epilogue: C straight from registers unless the spec requests shared memory."""

from __future__ import annotations

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import Target
from cutegen.plan.geometry.accumulators import accumulators
from cutegen.plan.predict.traffic import sectors_of
from cutegen.plan.rules.epilogue import choose_epilogue, direct
from cutegen.plan.values.decision import Choice, Rejected
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.operand import operand_tile
from cutegen.spec import GemmSpec


def choose_store(
    spec: GemmSpec,
    fusion: Fusion,
    tiled_mma: TiledMma,
    cta_tile: Extents,
    target: Target,
    pipeline_bytes: int,
) -> Choice[EpiloguePlan]:
    """Choose the store path of C. Adjacent threads hold adjacent elements of C, so direct stores fill sectors."""
    if spec.epilogue.smem is not None:
        return choose_epilogue(spec, fusion, tiled_mma, cta_tile, target.smem_per_cta_bytes)
    x = operand_tile(spec, "c", cta_tile)
    found = sectors_of(accumulators(tiled_mma, x.extents, 1), x.extents, x.major_mode, x.dtype.bytes)
    staged_bytes = x.extents[0] * x.extents[1] * x.dtype.bytes
    why = f"stores touch {found.predicted:,} sectors, at least {found.ideal:,} are needed"
    staged = f"C takes {staged_bytes:,} bytes of shared memory, the main loop {pipeline_bytes:,}"
    return direct(x, fusion, why, rejected=(Rejected("through shared memory", staged),))
