"""Rule for the store path of C: through its own shared memory and a bulk tensor store, or straight from registers."""

from __future__ import annotations

from cutegen.algebra import Extents, TiledMma
from cutegen.contract.tensor_map import STRIDE_MULTIPLE_BYTES
from cutegen.hardware import BULK_TENSOR, TMA_STORE
from cutegen.plan.geometry.access import by_warp
from cutegen.plan.geometry.accumulators import PAIR_ELEMS, accumulators
from cutegen.plan.rules.bulk_boxes import bulk_copy, check_align, check_rows, full_lines, rank_boxes
from cutegen.plan.rules.epilogue import DIRECT, direct, epilogue_plan
from cutegen.plan.rules.smem import Access, SmemRanking, lay_out
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.operand import OperandTile, operand_tile
from cutegen.plan.values.smem import SmemTile
from cutegen.spec import GemmSpec
from cutegen.support.words import plural

WORTHWHILE_STAGES = 3
"""Stages that must fit in addition to C's tile, if the spec gives no number."""


def choose_epilogue(
    spec: GemmSpec,
    fusion: Fusion,
    tiled_mma: TiledMma,
    cta_tile: Extents,
    stage_bytes: int,
    capacity_bytes: int,
) -> Choice[EpiloguePlan]:
    """Store C through shared memory if three stages, or those that the spec requests, still fit; else from registers.

    The memory is C's own: the next tile's stages are filled while C is stored.
    """
    x = operand_tile(spec, "c", cta_tile)
    if spec.epilogue.smem is False:
        return direct(x, fusion, "given", given=True)
    asked = spec.epilogue.smem is not None
    if x.align_bytes < STRIDE_MULTIPLE_BYTES and not asked:
        return direct(x, fusion, f"C is aligned to {x.align_bytes} bytes, a tensor map to {STRIDE_MULTIPLE_BYTES}")
    check_align(spec, "c", "epilogue.smem = false")
    check_rows(spec, x)
    ranking = _rank(spec, x, tiled_mma)
    staged = lay_out(ranking.value, x.extents, None)
    stages = spec.tile.stages or (2 if asked else WORTHWHILE_STAGES)
    if (why_not := beyond_capacity(spec, stages, stage_bytes, staged, capacity_bytes)) is not None:
        return direct(x, fusion, why_not)
    store = bulk_copy(x, TMA_STORE, staged.chosen.atom)
    why = f"stores continue while the next tile is multiplied; {ranking.decision.why}"
    rejected = (Rejected(DIRECT, "a thread's stores would delay its next tile"), *ranking.decision.rejected)
    chosen = f"{staged.chosen.name}, {BULK_TENSOR}"
    decision = Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected)
    return Choice(epilogue_plan(x, fusion, staged, store), decision)


def beyond_capacity(spec: GemmSpec, stages: int, stage_bytes: int, staged: SmemTile, capacity_bytes: int) -> str | None:
    """Return why C does not fit with so many stages; None if it does. Raises SpecError if the spec requires it."""
    if stages * stage_bytes + staged.bytes <= capacity_bytes:
        return None
    found = f"{plural(stages, 'stage')} of {stage_bytes:,} and C's {staged.bytes:,} bytes > {capacity_bytes:,}"
    if spec.epilogue.smem is None:
        return found
    raise spec.error(
        "epilogue.smem",
        found=found,
        expected=f"at most {capacity_bytes:,} bytes of shared memory",
        fix=f"smem = false stores {DIRECT}, or fewer stages",
    )


def _rank(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma) -> Choice[SmemRanking]:
    """Rank layouts of C by how accumulators are written: in pairs if N is contiguous."""
    pair = PAIR_ELEMS if x.major_mode == 1 else 1
    write = Access(by_warp(accumulators(tiled_mma, x.extents, pair)[..., 0]), pair * x.dtype.bytes)
    return rank_boxes(spec, x, tiled_mma, write, full_lines(x))
