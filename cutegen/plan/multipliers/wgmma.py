"""`wgmma`: a warpgroup multiplies operands in shared memory asynchronously."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import Target
from cutegen.hardware.units import WARPGROUP
from cutegen.hardware.wgmma_atoms import columns_of
from cutegen.plan.kernel.accumulator import Promotion, in_registers
from cutegen.plan.kernel.role import MMA, Role, Turns
from cutegen.plan.parts import Multiplier, Operands
from cutegen.plan.rules.cluster import choose_cluster
from cutegen.plan.rules.consumers import choose_consumers
from cutegen.plan.rules.last_k_tiles import choose_last_k_tiles
from cutegen.plan.rules.mma import check_dtypes
from cutegen.plan.rules.promotion import choose_promoted_sums, choose_promotion
from cutegen.plan.rules.warpgroups import choose_warpgroups
from cutegen.plan.rules.wgmma_atom import check_operands, choose_atom
from cutegen.plan.rules.wgmma_sums import REGISTERS_BESIDE_SUMS, promoted_sets
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.spec.families import WGMMA, PartKeys


@dataclass(frozen=True, slots=True)
class Wgmma(Multiplier):
    """Every `wgmma.mma_async` of `cutegen/hardware/wgmma_atoms.py` that reads both operands from shared memory."""

    keys: ClassVar[PartKeys] = WGMMA

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for element types and majors that no wgmma has."""
        check_dtypes(spec, target)
        check_operands(spec, target)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the warpgroups, and the atom that covers all columns of one."""
        consumers = choose_consumers(spec)
        warpgroups = choose_warpgroups(spec, cta_tile.value, target)
        atom = choose_atom(spec, cta_tile.value, warpgroups.value)
        cluster = choose_cluster(spec, cta_tile.value, atom.value, prod(warpgroups.value))
        promotion = choose_promotion(spec, cta_tile.value)
        promote_k = promotion.value if promotion else 0
        last = choose_last_k_tiles(spec, warpgroups.value, cta_tile.value, promote_k)
        sets = promoted_sets(spec, warpgroups.value, cta_tile.value, target, promote_k)
        sums = choose_promoted_sums(
            sets, prod(warpgroups.value), promote_k=promote_k, k=cta_tile.value[2], pingpong=consumers.value
        )
        turns = Turns.TILES if consumers.value else Turns.LAST_K_TILES if last is not None and last.value else None
        groups = 2 if consumers.value else prod(warpgroups.value)
        choices = filter(None, (cta_tile, atom, warpgroups, consumers, last, cluster, promotion, sums))
        tiled_mma = TiledMma(atom.value, warpgroups.value)
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom.value,
            tiled_mma=tiled_mma,
            role=Role(name=MMA, threads=WARPGROUP * groups, groups=groups, turns=turns),
            accumulator=in_registers(
                tiled_mma,
                cta_tile.value[:2],
                atom.value.c_dtype,
                widths=columns_of(atom.value),
                promotion=Promotion(promote_k, sets, staggered=sums is not None and sums.value) if promote_k else None,
            ),
            cluster=cluster.value,
        )
        return mma, tuple(choice.decision for choice in choices)

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Accumulators, addresses and barriers: operands stay in shared memory."""
        return mma.accumulator.registers + REGISTERS_BESIDE_SUMS
