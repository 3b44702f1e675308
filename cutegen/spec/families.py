"""The families that a spec can name: compositions of parts, which say what they need and which keys they lack."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cutegen.hardware import Instruction, targets_with
from cutegen.support.words import either


@dataclass(frozen=True, slots=True)
class PartKeys:
    """A part of a family as specs know it: its MMA, its main loop or its schedule.

    `needs` are instructions that a target must have, `without` keys that the part lacks, each with the reason.
    """

    needs: frozenset[Instruction] = frozenset()
    without: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """Family of kernels: its instructions in words, and its parts; `instead` names a family with keys that it lacks."""

    name: str
    instructions: str
    parts: tuple[PartKeys, ...]
    instead: str = ""
    needs: frozenset[Instruction] = field(init=False)
    without: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Unite what the parts need and lack."""
        object.__setattr__(self, "needs", frozenset().union(*(part.needs for part in self.parts)))
        object.__setattr__(self, "without", {key: why for part in self.parts for key, why in part.without.items()})

    @property
    def bulk_copies(self) -> bool:
        """True if it copies by TMA."""
        return Instruction.BULK_TENSOR in self.needs

    @property
    def targets(self) -> str:
        """Format the targets that have its instructions, as alternatives."""
        return either(targets_with(*self.needs))


_ALONE = {"mma.cta_group": "no instruction is for two CTAs"}
_OF_SMALL_INSTRUCTIONS = {
    **_ALONE,
    "problem.scale_a": "its sums stay in the accumulators, and are not scaled on the way",
    "problem.scale_b": "its sums stay in the accumulators, and are not scaled on the way",
    "mma.promote_k": "its sums stay in the accumulators",
    "epilogue.quantize": "the threads of a row of C are in several warps",
    "schedule.consumers": "its instructions are not per warpgroup",
    "schedule.tiles": "its CTAs have their tiles from the launch on",
    "schedule.swap": "its instructions are small along both M and N",
}
FMA = PartKeys(
    frozenset({Instruction.FMA}),
    {
        **_OF_SMALL_INSTRUCTIONS,
        "epilogue.pairs": "its threads have columns next to one another",
        "mma.atom": "a thread multiplies by itself, one fma at a time",
        "mma.atom_layout": "mma.threads lays out threads",
        "mma.permutation": "each thread repeats the whole layout mma.threads over the tile",
        "mma.tf32": "f32 operands are multiplied as they are",
    },
)
MMA_SYNC = PartKeys(
    frozenset({Instruction.MMA_SYNC}),
    {"mma.threads": "mma.atom_layout lays out warps", **_OF_SMALL_INSTRUCTIONS},
)
WGMMA = PartKeys(
    frozenset({Instruction.WGMMA}),
    {
        "mma.threads": "mma.atom_layout lays out warpgroups",
        "mma.permutation": "an instruction has all columns of a warpgroup",
        "mma.tf32": "wgmma has no tf32 operands here",
        **_ALONE,
        "schedule.tiles": "no target of wgmma cancels CTAs that have not started",
        "s2r.a.atom": "wgmma reads shared memory by matrix descriptors",
        "s2r.b.atom": "wgmma reads shared memory by matrix descriptors",
    },
)
TCGEN05 = PartKeys(
    frozenset({Instruction.TCGEN05}),
    {
        "mma.threads": "one elected thread multiplies for a CTA",
        "mma.atom_layout": "one elected thread multiplies for a CTA",
        "mma.permutation": "an instruction has all rows and columns of the tile",
        "mma.promote_k": "sums are promoted where factors of f32 scale them, and K is that of a block",
        "mma.tf32": "tcgen05.mma reads f32 elements in shared memory, and ignores their low bits",
        "schedule.consumers": "one elected thread multiplies for a CTA",
        "s2r.a.atom": "tcgen05.mma reads shared memory by matrix descriptors",
        "s2r.b.atom": "tcgen05.mma reads shared memory by matrix descriptors",
    },
)

_OF_ONE_CTA = {
    "schedule.cluster": "each CTA copies for itself",
    "schedule.programmatic": "a launch begins after its predecessor has ended",
    "schedule.pace": "a stage is filled as soon as it is empty",
    "g2s.a.l2": "L2 evicts the least recently used lines",
    "g2s.b.l2": "L2 evicts the least recently used lines",
    "g2s.a.prefetch": "the threads that would prefetch issue the copies",
    "g2s.b.prefetch": "the threads that would prefetch issue the copies",
}
PLAIN_COPIES = PartKeys(without=_OF_ONE_CTA)
VECTORS = PartKeys(frozenset({Instruction.LDMATRIX, Instruction.CP_ASYNC}), _OF_ONE_CTA)
COPIED_BOXES = PartKeys(
    frozenset({Instruction.LDMATRIX, Instruction.BULK_TENSOR, Instruction.SETMAXNREG}),
    {
        **_OF_ONE_CTA,
        "epilogue.pairs": "its bulk tensor copies keep the order of B's columns",
        "problem.groups": "its bulk tensor copies do not begin at a group",
    },
)
DESCRIBED_BOXES = PartKeys(frozenset({Instruction.BULK_TENSOR, Instruction.SETMAXNREG}))
DRAINED_BOXES = PartKeys(
    frozenset({Instruction.BULK_TENSOR}),
    {
        **{key: why for key, why in _OF_ONE_CTA.items() if key != "schedule.cluster"},
        "g2s.scale_a": "one thread of its producer copies, by boxes",
        "g2s.scale_b": "one thread of its producer copies, by boxes",
    },
)

SPLITS_K = PartKeys()
WHOLE_K = PartKeys(
    without={
        "schedule.reduction": "a CTA multiplies all of a tile's K",
        "problem.groups": "its tiles are those of one product, or of a batch",
    }
)
WHOLE_K_PERSISTENT = PartKeys(without={"schedule.reduction": "a persistent CTA multiplies all of a tile's K"})

FAMILIES: dict[str, Family] = {
    row.name: row
    for row in (
        Family("sm80", "mma.sync, ldmatrix, cp.async", (MMA_SYNC, VECTORS, SPLITS_K)),
        Family("simt", "fused multiply-add without tensor cores", (FMA, PLAIN_COPIES, WHOLE_K)),
        Family("sm120", "mma.sync, ldmatrix, bulk tensor copies", (MMA_SYNC, COPIED_BOXES, WHOLE_K_PERSISTENT)),
        # Families are named as in CUTLASS, by the architecture of their main loop: only sm_90 has wgmma.
        Family("sm90", "wgmma, bulk tensor copies", (WGMMA, DESCRIBED_BOXES, SPLITS_K), instead="sm120"),
        Family("sm100", "tcgen05.mma, bulk tensor copies", (TCGEN05, DRAINED_BOXES, SPLITS_K)),
    )
}


def family_with(*instructions: Instruction) -> str:
    """Name the first family with all these instructions, for a refusal's way out.

    >>> family_with(Instruction.CP_ASYNC), family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR)
    ('sm80', 'sm120')
    """
    return next(row.name for row in FAMILIES.values() if row.needs >= {*instructions})


def family_reading(key: str) -> str:
    """Name the first family that has a key, for a refusal's way out.

    >>> family_reading("schedule.reduction"), family_reading("schedule.cluster")
    ('sm80', 'sm90')
    """
    return next(row.name for row in FAMILIES.values() if key not in row.without)
