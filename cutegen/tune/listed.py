"""The calls of a program as specs to tune, from the list that CUTEGEN_RECORD wrote, and how often each is made."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from cutegen.contract.problem import ProblemShape
from cutegen.pack.kernel_list import RecordedCall
from cutegen.spec import GemmSpec
from cutegen.tune.jobs import Measured
from cutegen.tune.pick_winner import record_of
from cutegen.tuned.record import RegimeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A spec to tune for a problem, of `times` calls that one kernel serves."""

    spec: GemmSpec
    problem: ProblemShape
    times: int


def listed(calls: Iterable[RecordedCall]) -> tuple[Listed, ...]:
    """Return one problem for each kernel of the calls: the extents that are called most often, the largest of several.

    The first have the most operations of all their calls, so that a run that ends early has tuned those.
    """
    by_kernel: dict[tuple[GemmSpec, ProblemShape | None], list[RecordedCall]] = {}
    for call in calls:
        by_kernel.setdefault((call.wanted.spec, call.wanted.problem), []).append(call)
    found: dict[Listed, int] = {}
    for (spec, _), those in by_kernel.items():
        most = max(those, key=lambda each: (each.times, each.problem.flops))
        made = Listed(spec=spec, problem=most.problem, times=sum(each.times for each in those))
        found[made] = sum(each.times * each.problem.flops for each in those)
    return tuple(sorted(found, key=lambda each: -found[each]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """Times of so many calls in one regime by the model's selections and by the tuned kernels, in microseconds."""

    regime: RegimeName
    calls: int
    model_us: float
    tuned_us: float

    @property
    def gain(self) -> float:
        """Speedup of all calls together."""
        return self.model_us / self.tuned_us


def weighted(measured: Sequence[Measured], times: Mapping[str, int]) -> tuple[Weighted, ...]:
    """Return the times of all calls by regime, of which `times` counts those of each problem by its id.

    A regime without times has no row.
    """
    found = {regime: list(_counted(measured, times, regime)) for regime in get_args(RegimeName)}
    return tuple(
        Weighted(
            regime=regime,
            calls=sum(count for count, _, _ in rows),
            model_us=sum(count * us for count, us, _ in rows),
            tuned_us=sum(count * us for count, _, us in rows),
        )
        for regime, rows in found.items()
        if rows
    )


def _counted(
    measured: Sequence[Measured], times: Mapping[str, int], regime: RegimeName
) -> Iterator[tuple[int, float, float]]:
    """Yield the count of each problem, and the medians of its kernels by the model and by measurement."""
    for each in measured:
        if (record := record_of(each)) is None:
            continue
        evidence = record.evidence
        model, tuned = (evidence.times(name, regime) for name in (evidence.favorite, evidence.winner))
        if model is not None and tuned is not None:
            yield times[each.id], model.median_us, tuned.median_us
