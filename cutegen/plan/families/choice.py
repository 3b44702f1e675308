"""Chooses the family if a spec leaves it open: the fastest by predicted time, or the first that can meet the spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import MULTIPLIES, Instruction, Target, targets_with
from cutegen.plan.families import FAMILIES
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.search.problem import Proposal
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.plan.values.predicted_time import foretold
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import GemmSpec

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
