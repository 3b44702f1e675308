"""Options for a problem: candidates with their slices of K, and the prediction of the performance model for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from cutegen.algebra import Extents
from cutegen.hardware import SM_RATES, Instruction, Issuer, Target
from cutegen.hardware.rates import ASSUMED_MMA_FLOPS
from cutegen.plan.rules.cluster import ALONE, CLUSTER
from cutegen.plan.rules.consumers import PINGPONG
from cutegen.plan.rules.pipeline import DOUBLE_BUFFERED
from cutegen.plan.search.tile_model import Estimate
from cutegen.spec import GemmSpec
from cutegen.spec.values import Consumers, Reduction
from cutegen.support.words import extents, plural


def cluster_text(cluster: Extents) -> str:
    """Format a cluster as in specs: with K only if slices are added there.

    >>> cluster_text((2, 1, 1)), cluster_text((1, 1, 4))
    ('2x1', '1x1x4')
    """
    return extents(cluster if cluster[2] > 1 else cluster[:2])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CTA tile, the issuers of its multiplications along M, N and K, and its stages.

    If it `schedules`, it has also the consumers' schedule, the CTAs of a cluster, and whether A and B are swapped: the
    tile is then one of the swapped product. `overall` is a measured factor on the model's time.
    """

    cta: tuple[int, int, int]
    atom_layout: tuple[int, int, int]
    stages: int
    consumers: Consumers | None = None
    cluster: Extents = ALONE
    swap: bool = False
    overall: float = 1.0
    issued_by: Issuer = Issuer.WARP

    @property
    def schedules(self) -> bool:
        """True if it says how its consumers share tiles."""
        return self.consumers is not None

    def __str__(self) -> str:
        m, n, k = self.cta
        warps_m, warps_n, _ = self.atom_layout
        shared = f"{warps_m}x{warps_n} {self.issued_by}s" if self.consumers != PINGPONG else PINGPONG
        text = f"{m}x{n}x{k}, {shared}, {plural(self.stages, 'stage')}"
        if self.cluster != ALONE:
            text += f", clusters of {cluster_text(self.cluster)}"
        return f"{text}, swapped" if self.swap else text

    @property
    def tile(self) -> tuple[object, ...]:
        """The part of the name that candidates of one tile have in common."""
        return self.cta, self.atom_layout, self.swap


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with slices of K, and the model's prediction."""

    candidate: Candidate
    slices: int
    estimate: Estimate

    def __str__(self) -> str:
        return f"{self.candidate}, {plural(self.slices, 'slice')} of K" if self.slices > 1 else str(self.candidate)


def reduction_in(cluster: Extents) -> Reduction:
    """Return the reduction of slices for such a cluster."""
    return CLUSTER if cluster[2] > 1 else "workspace"


def tile_is_open(spec: GemmSpec) -> bool:
    """Return whether the spec leaves the tile and its warps open."""
    return spec.tile.cta is None and spec.mma.atom_layout is None and spec.mma.permutation is None


def for_elements(candidates: Iterable[Candidate], element_bytes: int) -> Iterator[Candidate]:
    """Return rows written for 2-byte elements: rows of shared memory are 128 or 256 bytes for any type."""
    for row in candidates:
        m, n, k = row.cta
        yield replace(row, cta=(m, n, k * 2 // element_bytes))


def with_stages(
    spec: GemmSpec, candidates: Iterable[Candidate], most: Callable[[tuple[int, int, int]], int]
) -> Iterator[Candidate]:
    """Return each with the stages that the spec gives, else `most` of its CTA tile, as many as fit."""
    for row in candidates:
        if spec.tile.stages is not None:
            yield replace(row, stages=spec.tile.stages)
        elif (stages := min(row.stages, most(row.cta))) >= DOUBLE_BUFFERED:
            yield replace(row, stages=stages)


def mma_flops(spec: GemmSpec, target: Target, by: Instruction = Instruction.MMA_SYNC) -> float:
    """Return the operations per cycle and SM on the spec's operands, for the multiplier `by`."""
    return SM_RATES[target.name].flops_of(by, spec.problem.a.dtype) or ASSUMED_MMA_FLOPS
