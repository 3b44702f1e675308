"""Requests to tuning, and the jobs that they turn into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cutegen.bench.grouped import GroupSizes
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import target as target_of
from cutegen.spec import PROBE, GemmSpec
from cutegen.tune import jobs
from cutegen.tune.jobs import Candidate, CompileJob, MeasureJob
from cutegen.tune.space import MOST, Proposed, proposed


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """One problem to tune a spec for: plain values that travel as JSON. At most `most` candidates are measured.

    `sizes` are those of groups, which have the whole extent of the problem.
    """

    spec_name: str
    asked: str
    target: str
    problem: ProblemShape
    device: str
    most: int = MOST
    settings: jobs.Settings = jobs.DEFAULT_SETTINGS
    timer: jobs.Timer = jobs.ON_GPU
    sizes: GroupSizes | None = None

    @property
    def id(self) -> str:
        """An id that a rerun with the same request on the same kind of device shares, whatever its seed."""
        parts = (self.spec_name, self.asked, self.target, str(self.problem), self.device)
        of_groups = () if self.sizes is None else tuple(map(str, self.sizes.values))
        return jobs.job_id(*parts, str(self.most), self.settings.decide_by, self.timer.kind, *of_groups)


def tune_request_of(spec: GemmSpec, target: str, problem: ProblemShape, device: str, **more: object) -> TuneRequest:
    """Request tuning for one problem. Raises SpecError for a probe, and for groups without their sizes."""
    if spec.kind == PROBE:
        fix = "`cutegen run` runs probes"
        raise spec.error("kind", found=f'"{spec.kind}"', expected="a GEMM, which can be measured", fix=fix)
    ask = TuneRequest(spec_name=spec.name, asked=jobs.spec_json(spec), target=target, problem=problem, device=device)
    ask = replace(ask, **more)  # type: ignore[arg-type]  # fields of TuneRequest, as its callers name them
    if (spec.problem.groups is None) != (ask.sizes is None):
        found = "sizes of groups" if spec.problem.groups is None else "no sizes"
        raise spec.error("problem.groups", found=f"{found} to measure", expected="both, or neither", fix="sizes=")
    return ask


def compile_jobs(ask: TuneRequest) -> tuple[CompileJob, ...]:
    """Return the candidates of one problem, the model's favorite first. Jobs with one id are the same kernel.

    Raises SpecError if no family can meet the spec.
    """
    spec, target = jobs.spec_of_json(ask.asked, ask.spec_name), target_of(ask.target)
    return tuple(_compile_job(ask, each) for each in proposed(spec, target, ask.problem, ask.most))


def _compile_job(ask: TuneRequest, each: Proposed) -> CompileJob:
    settled = jobs.spec_json(each.settled)
    return CompileJob(
        id=jobs.job_id(ask.spec_name, ask.asked, settled, ask.target),
        label=each.name,
        name=ask.spec_name,
        asked=ask.asked,
        settled=settled,
        target=ask.target,
        problem=ask.problem,
        predicted_us=each.predicted_us,
    )


def measure_job_of(ask: TuneRequest, jobs: Sequence[CompileJob], compiled: Mapping[str, jobs.Compiled]) -> MeasureJob:
    """Return the job that measures a problem: the candidates of its `jobs` that compiled.

    `compiled` is keyed by id. Raises SpecError if none compiled.
    """
    candidates: dict[str, Candidate] = {}
    for job in jobs:
        key = compiled[job.id].key
        if key is not None:
            candidates.setdefault(
                key, Candidate(name=job.label, settled=job.settled, key=key, predicted_us=job.predicted_us)
            )
    if not candidates:
        why = next((one.why for one in map(compiled.get, (job.id for job in jobs)) if one is not None), None)
        raise SpecError(
            file=ask.spec_name, key="", found=f"no candidate for {ask.problem} that compiles", expected=why or "one"
        )
    return MeasureJob(
        id=ask.id,
        spec_name=ask.spec_name,
        asked=ask.asked,
        target=ask.target,
        problem=ask.problem,
        candidates=tuple(candidates.values()),
        settings=ask.settings,
        timer=ask.timer,
        sizes=ask.sizes,
    )
