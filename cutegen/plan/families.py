"""The families of kernels by name, and the choice of one; they are composed and registered only here.

A family is a composition (`family.py`) of an MMA, a main loop and a schedule; none refers to another. To add one,
compose it and `register` it with its row for specs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import MULTIPLIES, Instruction, Target, dtype, targets_with
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.family import Family
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.mainloop.tensor_memory import TmaTmem
from cutegen.plan.mainloop.threads import CpAsync, Plain
from cutegen.plan.mainloop.tma import TmaRs, TmaSs
from cutegen.plan.mma import fma, tcgen05, wgmma
from cutegen.plan.mma.atoms import becomes_f16, choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.schedules import CtaPerTile, Persistent
from cutegen.plan.search import bulk, cp_async, tensor_memory, warpgroups
from cutegen.plan.search.problem import Proposal, foretold
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import Family as SpecFamily
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

# The `simt` family: fused multiply-adds on shared memory that plain copies fill, after CuTe's sgemm_1.cu.
#
# The preconditions of CuTe's gemm_device are errors here, under the same names.


SIMT = Family(
    name="simt",
    mma=fma.Fma(),
    mainloop=Plain(),
    schedule=CtaPerTile(splits=False),
    cta_tile=lambda spec, target: fma.choose_cta_tile(spec),
)


# The `sm80` family: mma.sync fed by ldmatrix from shared memory that a cp.async pipeline fills.


SM80 = Family(
    name="sm80",
    mma=MmaSync(),
    mainloop=CpAsync(),
    schedule=CtaPerTile(),
    cta_tile=lambda spec, target: choose_cta_tile(spec),
    search=cp_async.settled_for,
)


# The `sm120` family: mma.sync fed by ldmatrix from shared memory that bulk tensor copies (TMA) fill.
#
# CTAs are persistent, so that the next tile's copies overlap the stores of C.


DEFAULT_CTA_ROWS = (128, 256)
DEFAULT_CTA_ROWS_BESIDE_F16 = (128, 128)


def choose_large_tile(spec: GemmSpec, target: Target) -> Choice[Extents]:
    """Choose the largest tile whose accumulators leave registers for fragments, with 128-byte lines along K."""
    if spec.tile.cta is not None:
        return choose_cta_tile(spec)
    element = dtype(spec.problem.a.dtype)
    as_f16 = becomes_f16(element, target)
    m, n = DEFAULT_CTA_ROWS_BESIDE_F16 if as_f16 else DEFAULT_CTA_ROWS
    chosen = (m, n, LINE_BYTES // element.bytes)
    why = (
        f"{m * n // (m + n)} multiply-adds per element fetched; each thread of 8 warps has {m * n // 256} "
        "registers of sums"
    )
    if as_f16:
        why += f", which leaves some for the f16 values that {target.name} converts {element.name} to"
    return Choice(chosen, Decision("tile.cta", extents(chosen), why))


SM120 = Family(
    name="sm120",
    mma=MmaSync(),
    mainloop=TmaRs(),
    schedule=Persistent("one CTA fills an SM's registers; the next tile's copies overlap the stores of C"),
    cta_tile=choose_large_tile,
    search=bulk.settled_for,
)


# The `sm90` family: wgmma on shared memory that bulk tensor copies (TMA) fill, after CUTLASS's cooperative kernels.
#
# CTAs are persistent, so that the next tile's copies overlap the stores of C.


SM90 = Family(
    name="sm90",
    mma=wgmma.Wgmma(),
    mainloop=TmaSs(),
    schedule=Persistent(
        "one CTA fills an SM's shared memory; the next tile's copies overlap the stores of C",
        splits=True,
        short_of_l2=True,
        spreads_alone=True,
    ),
    cta_tile=lambda spec, target: wgmma.choose_cta_tile(spec),
    search=warpgroups.settled_for,
    space=warpgroups.space_for,
)


# The `sm100` family: tcgen05.mma on shared memory that bulk tensor copies (TMA) fill, sums in tensor memory.
#
# CTAs are persistent: a tile is multiplied while the previous one is stored. Its kernels have never run on hardware
# (docs/blackwell.md).


SM100 = Family(
    name="sm100",
    mma=tcgen05.Tcgen05(),
    mainloop=TmaTmem(),
    schedule=Persistent(
        "one CTA fills an SM's tensor memory; a tile is multiplied while the previous one is stored", splits=True
    ),
    cta_tile=lambda spec, target: tcgen05.choose_cta_tile(spec),
    search=tensor_memory.settled_for,
)


FAMILIES: dict[str, Family] = {family.name: family for family in (SM80, SM120, SM90, SM100, SIMT)}
"""Every family of kernels, in the order of the documentation."""


def register(family: Family, instructions: str) -> None:
    """Register `family` for specs, which say its `instructions` in words, for the planner and for the renderer.

    Raises ValueError if the name is taken.
    """
    if family.name in FAMILIES:
        raise ValueError(f"family {family.name}: found a family of this name; expected a new name")
    SPEC_FAMILIES[family.name] = SpecFamily(family.name, instructions, family.keys)
    FAMILIES[family.name] = family


# The choice of a family if a spec leaves it open: the fastest by predicted time, or the first that can meet the spec.


ORDER = ("sm90", "sm100", "sm120", "sm80", "simt")
"""Families in the expected order of speed without a problem: by MMA, then by main loop."""

HANDICAPS: Mapping[str, float] = {"sm120": 1.2}
"""Factor on a prediction when compared with one for warpgroups: few kernels of that family were measured against them.
"""


@dataclass(frozen=True, slots=True)
class _Option:
    """A family, its predicted time if there is one, and the refusal if it cannot meet the spec.

    It plans the first entry of `proposed`. `handicap` is a factor on its predicted time when compared with the others.
    `how` is the word for that time.
    """

    name: str
    proposed: Iterable[Proposal] = ()
    predicted_us: float | None = None
    handicap: float = 1.0
    how: str = "predicted"
    refusal: SpecError | None = None

    @property
    def rank(self) -> tuple[bool, float]:
        """The rank among families: those without a prediction come last."""
        return self.predicted_us is None, (self.predicted_us or 0.0) * self.handicap

    @property
    def rejected(self) -> Rejected:
        """Reason of the rejection."""
        if self.refusal is not None:
            return Rejected(
                self.name, f"{self.refusal.key}: found {self.refusal.found}; expected {self.refusal.expected}"
            )
        if self.predicted_us is not None:
            longer = self.handicap * self.predicted_us
            taken_as = f", counted as {longer:.3g}: few of its kernels were measured" if self.handicap != 1 else ""
            return Rejected(self.name, f"{self.predicted_us:.3g} us {self.how}{taken_as}")
        return Rejected(self.name, "later in the order of families")


def plan_with_any_family(
    spec: GemmSpec, target: Target, problem: ProblemShape | None, *, tried: bool = False
) -> GemmPlan:
    """Return the plan of the chosen family; the decision names the others. Raises SpecError if all refuse.

    `tried` leaves out the families of which no kernel has run on hardware.
    """
    options = _beside_the_first([_option(spec, name, target, problem, tried=tried) for name in ORDER])
    options.sort(key=lambda option: option.rank)  # the sort is stable
    by_rules: list[SpecError] = []
    for number, option in enumerate(options):
        if option.refusal is not None:
            continue
        try:
            filled = replace(spec, family=option.name)
            found = FAMILIES[option.name].plan_first(option.proposed, filled, target, problem)
        except SpecError as refusal:
            options[number] = replace(option, refusal=refusal)
            by_rules.append(refusal)
            continue
        rejected = tuple(other.rejected for other in options if other.name != option.name)
        decision = _decision(option, rejected, problem)
        return replace(found, spec=spec, decisions=(decision, *found.decisions))
    if by_rules:  # these families have all of the spec's keys
        raise next((refusal for refusal in by_rules if not refusal.key.endswith(".dtype")), by_rules[0])
    had = [option for option in options if target.has(*SPEC_FAMILIES[option.name].needs)]
    raise _with_way_out(spec, target, _most_telling([option.refusal for option in had if option.refusal is not None]))


def _beside_the_first(options: list[_Option]) -> list[_Option]:
    """Return the options with comparable predictions: if the first has one, the others' are scaled by `HANDICAPS`."""
    if options[0].predicted_us is None:
        return options
    return [replace(each, handicap=HANDICAPS.get(each.name, 1.0)) for each in options]


def _option(spec: GemmSpec, name: str, target: Target, problem: ProblemShape | None, *, tried: bool) -> _Option:
    """Return a family's option before its rules run.

    It has the refusal of the spec or target, if any, and the time of the first candidate whose stages fit.
    """
    by = _multiplies_by(name)
    if tried and not MULTIPLIES[by].has_run:
        untried = spec.error(
            "family",
            found=f'"{name}"',
            expected=f"one that has run on hardware, which no kernel by {by} has",
            fix=f'family = "{name}" in a spec asks for it',
        )
        return _Option(name, refusal=untried)
    try:
        proposed = iter(FAMILIES[name].proposed(replace(spec, family=name), target, problem))
        first = next((one for one in proposed if one.fits), None)
    except SpecError as refusal:
        return _Option(name, refusal=refusal)
    if first is None:
        return _Option(name)
    return _Option(name, chain((first,), proposed), first.predicted_us, how=foretold(target, by))


def _multiplies_by(name: str) -> Instruction:
    """Return the multiply instruction of a family."""
    return next(each for each in MULTIPLIES if each in SPEC_FAMILIES[name].needs)


def _decision(option: _Option, rejected: tuple[Rejected, ...], problem: ProblemShape | None) -> Decision:
    if problem is None or option.predicted_us is None:
        why = f"the first of {', '.join(ORDER)} that can meet the spec"
        return Decision("family", option.name, why, rejected=rejected)
    why = "the family with the lowest predicted time for the problem"
    for_problem = f"{problem}: {option.predicted_us:.3g} us {option.how}"
    return Decision("family", option.name, why, rejected=rejected, for_problem=for_problem)


def _most_telling(refusals: list[SpecError]) -> SpecError:
    """Return the refusal that concerns the spec, not the scope of a family."""
    return next((refusal for refusal in refusals if refusal.key != "family"), refusals[0])


def _with_way_out(spec: GemmSpec, target: Target, refusal: SpecError) -> SpecError:
    """Return the refusal; for a key that no family of the target has, it names another target if one has it."""
    having = [row for row in SPEC_FAMILIES.values() if refusal.key not in row.without]
    if len(having) == len(SPEC_FAMILIES) or not having or any(target.has(*row.needs) for row in having):
        return refusal
    (first, *_), family = targets_with(*having[0].needs), having[0].name
    fix = f'{refusal.fix}, or --arch {first}, whose family "{family}" has it'
    return spec.error(refusal.key, found=refusal.found, expected=refusal.expected, fix=fix)
