"""Distributes the tiles of C among CTAs: one CTA per tile or per slice of its K; or persistent CTAs."""

from dataclasses import dataclass
from typing import ClassVar

from cutegen.contract.problem import Groups, ProblemShape
from cutegen.plan.kernel.scheduler import (
    GRID,
    GROUPED,
    SEARCHED,
    STATIC,
    TAKEN_OVER,
    SplitK,
    TileOrder,
    TileScheduler,
    TileSource,
)
from cutegen.plan.parts import Schedule
from cutegen.plan.schedule import cluster
from cutegen.plan.schedule.order import InFlight, least_read, shared_most
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.gemm_plan import MmaPlan, Occupancy
from cutegen.spec import GemmSpec
from cutegen.spec.families import SPLITS_K, WHOLE_K, WHOLE_K_PERSISTENT, PartKeys


@dataclass(frozen=True, slots=True)
class CtaPerTile(Schedule):
    """One CTA per tile; with `splits`, several may share a tile's K. Those of groups are persistent."""

    splits: bool = True
    source: ClassVar[TileSource] = GRID
    source_of_groups: ClassVar[TileSource] = GROUPED

    @property
    def keys(self) -> PartKeys:
        """Without slices nothing is added."""
        return SPLITS_K if self.splits else WHOLE_K

    def check(self, spec: GemmSpec, problem: ProblemShape | None, family: str) -> None:
        """Raise SpecError for a split K or a reduction that this schedule does not support."""
        cluster.refuse_clusters(spec, problem)
        if not self.splits:
            cluster.refuse_split_k(spec, f"a CTA of family {family} multiplies all of a tile's K")

    def split(self, spec: GemmSpec, mma: MmaPlan) -> tuple[SplitK | None, tuple[Decision, ...]]:
        """Return the slices that the spec requests."""
        if not self.splits:
            return None, ()
        return cluster.choose_split_k(spec, mma)

    def resident(self, occupancy: Occupancy) -> int:
        """Return as many as fit: each waits for its own copies, and for no other CTA."""
        return occupancy.ctas_per_sm

    def order(self, spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None) -> Choice[TileOrder]:
        """Return the order of the tiles that reads least from device memory."""
        return least_read(spec, in_flight)


@dataclass(frozen=True, slots=True)
class Persistent(Schedule):
    """As many CTAs as the GPU holds at once, each of which computes one tile after another."""

    why: str
    splits: bool = False
    source: ClassVar[TileSource] = STATIC
    source_of_groups: ClassVar[TileSource] = SEARCHED
    source_taken_over: ClassVar[TileSource] = TAKEN_OVER
    short_of_l2: bool = False
    spreads_alone: bool = False

    @property
    def keys(self) -> PartKeys:
        """Without slices nothing is added."""
        return SPLITS_K if self.splits else WHOLE_K_PERSISTENT

    def check(self, spec: GemmSpec, problem: ProblemShape | None, family: str) -> None:
        """Raise SpecError for a split K or a reduction that this schedule does not support."""
        cluster.refuse_atomics(spec, problem)
        if not self.splits:
            cluster.refuse_split_k(spec, f"a persistent CTA of family {family} multiplies all of a tile's K")

    def split(self, spec: GemmSpec, mma: MmaPlan) -> tuple[SplitK | None, tuple[Decision, ...]]:
        """Return the slices that the spec requests: each has as many persistent CTAs as an unsplit K."""
        if not self.splits:
            return None, ()
        cluster.check_together(spec)
        return cluster.choose_split_k(spec, mma, shared=True)

    def order(self, spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None) -> Choice[TileOrder]:
        """Return the tile order that reads least from device memory, or shares the most if L2 is the limit."""
        if self.short_of_l2:
            return shared_most(spec, mma.cta_tile, mma.cluster, in_flight)
        return least_read(spec, in_flight)

    def spreads(self, mma: MmaPlan) -> bool:
        """Return True without clusters, with `spreads_alone`: hardware distributes clusters over the GPCs."""
        return self.spreads_alone and max(mma.cluster) == 1

    def decisions(self, mma: MmaPlan, scheduler: TileScheduler, in_flight: InFlight | None) -> tuple[Decision, ...]:
        """Return the order in which a CTA visits tiles, and the placement of few CTAs."""
        where, why = "one CTA per SM", self.why
        if scheduler.spread and in_flight is not None and in_flight.leaves_half:
            where = "one CTA on every second SM"
            why += "; the two SMs of a TPC share its path to L2: of twice as many CTAs, every second one exits at once"
        if scheduler.source.takes_over:
            where = "a CTA for each tile, one CTA per SM at a time"
        chosen, bound = f"{where}, one tile after another along {scheduler.order.along}", ""
        if scheduler.groups is not None:
            chosen += ", group after group"
            why += "; the warps of each role find its tiles themselves: a lane has one of 32 groups at a time"
            bound = "" if in_flight is None else f"at most {_most_tiles(mma, scheduler.groups, in_flight)} tiles"
        return (Decision("schedule.persistent", chosen, why, for_problem=bound),)


def _most_tiles(mma: MmaPlan, groups: Groups, in_flight: InFlight) -> int:
    """Return the most tiles that any sizes of the groups of a problem have; `in_flight` has those of the mean group."""
    mean, (tile_m, tile_n, _) = in_flight.problem, mma.cta_tile
    tiles = {"m": in_flight.grid.tiles_m, "n": in_flight.grid.tiles_n}
    if groups.of == "k":
        return mean.batch * tiles["m"] * tiles["n"]
    other, tile = ("n", tile_m) if groups.of == "m" else ("m", tile_n)
    extent = mean.extents[groups.of] * (mean.batch if groups.layout == "packed" else 1)
    return groups.most_tiles(extent, mean.batch, tile) * tiles[other]
