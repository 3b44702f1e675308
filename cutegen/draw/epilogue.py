"""C's way out: its place in shared memory and the copy from there, or the fragments that are stored as they are."""

from __future__ import annotations

from cutegen.algebra import format_layout, spec_notation
from cutegen.arch.units import WARP
from cutegen.draw.banks import bank_legend, phase_legend
from cutegen.draw.copies import copy_grid, copy_legend, copy_phases
from cutegen.draw.mma import mma_legend, operand
from cutegen.draw.picture import Picture, beside, captioned, titled
from cutegen.draw.smem import cell_meaning, part_of, shared_tile
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import SmemTile
from cutegen.plan.report import ways
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy

MODES = ("m", "n")


def epilogue(plan: GemmPlan, thread: int) -> Picture:
    """Through shared memory: banks, and the first store; else who holds which element of C."""
    c = plan.epilogue
    if c.smem is None or c.store is None:
        facts = ["C goes straight from registers to global memory; one tile of the tiled MMA"]
        return titled("C to global memory", facts, operand(plan, "C", thread), mma_legend(plan, thread))
    if isinstance(c.store, BulkTensorCopy):
        facts = [cell_meaning(), f"{c.store.atom.name} moves it from there, box after box"]
        return titled("C to global memory, through shared memory", facts, _tile(plan, c.smem), bank_legend())
    store = beside(_who(plan, c.store, thread), _banks(plan, c.smem, c.store, thread // WARP))
    return titled(
        "C to global memory, through shared memory",
        [cell_meaning()],
        _tile(plan, c.smem),
        bank_legend(),
        store,
        copy_legend(plan, thread),
        phase_legend(),
    )


def _tile(plan: GemmPlan, shared: SmemTile) -> Picture:
    c, found = plan.epilogue, plan.predictions.wavefronts
    shape, element_bytes = plan.cta_tile[:2], c.dtype.bytes
    caption = [
        f"C, {c.dtype.name}, {part_of(shape, element_bytes, c.major_mode)}: {shared.chosen.name}, "
        f"writes {ways(found['epilogue.write'].ways)}, reads {ways(found['epilogue.read'].ways)}",
        format_layout(shared.layout),
    ]
    return captioned(caption, shared_tile(shared, shape, c.major_mode, element_bytes, MODES))


def _who(plan: GemmPlan, store: VectorCopy, thread: int) -> Picture:
    picture = copy_grid(store, plan.cta_tile[:2], plan.epilogue.major_mode, MODES, thread)
    return captioned([f"Stores of {store.bits} bits: threads {spec_notation(store.threads)}"], picture)


def _banks(plan: GemmPlan, shared: SmemTile, store: VectorCopy, warp: int) -> Picture:
    shape = plan.cta_tile[:2]
    charts = copy_phases(shared.layout, store, shape, plan.epilogue.dtype.bytes, MODES, warp)
    return captioned([f"What warp {warp} reads for its first store"], charts)
