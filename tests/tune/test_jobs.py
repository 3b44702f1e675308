"""Jobs of tuning go through JSON, and come back as they were; what was damaged on the way is refused."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import ArtifactError
from cutegen.spec import load_spec
from cutegen.support.typed_json import read
from cutegen.tune.jobs import (
    Candidate,
    Measured,
    MeasureJob,
    Result,
    Times,
    job_id,
    spec_json,
    spec_of_json,
)

SPEC = load_spec("sm80_hgemm_tn")
TEXT = spec_json(SPEC)
PROBLEM = ProblemShape(96, 4096, 4096, 3)
JOB = MeasureJob(
    id=job_id("one"),
    spec_name="sm80_hgemm_tn",
    asked=TEXT,
    target="sm_90",
    problem=PROBLEM,
    candidates=(Candidate(name="first", settled=TEXT, key="0" * 64, predicted_us=12.5),),
)
MEASURED = Measured(
    id=JOB.id,
    spec_name=JOB.spec_name,
    asked=TEXT,
    target="sm_90",
    problem=PROBLEM,
    results=(
        Result(
            name="first",
            settled=TEXT,
            key="0" * 64,
            status="ok",
            graph=Times(median_us=3.0, low_us=2.5, high_us=4.0, rounds=9),
        ),
    ),
    winner="first",
    versions=(("torch", "2.11"),),
)


@pytest.mark.parametrize("value", [JOB, MEASURED], ids=["job", "measured"])
def test_a_job_comes_back_from_json(value: MeasureJob | Measured) -> None:
    assert read(type(value), json.loads(json.dumps(asdict(value))), "job.json") == value


def test_a_spec_comes_back_with_its_name() -> None:
    found = spec_of_json(TEXT, SPEC.name)
    assert (found, found.name) == (SPEC, SPEC.name)


def test_a_damaged_job_is_refused_with_its_address() -> None:
    table = asdict(JOB)
    table["problem"]["m"] = "many"
    with pytest.raises(ArtifactError, match=r"job\.json: problem\.m: found 'many'"):
        read(MeasureJob, table, "job.json")


def test_ids_depend_on_where_one_part_ends() -> None:
    assert job_id("a", "bc") != job_id("ab", "c")
