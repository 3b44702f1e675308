"""C's way out: its place in shared memory and the copy from there, or the fragments that are stored as they are."""

from __future__ import annotations

from cutegen.algebra import format_layout, spec_notation
from cutegen.draw.banks import bank_legend, phase_legend
from cutegen.draw.copies import copy_grid, copy_legend, copy_phases
from cutegen.draw.mma import mma_legend, operand
from cutegen.draw.picture import Picture, beside, captioned, titled
from cutegen.draw.smem import cell_meaning, part_of, shared_tile
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ways
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.values.gemm_plan import SmemTile

MODES = ("m", "n")


def epilogue(plan: GemmPlan, thread: int) -> Picture:
    """Through shared memory: banks, and the first store; else who holds which element of C."""
    smem, store = plan.epilogue.smem, plan.epilogue.store
    if smem is None or store is None:
        facts = ["C goes straight from registers to global memory; one tile of the tiled MMA"]
        return titled("C to global memory", facts, operand(plan, "C", thread), mma_legend(plan, thread))
    facts, pictures = store.by_kind(
        vectors=lambda store: ([], _stores(plan, smem, store, thread)),
        boxes=lambda store: ([f"{store.atom.name} moves it from there, box after box"], []),
    )
    tile = _tile(plan, smem), bank_legend()
    return titled("C to global memory, through shared memory", [cell_meaning(), *facts], *tile, *pictures)


def _stores(plan: GemmPlan, smem: SmemTile, store: VectorCopy, thread: int) -> list[Picture]:
    """The first store, who makes it and what it reads."""
    first = beside(_who(plan, store, thread), _banks(plan, smem, store, thread // WARP))
    return [first, copy_legend(plan, thread), phase_legend()]


def _tile(plan: GemmPlan, shared: SmemTile) -> Picture:
    c, found = plan.epilogue, plan.predictions.wavefronts
    shape, element_bytes = plan.cta_tile[:2], c.dtype.bytes
    caption = [
        f"C, {c.dtype.name}, {part_of(shape, element_bytes, c.major_mode)}: {shared.chosen.name}, "
        f"writes {ways(found[AccessKey.EPILOGUE_WRITE].ways)}, reads {ways(found[AccessKey.EPILOGUE_READ].ways)}",
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
