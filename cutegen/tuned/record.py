"""A record: the fastest spec for a problem on a device as a spec file, with the evidence in its table `tuned`.

family = "sm90"                        the spec, like any other: `cutegen plan FILE` shows it
tile = { cta = [128, 128, 64], ... }
[tuned]                                request, device, date, and every candidate's times
"""

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from cutegen.contract.problem import ProblemShape, bucket
from cutegen.errors import ArtifactError, CutegenError
from cutegen.hardware import dtype
from cutegen.spec import GemmSpec
from cutegen.spec.file import EVIDENCE, nesting, spec_of_table, spec_table
from cutegen.spec.parts import DEFAULT_ALIGN_BYTES
from cutegen.support.toml_text import toml_value
from cutegen.support.typed_json import read, shown

# The GPU of a measurement, as in a record.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One GPU: a record applies to its name, the rest is evidence; unknown values are None."""

    name: str
    uuid: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_w: float | None = None
    driver: str | None = None


# Times of one candidate, in jobs and in records.


Status = Literal["ok", "wrong", "failed", "timeout"]
RegimeName = Literal["graph", "launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Microseconds of one candidate in one regime: the median, its quartiles, and the number of runs."""

    median_us: float
    low_us: float
    high_us: float
    rounds: int

    @property
    def are_possible(self) -> bool:
        """True if each time is a positive, finite number."""
        return all(map(is_possible, (self.median_us, self.low_us, self.high_us)))


def is_possible(time_us: float) -> bool:
    """Return whether a time is a positive, finite number.

    >>> is_possible(1.5), is_possible(0.0), is_possible(float("inf")), is_possible(float("nan"))
    (True, False, False, False)
    """
    return time_us > 0.0 and math.isfinite(time_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One candidate in a record; times only if its results were correct."""

    name: str
    status: Status
    predicted_us: float | None = None
    why: str | None = None
    graph: Times | None = None
    launch: Times | None = None

    @property
    def is_possible(self) -> bool:
        """True if all of its times are possible, measured and predicted."""
        predicted = self.predicted_us is None or is_possible(self.predicted_us)
        return predicted and all(each.are_possible for each in (self.graph, self.launch) if each is not None)

    def times(self, regime: RegimeName) -> Times | None:
        """Return the times of one regime."""
        return self.graph if regime == "graph" else self.launch


SCHEMA = 1
SUFFIX = ".toml"
_DEEPEST = 16
_SPELLED = {"favourite": "favorite"}
"""Keys of evidence that older versions wrote, and what they are called now: no record has to be measured again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The measurement behind a record. `winner` and `favorite`, the model's selection, name candidates.

    `sizes` is what those of the groups are called, such as "zipf".
    """

    schema: int
    name: str
    target: str
    problem: ProblemShape
    winner: str
    favorite: str
    tie: bool
    decide_by: RegimeName
    measured_at: str
    seconds: float
    device: DeviceFacts
    versions: Mapping[str, str]
    candidates: tuple[Tried, ...]
    sizes: str | None = None

    def times(self, name: str, regime: RegimeName | None = None) -> Times | None:
        """Return the times of a candidate in a regime, by default the deciding one."""
        return next((one.times(regime or self.decide_by) for one in self.candidates if one.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A winner: the `asked` spec, the same with its open keys `settled`, and the evidence."""

    asked: GemmSpec
    settled: GemmSpec
    evidence: Evidence

    def __hash__(self) -> int:
        """Hash the two specs; the evidence holds tables, which have no hash."""
        return hash((self.asked, self.settled))

    @property
    def file_name(self) -> str:
        """Its file name: everything that a lookup uses, then the problem itself."""
        found = self.evidence
        return f"{prefix(self.asked, found.target, found.problem, found.device.name)}{_words(found.problem)}{SUFFIX}"

    @property
    def said(self) -> str:
        """The evidence as a sentence, for plans."""
        found = self.evidence
        day = found.measured_at.partition("T")[0]
        text = f"tuned on {found.device.name} at {sized(found.problem, found.sizes)}, {day}"
        mine, models = found.times(found.winner), found.times(found.favorite)
        if mine is None or models is None:
            return text
        if found.winner == found.favorite:
            return f"{text}: {mine.median_us:.4g} us, the model's selection, which none of {len(found.candidates)} beat"
        return f"{text}: {mine.median_us:.4g} us, the model's selection takes {models.median_us:.4g} us"

    def to_toml(self) -> str:
        """Return the text of its file."""
        found = asdict(self.evidence)
        candidates = found.pop("candidates")
        lines = [
            f"# {self.said}.",
            "# A spec like any other; the table `tuned` is its evidence, and `cutegen tune show` reads it.",
            *_lines(spec_table(self.settled)),
            "",
            f"[{EVIDENCE}]",
            *_lines(found),
            *_lines({"asked": spec_table(self.asked)}),
            "candidates = [",
            *(f"    {toml_value(each)}," for each in candidates),
            "]",
        ]
        return "\n".join(lines) + "\n"


def sized(problem: ProblemShape, sizes: str | None) -> str:
    """Write a problem with what the sizes of its groups are called.

    >>> sized(ProblemShape(512, 16, 32, groups=8), "zipf"), sized(ProblemShape(512, 16, 32), None)
    ('512x16x32 in 8 groups (zipf)', '512x16x32')
    """
    return str(problem) if sizes is None else f"{problem} ({sizes})"


def prefix(asked: GemmSpec, target: str, problem: ProblemShape, device: str) -> str:
    """Return the common prefix of all records for a problem: device, bucket, and request."""
    grouped = asked.problem.groups
    chosen_for = bucket(problem, groups=None if grouped is None else grouped.value)
    return f"{_slug(device)}-{_words(chosen_for)}-{asked_digest(asked, target)}-"


def asked_digest(asked: GemmSpec, target: str) -> str:
    """Return sixteen hex digits, equal for equal requests: names do not count, and defaults are filled in."""
    problem = asked.problem
    filled = {name: replace(each, align=each.align or DEFAULT_ALIGN_BYTES) for name, each in _matrices(asked)}
    sums = problem.accumulator or ("s32" if dtype(problem.a.dtype).is_integer else "f32")
    table = spec_table(replace(asked, problem=replace(problem, accumulator=sums, **filled), description=""))
    return hashlib.sha256(json.dumps([target, table], sort_keys=True).encode()).hexdigest()[:16]


def read_record(data: bytes, file: str) -> Record:
    """Read the record in a file's bytes. Raises ArtifactError that names `file`."""
    try:
        table = tomllib.loads(data.decode())
        if nesting(table) > _DEEPEST:
            raise ArtifactError(f"{file}: found tables nested more than {_DEEPEST} deep; expected a record")
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{file}: not TOML: {error}; expected a record of `cutegen tune`") from error
    evidence = table.pop(EVIDENCE, None)
    if not isinstance(evidence, dict) or not isinstance(evidence.get("asked"), dict):
        raise ArtifactError(f"{file}: found no table {EVIDENCE}.asked; expected a record of `cutegen tune`")
    if evidence.get("schema") != SCHEMA:
        raise ArtifactError(f"{file}: tuned.schema: found {shown(evidence.get('schema'))}; expected {SCHEMA}")
    asked = evidence.pop("asked")
    try:
        found = read(Evidence, {_SPELLED.get(key, key): value for key, value in evidence.items()}, file, EVIDENCE)
        record = Record(
            asked=spec_of_table(asked, file=file, name=found.name),
            settled=spec_of_table(table, file=file, name=found.name),
            evidence=found,
        )
    except ArtifactError:
        raise
    except CutegenError as error:  # an invalid spec or problem
        raise ArtifactError(f"{file}: {' '.join(str(error).split())}") from error
    if wrong := [each.name for each in found.candidates if not each.is_possible]:
        expected = "expected finite times above 0"
        raise ArtifactError(f"{file}: {EVIDENCE}.candidates: found another time in {wrong[0]}; {expected}")
    if spec_table(record.settled)["problem"] != spec_table(record.asked)["problem"]:
        raise ArtifactError(f"{file}: problem: differs from tuned.asked; expected the same")
    return record


def _matrices(spec: GemmSpec) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(spec.problem, name)) for name in ("a", "b", "c"))


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name} = {toml_value(value)}" for name, value in table.items() if value is not None)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "device"


def _words(problem: ProblemShape) -> str:
    return str(problem).replace(" ", "")
