"""One fused multiply-add by each thread, after CuTe's sgemm_1.cu: without tensor cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from cutegen.algebra import Extents
from cutegen.hardware import UNIVERSAL_FMA, Instruction, MmaAtom, Target, dtype
from cutegen.hardware.fma_atom import fma_atom
from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan.kernel.accumulator import in_registers
from cutegen.plan.kernel.role import MMA, Role
from cutegen.plan.parts import CountedPlan, Multiplier, Operands
from cutegen.plan.predict.occupancy import ADDRESS_REGISTERS, allocated_registers
from cutegen.plan.rules.fma_threads import check_possible, choose_threads, tiled_fma
from cutegen.plan.rules.mma import check_dtypes
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import OPS, STORE, GemmSpec
from cutegen.spec.families import FMA, PartKeys


@dataclass(frozen=True, slots=True)
class Fma(Multiplier):
    """`fma.rn.f32` on operands that convert to f32 without loss."""

    keys: ClassVar[PartKeys] = FMA

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for operands that do not convert to f32 without loss, and for types that the target lacks."""
        check_possible(spec)
        check_dtypes(spec, target)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the threads that partition C's tile."""
        threads = choose_threads(spec, cta_tile.value, target)
        a, b = dtype(spec.problem.a.dtype), dtype(spec.problem.b.dtype)
        tiled_mma = tiled_fma(threads.value)
        atom = fma_atom(a, b, target)
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom,
            tiled_mma=tiled_mma,
            role=Role(name=MMA, threads=tiled_mma.threads),
            accumulator=in_registers(tiled_mma, cta_tile.value[:2], atom.c_dtype),
        )
        return mma, (cta_tile.decision, threads.decision)

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Sums, one load per row of A and B of a thread, data on its way to shared memory, and addresses."""
        (m, n, _), tiled_mma = mma.cta_tile, mma.tiled_mma
        bits = (
            each.s2r.value.by_source(copied=lambda copy: copy.bits, described=lambda _: 0, read=lambda _: 0)
            for each in operands
        )
        loaded = (max(1, found // REGISTER_BITS) for found in bits)
        rows = (each.tile.extents[0] // tiled_mma.tile_of(each.tile.operand)[0] for each in operands)
        columns = sum(count * registers for count, registers in zip(rows, loaded, strict=True))
        passing = sum(each.passing_registers for each in operands)
        wanted = m * n // tiled_mma.threads + columns + passing + ADDRESS_REGISTERS
        return allocated_registers(target, tiled_mma.threads, wanted)

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """Those of the whole kernel, without opcodes that the epilogue also has in unpredictable numbers."""
        found, tiled_mma = Counter(counts), plan.mma.tiled_mma
        if not plan.target.has(Instruction.FMA_PACKED) and any(
            step.text == OPS["beta"] for step in plan.epilogue.fusion.steps
        ):
            # LLVM makes one instruction of the product with beta and the sum.
            found[UNIVERSAL_FMA.ptx] += plan.mma.cta_tile[0] * plan.mma.cta_tile[1] // tiled_mma.threads
        spelled = (x.g2s.ambiguous(x.landing(tiled_mma, plan.target)) for x in plan.operands)
        unknown = (*_also_in(plan.epilogue, plan.mma.atom), *(name for names in spelled for name in names))
        return {name: count for name, count in found.items() if not name.startswith(unknown)}


def _also_in(epilogue: EpiloguePlan, atom: MmaAtom) -> Iterator[str]:
    """Return the prefixes of opcodes that an epilogue also has, in a number that is not predicted."""
    if any(x.name != STORE for x in epilogue.fusion.tensors):
        yield "ld.global"
    if epilogue.smem is not None:
        yield "ld.shared"
        yield "st.shared"
    of_one_kind = atom is UNIVERSAL_FMA  # else the epilogue's are spelled otherwise
    if of_one_kind and any(step.text not in (OPS["alpha"], OPS["beta"]) for step in epilogue.fusion.steps):
        yield atom.ptx
