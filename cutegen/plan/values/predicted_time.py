"""The time of a launch, before it is measured: microseconds, and how they were found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from cutegen.contract.problem import Distribution
from cutegen.hardware import GPUS, SM_RATES, Instruction, Target

SHOWN_DIGITS = 3
AT_LEAST = "at least"
"""The word for a time that only rates bound."""


@dataclass(frozen=True, slots=True)
class TimesOfSizes:
    """Microseconds of one launch over sizes of packed groups: those of the named distributions, and of any sizes."""

    named: tuple[tuple[Distribution, float], ...]
    us_of: Callable[[Sequence[int]], float] = field(compare=False, repr=False)

    @property
    def mean_us(self) -> float:
        """The mean over the named distributions."""
        return fmean(us for _, us in self.named)


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """Microseconds of one launch on a target's reference GPU, and the word for them (`foretold`, or `AT_LEAST`).

    With packed groups they are the mean of those `of_sizes`, the distributions of their rows.
    """

    us: float
    how: str
    gpu: str
    of_sizes: TimesOfSizes | None = None

    def __str__(self) -> str:
        """Write it as a sentence has it.

        >>> print(PredictedTime(839.2, "estimated", "A100 (108 SMs)"))
        839 us estimated on A100 (108 SMs)
        >>> print(PredictedTime(12.0, AT_LEAST, "H200 (132 SMs)"))
        at least 12 us on H200 (132 SMs)
        """
        time = f"{AT_LEAST} {shown_us(self.us)}" if self.how == AT_LEAST else f"{shown_us(self.us)} {self.how}"
        return f"{time} on {self.gpu}"


def sizes_line(time: PredictedTime) -> tuple[str, ...]:
    """Return the sentence that says the times of sizes, and how much longer the worst takes than the best, if any.

    >>> of_sizes = TimesOfSizes(((Distribution.UNIFORM, 2.0), (Distribution.HOT, 4.0)), sum)

    >>> print(*sizes_line(PredictedTime(3.0, "predicted", "", of_sizes)))
    sizes of groups: uniform 2 us, hot 4 us; kernels are chosen by their mean; the worst takes 2.00 times the best
    """
    if time.of_sizes is None:
        return ()
    listed = ", ".join(f"{each} {shown_us(us)}" for each, us in time.of_sizes.named)
    found = [us for _, us in time.of_sizes.named]
    worst = f"the worst takes {max(found) / min(found):.2f} times the best"
    return (f"sizes of groups: {listed}; kernels are chosen by their mean; {worst}",)


def shown_us(us: float) -> str:
    """Format microseconds with three digits, or as whole ones.

    >>> shown_us(12.345), shown_us(2345.6)
    ('12.3 us', '2,346 us')
    """
    return f"{us:,.{SHOWN_DIGITS}g} us" if us < 1000 else f"{us:,.0f} us"


def foretold(target: Target, by: Instruction = Instruction.MMA_SYNC) -> str:
    """Return the word for times on the target's GPU: "estimated" if no model was fitted to kernels measured on it.

    `by` is the instruction whose rate they assume.

    >>> from cutegen.hardware import TARGETS
    >>> [foretold(TARGETS[name]) for name in ("sm_90", "sm_80", "sm_100")]
    ['predicted', 'estimated', 'estimated at an assumed rate']
    """
    if GPUS[target.name].fitted:
        return "predicted"
    known = SM_RATES[target.name].flops.get(by) is not None
    return "estimated" if known else "estimated at an assumed rate"
