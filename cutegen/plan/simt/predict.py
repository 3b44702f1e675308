"""What the `simt` template's kernels have: instructions as often as the PTX text holds them, and registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cutegen.algebra import TiledMma
from cutegen.arch import UNIVERSAL_FMA, Target
from cutegen.plan.gemm_plan import EpiloguePlan, OperandPlan
from cutegen.plan.loop import Loop
from cutegen.plan.occupancy import ADDRESS_REGISTERS, allocated_registers
from cutegen.plan.predict import written_instructions
from cutegen.spec import OPS, STORE


def predict_instructions(
    loop: Loop,
    a: OperandPlan,
    b: OperandPlan,
    epilogue: EpiloguePlan,
    target: Target,
    tiled_mma: TiledMma,
    cta_tile: tuple[int, int, int],
) -> dict[str, int]:
    """Opcodes as often as the PTX text holds them, without those that the epilogue has as the compiler likes."""
    counts = Counter(written_instructions(loop, (a, b), UNIVERSAL_FMA, tiled_mma, cta_tile, target))
    if not target.packs_f32 and any(step.text == OPS["beta"] for step in epilogue.fusion.steps):
        # LLVM makes one instruction of the product with beta and the sum.
        counts[UNIVERSAL_FMA.ptx] += cta_tile[0] * cta_tile[1] // tiled_mma.threads
    unknown = (
        *_also_in(epilogue, UNIVERSAL_FMA.ptx),
        *(name for x in (a, b) for name in x.g2s.ambiguous(x.landing(tiled_mma, target))),
    )
    return {name: count for name, count in counts.items() if not name.startswith(unknown)}


def _also_in(epilogue: EpiloguePlan, fma: str) -> Iterator[str]:
    """How the opcodes begin that an epilogue has as well, in a number that is not said here."""
    if any(x.name != STORE for x in epilogue.fusion.tensors):
        yield "ld.global"
    if epilogue.smem is not None:
        yield "ld.shared"
        yield "st.shared"
    if any(step.text not in (OPS["alpha"], OPS["beta"]) for step in epilogue.fusion.steps):
        yield fma


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
