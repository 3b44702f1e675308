"""Shares out the tiles of C among CTAs: a CTA for each tile, or for each slice of its K; or persistent CTAs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from cutegen.contract.problem import ProblemShape
from cutegen.plan.loop import Loop
from cutegen.plan.rules.split_k import (
    check_together,
    choose_split_k,
    refuse_atomics,
    refuse_clusters,
    refuse_split_k,
)
from cutegen.plan.rules.tile_order import InFlight, least_read, shared_most
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.gemm_plan import RasterPlan, SplitPlan
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import GemmSpec


@dataclass(frozen=True, slots=True)
class CtaPerTile:
    """One CTA for each tile; with `splits`, several may share a tile's K."""

    splits: bool = True
    ctas_per_multiprocessor: ClassVar[int | None] = None

    def check(self, spec: GemmSpec, problem: ProblemShape | None, family: str) -> None:
        """Raise SpecError where K is split and may not be, or added up as it cannot be."""
        refuse_clusters(spec, problem)
        if not self.splits:
            refuse_split_k(spec, f"a CTA of family {family} multiplies all of a tile's K")

    def split(self, spec: GemmSpec, mma: MmaPlan) -> tuple[SplitPlan | None, tuple[Decision, ...]]:
        """The slices that the spec asks for."""
        if not self.splits:
            return None, ()
        return choose_split_k(spec, mma)

    def order(self, spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None) -> Choice[RasterPlan]:
        """The order of the tiles that reads least from device memory."""
        return least_read(spec, in_flight)

    def loop(self, of_a_tile: Loop) -> Loop:
        """A CTA runs it once."""
        return of_a_tile

    def spreads(self, mma: MmaPlan) -> bool:
        """Never."""
        return False

    def decisions(self, along: str, mma: MmaPlan, in_flight: InFlight | None) -> tuple[Decision, ...]:
        """Nothing was decided."""
        return ()


@dataclass(frozen=True, slots=True)
class Persistent:
    """As many CTAs as the GPU holds at `ctas_per_multiprocessor`, each of which computes tile after tile."""

    why: str
    splits: bool = False
    ctas_per_multiprocessor: ClassVar[int | None] = 1
    short_of_l2: bool = False
    spreads_alone: bool = False

    def check(self, spec: GemmSpec, problem: ProblemShape | None, family: str) -> None:
        """Raise SpecError where K is split and may not be, or added up as it cannot be."""
        refuse_atomics(spec, problem)
        if not self.splits:
            refuse_split_k(spec, f"a persistent CTA of family {family} multiplies all of a tile's K")

    def split(self, spec: GemmSpec, mma: MmaPlan) -> tuple[SplitPlan | None, tuple[Decision, ...]]:
        """The slices that the spec asks for: as many persistent CTAs for each as without them for all of K."""
        if not self.splits:
            return None, ()
        check_together(spec)
        return choose_split_k(spec, mma, shared=True)

    def order(self, spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None) -> Choice[RasterPlan]:
        """The order of the tiles that reads least from device memory, or where L2 is short, that shares most of it."""
        if self.short_of_l2:
            return shared_most(spec, mma.cta_tile, mma.cluster, in_flight)
        return least_read(spec, in_flight)

    def loop(self, of_a_tile: Loop) -> Loop:
        """Tile after tile."""
        return replace(of_a_tile, persistent=True)

    def spreads(self, mma: MmaPlan) -> bool:
        """Those without clusters, with `spreads_alone`: clusters go to the GPCs in turn by themselves."""
        return self.spreads_alone and max(mma.cluster) == 1

    def decisions(self, along: str, mma: MmaPlan, in_flight: InFlight | None) -> tuple[Decision, ...]:
        """The order in which a CTA visits tiles, and where CTAs are that are few."""
        where, why = "one CTA a multiprocessor", self.why
        if self.spreads(mma) and in_flight is not None and in_flight.leaves_half:
            where = "one CTA on every second multiprocessor"
            why += "; the two of a TPC share its way to L2, so that of twice as many CTAs every second leaves at once"
        return (Decision("schedule.persistent", f"{where}, tile after tile along {along}", why),)
