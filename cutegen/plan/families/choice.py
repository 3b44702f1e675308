"""Chooses the family where a spec leaves it open: the fastest by predicted time, or the first that can meet the
spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import Target, targets_with
from cutegen.plan.families import FAMILIES
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.search.problem import Settled
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import GemmSpec

ORDER = ("sm90", "sm120", "sm80", "simt")
"""Fastest first, as far as can be said without a problem: by what multiplies, then by what feeds it."""

DOUBTED: Mapping[str, float] = {"sm120": 1.2}
"""What a prediction is taken for beside one for warpgroups: few kernels of that family were measured beside them."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A family, the time that is predicted for it where there is a prediction, and why it cannot be, if it cannot.

    It plans the first of what it has `proposed`. `doubt` is how many times as long as predicted it is taken to be
    beside the others.
    """

    name: str
    proposed: Iterable[Settled] = ()
    predicted_us: float | None = None
    doubt: float = 1.0
    refusal: SpecError | None = None

    @property
    def rank(self) -> tuple[bool, float]:
        """Return the place among families: those without a prediction come after those that have one."""
        return self.predicted_us is None, (self.predicted_us or 0.0) * self.doubt

    @property
    def rejected(self) -> Rejected:
        """Return why it was not taken."""
        if self.refusal is not None:
            return Rejected(
                self.name, f"{self.refusal.key}: found {self.refusal.found}; expected {self.refusal.expected}"
            )
        if self.predicted_us is not None:
            longer = self.doubt * self.predicted_us
            taken_as = f", taken as {longer:.3g}: few of its kernels were measured" if self.doubt != 1 else ""
            return Rejected(self.name, f"{self.predicted_us:.3g} us predicted{taken_as}")
        return Rejected(self.name, "comes later in the order of families")


def plan_with_any_family(spec: GemmSpec, target: Target, problem: ProblemShape | None) -> GemmPlan:
    """The plan of the family that is chosen; the decision names the others. Raises SpecError where all refuse."""
    options = _beside_the_first([_option(spec, name, target, problem) for name in ORDER if name in FAMILIES])
    options.sort(key=lambda option: option.rank)  # equals stay in their order
    for number, option in enumerate(options):
        if option.refusal is not None:
            continue
        try:
            filled = replace(spec, family=option.name)
            found = FAMILIES[option.name].plan_first(option.proposed, filled, target, problem)
        except SpecError as refusal:
            options[number] = replace(option, refusal=refusal)
            continue
        rejected = tuple(other.rejected for other in options if other.name != option.name)
        decision = _decision(option, rejected, problem)
        return replace(found, spec=spec, decisions=(decision, *found.decisions))
    had = [option for option in options if target.has(*SPEC_FAMILIES[option.name].needs)]
    raise _with_way_out(spec, target, _most_telling([option.refusal for option in had if option.refusal is not None]))


def _beside_the_first(options: list[_Option]) -> list[_Option]:
    """The options with comparable predictions: where the first has one, those of others are doubted by `DOUBTED`."""
    if options[0].predicted_us is None:
        return options
    return [replace(each, doubt=DOUBTED.get(each.name, 1.0)) for each in options]


def _option(spec: GemmSpec, name: str, target: Target, problem: ProblemShape | None) -> _Option:
    """Return what is known of a family before its rules run: whether it is for such a spec and target at all, and the
    time of the first candidate whose stages fit.
    """
    try:
        proposed = iter(FAMILIES[name].proposed(replace(spec, family=name), target, problem))
        first = next((one for one in proposed if one.fits), None)
    except SpecError as refusal:
        return _Option(name, refusal=refusal)
    return _Option(name) if first is None else _Option(name, chain((first,), proposed), first.predicted_us)


def _decision(option: _Option, rejected: tuple[Rejected, ...], problem: ProblemShape | None) -> Decision:
    if problem is None or option.predicted_us is None:
        why = f"the first of {', '.join(name for name in ORDER if name in FAMILIES)} that can meet the spec"
        return Decision("family", option.name, why, rejected=rejected)
    why = "for a problem, the family of the least predicted time"
    for_problem = f"{problem}: {option.predicted_us:.3g} us predicted"
    return Decision("family", option.name, why, rejected=rejected, for_problem=for_problem)


def _most_telling(refusals: list[SpecError]) -> SpecError:
    """One that is about the spec, not about what a family is for."""
    return next((refusal for refusal in refusals if refusal.key != "family"), refusals[0])


def _with_way_out(spec: GemmSpec, target: Target, refusal: SpecError) -> SpecError:
    """The refusal; of a key that no family of the target has, with another target where one has it."""
    having = [row for row in SPEC_FAMILIES.values() if refusal.key not in row.without]
    if len(having) == len(SPEC_FAMILIES) or not having or any(target.has(*row.needs) for row in having):
        return refusal
    (first, *_), family = targets_with(*having[0].needs), having[0].name
    fix = f'{refusal.fix}, or --arch {first}, whose family "{family}" has it'
    return spec.error(refusal.key, found=refusal.found, expected=refusal.expected, fix=fix)
