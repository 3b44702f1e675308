"""The jobs of tuning as plain values, which travel as JSON to other processes and hosts, and their results.

    compile_job(CompileJob)                one candidate's artifact, in the cache of the machine that compiles
    measure_job(MeasureJob, gpu=UUID)      all candidates of one problem, checked and timed on one GPU

`asdict` makes them plain, and `cutegen.support.typed_json.read` reads them back. Specs travel as JSON of their tables
(`spec_json`). Both functions return a result, whatever happens to a candidate.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from cutegen.bench.grouped import GroupSizes
from cutegen.contract.problem import ProblemShape
from cutegen.spec import GemmSpec
from cutegen.spec.file import spec_of_table, spec_table
from cutegen.support.typed_json import parse_object
from cutegen.tuned.record import DeviceFacts, RegimeName, Status, Times


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """One candidate to compile: the `asked` spec, and the same spec with its open keys `settled`, as JSON.

    `name` is the spec's, `label` the candidate's. Jobs with one `id` are one kernel, whatever their problems.
    """

    id: str
    label: str
    name: str
    asked: str
    settled: str
    target: str
    problem: ProblemShape
    predicted_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The artifact's key; if there is none, `why`."""

    id: str
    key: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """The timer. `stand-in` needs no GPU: a time is a function of candidate, problem and `seed`.

    A stand-in spends `seconds` on each candidate. Named candidates fail: `wrong` results, a child that dies
    (`crashing`), a child that never responds (`hanging`).
    """

    kind: Literal["gpu", "stand-in"] = "gpu"
    seed: int = 0
    seconds: float = 0.0
    wrong: tuple[str, ...] = ()
    crashing: tuple[str, ...] = ()
    hanging: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings for one problem: `seed` of operands and order, time limit of a candidate in seconds."""

    seed: int = 0
    decide_by: RegimeName = "graph"
    candidate_limit_s: float = 30.0


DEFAULT_SETTINGS, ON_GPU = Settings(), Timer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One compiled candidate, by the key of its artifact; its settled spec as JSON, and the model's microseconds."""

    name: str
    settled: str
    key: str
    predicted_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob:
    """The candidates of one problem, the model's favorite first; `asked` is the spec's JSON, `spec_name` its name.

    `sizes` are those of groups. A rerun with the same request has the same `id` (`job_id`).
    """

    id: str
    spec_name: str
    asked: str
    target: str
    problem: ProblemShape
    candidates: tuple[Candidate, ...]
    settings: Settings = DEFAULT_SETTINGS
    timer: Timer = ON_GPU
    sizes: GroupSizes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one candidate; times only if it is correct."""

    name: str
    settled: str
    key: str
    status: Status
    predicted_us: float | None = None
    why: str | None = None
    rel_error: float | None = None
    graph: Times | None = None
    launch: Times | None = None

    def times(self, regime: RegimeName) -> Times | None:
        """Return the times of one regime."""
        return self.graph if regime == "graph" else self.launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Result of a `MeasureJob`, in the order of its candidates; `winner` by name, None if no candidate was correct.

    `tie`: the model's favorite was kept although others are equally fast within noise. `versions` are by package;
    `sizes` is what the sizes of groups are called.
    """

    id: str
    spec_name: str
    asked: str
    target: str
    problem: ProblemShape
    results: tuple[Result, ...]
    winner: str | None = None
    tie: bool = False
    decide_by: RegimeName = "graph"
    device: DeviceFacts | None = None
    versions: tuple[tuple[str, str], ...] = ()
    measured_at: str | None = None
    seconds: float = 0.0
    why: str | None = None
    sizes: str | None = None


def spec_json(spec: GemmSpec) -> str:
    """Return a spec's table on one line, without its name."""
    return json.dumps(spec_table(spec))


def spec_of_json(text: str, name: str) -> GemmSpec:
    """Return the spec that `spec_json` wrote. Raises ArtifactError, SpecError."""
    return spec_of_table(parse_object(text, name), file=name, name=name)


def job_id(*parts: str) -> str:
    """Return an id of a request: equal for equal parts.

    >>> job_id("a", "bc") == job_id("a", "bc"), job_id("a", "bc") == job_id("ab", "c")
    (True, False)
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
