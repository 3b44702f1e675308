"""The instruction families that a spec can name, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cutegen.hardware import Instruction, targets_with
from cutegen.support.words import either


@dataclass(frozen=True, slots=True)
class Family:
    """Family of kernels: its instructions, which a target must have.

    `without` are the keys of a spec that it does not support, each with the reason. `instead` names the family that has
    them; `bulk_copies` means that it copies by TMA.
    """

    name: str
    instructions: str
    needs: frozenset[Instruction]
    without: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""
    bulk_copies: bool = False

    @property
    def targets(self) -> str:
        """Format the targets that have its instructions, as alternatives."""
        return either(targets_with(*self.needs))


OF_WARPGROUPS = {
    "mma.promote_k": "its sums stay in the accumulators",
    "schedule.consumers": "its instructions are not per warpgroup",
    "schedule.swap": "its instructions are small along both M and N",
    "schedule.cluster": "each CTA copies for itself",
    "schedule.programmatic": "a launch begins after its predecessor has ended",
    "schedule.pace": "a stage is filled as soon as it is empty",
    "g2s.a.l2": "L2 evicts the least recently used lines",
    "g2s.b.l2": "L2 evicts the least recently used lines",
    "g2s.a.prefetch": "the threads that would prefetch issue the copies",
    "g2s.b.prefetch": "the threads that would prefetch issue the copies",
}
"""Keys of the warpgroup family, which the other families lack."""

FAMILIES: dict[str, Family] = {
    row.name: row
    for row in (
        Family(
            "sm80",
            "mma.sync, ldmatrix, cp.async",
            frozenset({Instruction.MMA_SYNC, Instruction.LDMATRIX, Instruction.CP_ASYNC}),
            without={
                "mma.threads": "mma.atom_layout lays out warps",
                **OF_WARPGROUPS,
            },
        ),
        Family(
            "simt",
            "fused multiply-add without tensor cores",
            frozenset({Instruction.FMA}),
            without={
                **OF_WARPGROUPS,
                "mma.atom": "a thread multiplies by itself, one fma at a time",
                "mma.atom_layout": "mma.threads lays out threads",
                "mma.permutation": "each thread repeats the whole layout mma.threads over the tile",
                "mma.tf32": "f32 operands are multiplied as they are",
                "schedule.reduction": "a CTA multiplies all of a tile's K",
            },
        ),
        Family(
            "sm120",
            "mma.sync, ldmatrix, bulk tensor copies",
            frozenset({Instruction.MMA_SYNC, Instruction.LDMATRIX, Instruction.BULK_TENSOR, Instruction.SETMAXNREG}),
            bulk_copies=True,
            without={
                **OF_WARPGROUPS,
                "mma.threads": "mma.atom_layout lays out warps",
                "schedule.reduction": "a persistent CTA multiplies all of a tile's K",
            },
        ),
        # Families are named as in CUTLASS, by the architecture of their main loop: only sm_90 has wgmma.
        Family(
            "sm90",
            "wgmma, bulk tensor copies",
            frozenset({Instruction.WGMMA, Instruction.BULK_TENSOR, Instruction.SETMAXNREG}),
            instead="sm120",
            bulk_copies=True,
            without={
                "mma.threads": "mma.atom_layout lays out warpgroups",
                "mma.permutation": "an instruction has all columns of a warpgroup",
                "mma.tf32": "wgmma has no tf32 operands here",
                "s2r.a.atom": "wgmma reads shared memory by matrix descriptors",
                "s2r.b.atom": "wgmma reads shared memory by matrix descriptors",
            },
        ),
    )
}
