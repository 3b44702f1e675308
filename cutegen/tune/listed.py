"""The calls of a program as specs to tune, from the list that CUTEGEN_RECORD wrote, and how often each is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cutegen.contract.problem import ProblemShape
from cutegen.pack.calls import RecordedCall
from cutegen.spec import GemmSpec
from cutegen.tune.jobs import Measured
from cutegen.tune.recording import record_of


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
    """Times of so many calls by the model's selections and by the tuned kernels, in microseconds."""

    calls: int
    model_us: float
    tuned_us: float

    @property
    def gain(self) -> float:
        """The speedup of all calls together."""
        return self.model_us / self.tuned_us


def weighted(measured: Sequence[Measured], times: Mapping[str, int]) -> Weighted | None:
    """Return the times of all calls, of which `times` counts those of each problem by its id; None without a record."""
    found = []
    for each in measured:
        record = record_of(each)
        if record is None:
            continue
        model, tuned = (record.evidence.times(x) for x in (record.evidence.favorite, record.evidence.winner))
        if model is not None and tuned is not None:
            found.append((times[each.id], model.median_us, tuned.median_us))
    if not found:
        return None
    return Weighted(
        calls=sum(count for count, _, _ in found),
        model_us=sum(count * us for count, us, _ in found),
        tuned_us=sum(count * us for count, _, us in found),
    )
