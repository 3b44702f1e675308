"""`mma.sync`: a warp multiplies fragments that its threads hold in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import Target
from cutegen.plan.kernel.accumulator import in_registers
from cutegen.plan.kernel.role import MMA, Role
from cutegen.plan.parts import CountedPlan, Multiplier, Operands
from cutegen.plan.predict.occupancy import estimate_registers
from cutegen.plan.rules.mma import check_dtypes, choose_atom, choose_atom_layout, choose_tf32_rounding
from cutegen.plan.rules.permutation import choose_permutation
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.spec.families import MMA_SYNC, PartKeys


@dataclass(frozen=True, slots=True)
class MmaSync(Multiplier):
    """Every `mma.sync` of `cutegen/hardware/mma_atoms.py`."""

    keys: ClassVar[PartKeys] = MMA_SYNC

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for element types that the target does not have."""
        check_dtypes(spec, target)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the atom, the warps, and how a warp repeats the atom in its registers."""
        atom = choose_atom(spec, cta_tile.value)
        tf32 = choose_tf32_rounding(spec, atom.value)
        atom_layout = choose_atom_layout(spec, cta_tile.value, atom.value, target)
        permutation = choose_permutation(spec, cta_tile.value, atom.value, atom_layout.value, target)
        choices = (cta_tile, atom, *((tf32,) if tf32 else ()), atom_layout, permutation)
        tiled_mma = TiledMma(atom.value, atom_layout.value, permutation.value)
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom.value,
            tiled_mma=tiled_mma,
            role=Role(name=MMA, threads=tiled_mma.threads),
            accumulator=in_registers(tiled_mma, cta_tile.value[:2], atom.value.c_dtype),
            rounds_to_tf32=tf32 is not None and tf32.value,
        )
        return mma, tuple(choice.decision for choice in choices)

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Accumulators, two buffers of fragments, data on its way to shared memory, and addresses."""
        passing = sum(each.passing_registers for each in operands)
        return estimate_registers(target, mma.cta_tile, mma.tiled_mma, mma.atom, passing)

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """All but plain loads of fragments, which the compiler may merge."""
        return {opcode: count for opcode, count in counts.items() if not opcode.startswith("ld.shared")}
