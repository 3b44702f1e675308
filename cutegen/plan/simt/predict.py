"""What the `simt` template's kernels have: instructions as often as the PTX text holds them, and registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cutegen.algebra import TiledMma
from cutegen.arch import UNIVERSAL_FMA, MmaAtom, Target
from cutegen.plan.gemm_plan import EpiloguePlan, OperandPlan, VectorCopy
from cutegen.plan.instructions import ambiguous, copies_per_k_tile, load_global, load_shared, stores_per_k_tile
from cutegen.plan.occupancy import ADDRESS_REGISTERS, allocated_registers
from cutegen.spec import OPS, STORE

MAIN_LOOPS = 2


def predict_instructions(
    a: OperandPlan,
    b: OperandPlan,
    epilogue: EpiloguePlan,
    target: Target,
    atom: MmaAtom,
    tiled_mma: TiledMma,
    cta_tile: tuple[int, int, int],
    stages: int,
) -> dict[str, int]:
    """Opcodes as often as the PTX text holds them, but for those whose number in the epilogue is the compiler's choice.

    There are two main loops, for k-tiles that lie inside the matrices and for the others, which are fetched one element
    at a time; neither is unrolled over k-tiles. Two stages have a prologue that fetches one k-tile.
    """
    m, n, k = cta_tile
    sums = m * n // tiled_mma.threads
    counts = Counter({atom.ptx: MAIN_LOOPS * sums * k})
    for x in (a, b):
        copies, elements = copies_per_k_tile(x, tiled_mma), x.tile[0] * x.tile[1] // tiled_mma.threads
        assert isinstance(x.g2s, VectorCopy)
        counts[load_global(x.g2s.bits, x.dtype, target)] += stages * copies
        counts[load_global(x.dtype.bits, x.dtype, target)] += stages * elements
        for opcode, count in stores_per_k_tile(x, tiled_mma, target).items():
            counts[opcode] += (MAIN_LOOPS + stages - 1) * count
        counts[load_shared(x.s2r.bits, x.dtype.bits)] += MAIN_LOOPS * loads_per_k_tile(x, tiled_mma)
    if not target.packs_f32 and any(step.text == OPS["beta"] for step in epilogue.fusion.steps):
        counts[UNIVERSAL_FMA.ptx] += sums  # LLVM makes one instruction of the product with beta and the sum
    unknown = (*_also_in(epilogue, atom), *(name for x in (a, b) for name in ambiguous(x, tiled_mma, target)))
    return {name: count for name, count in counts.items() if not name.startswith(unknown)}


def _also_in(epilogue: EpiloguePlan, atom: MmaAtom) -> Iterator[str]:
    """How the opcodes begin that an epilogue has as well, in a number that is not said here."""
    if any(x.name != STORE for x in epilogue.fusion.tensors):
        yield "ld.global"
    if epilogue.smem is not None:
        yield "ld.shared"
        yield "st.shared"
    of_one_kind = atom is UNIVERSAL_FMA  # else the epilogue's are spelled otherwise
    if of_one_kind and any(step.text not in (OPS["alpha"], OPS["beta"]) for step in epilogue.fusion.steps):
        yield atom.ptx


def estimate_registers(
    target: Target,
    a: OperandPlan,
    b: OperandPlan,
    tiled_mma: TiledMma,
    cta_tile: tuple[int, int, int],
    passing: int,
) -> int:
    """Registers a thread: sums, a load of each of its rows of A and B, `passing` for a k-tile on its way, addresses."""
    m, n, _ = cta_tile
    columns = sum(x.tile[0] // tiled_mma.tile_of(x.operand)[0] * max(1, x.s2r.bits // 32) for x in (a, b))
    wanted = m * n // tiled_mma.threads + columns + passing + ADDRESS_REGISTERS
    return allocated_registers(target, tiled_mma.threads, wanted)


def loads_per_k_tile(operand: OperandPlan, tiled_mma: TiledMma) -> int:
    """Loads from shared memory that one thread executes for one k-tile of an operand."""
    x, k = operand.tile
    return x * k * operand.dtype.bits // (tiled_mma.tile_of(operand.operand)[0] * operand.s2r.bits)
