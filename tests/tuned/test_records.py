"""Records answer for what was asked, on the device that was measured, in the bucket of the problem; else not at all."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import cutegen
from cutegen.bench.grouped import GroupSizes
from cutegen.contract.problem import Distribution, Groups, ProblemShape, bucket
from cutegen.dispatch.grouped import GroupedProduct
from cutegen.dispatch.model import spec_of
from cutegen.dispatch.request import Matrix, Request
from cutegen.errors import ArtifactError, SpecError
from cutegen.hardware import target
from cutegen.plan import GemmPlan
from cutegen.plan import plan as plan_by_model
from cutegen.spec import GemmSpec, Tile, load_spec
from cutegen.tune.measuring import end_children
from cutegen.tune.tune_requests import tune_request_of
from cutegen.tuned import answer, store
from cutegen.tuned.record import Record, read_record
from tests.tuned.made import DEVICE, PROBLEM, TARGET, measured, open_spec, with_winner


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    """One that a candidate won that is not the model's choice."""
    yield with_winner(measured(open_spec()), 3)
    end_children()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_TUNED_DIR", str(tmp_path / "tuned"))
    monkeypatch.setattr(answer, "present_gpu_name", lambda: DEVICE)
    monkeypatch.setattr(answer, "present_target", lambda: target(TARGET))


def planned(spec: GemmSpec, problem: ProblemShape) -> GemmPlan:
    made = cutegen.plan(spec, TARGET, problem)
    assert isinstance(made, GemmPlan)
    return made


def test_a_record_comes_back_from_its_file(record: Record) -> None:
    assert read_record(record.to_toml().encode(), "file") == record


def test_a_record_of_an_older_version_still_answers(record: Record) -> None:
    written = record.to_toml().replace("\nfavorite = ", "\nfavourite = ")
    assert written != record.to_toml()
    assert read_record(written.encode(), "file") == record


@pytest.mark.parametrize("key", ["median_us", "low_us", "high_us", "predicted_us"])
@pytest.mark.parametrize("value", ["0.0", "-1.0", "inf", "nan"])
def test_a_record_with_an_impossible_time_is_damaged(record: Record, key: str, value: str) -> None:
    written, count = re.subn(rf"(\b{key} = )[\d.e-]+", rf"\g<1>{value}", record.to_toml(), count=1)
    assert count == 1
    with pytest.raises(
        ArtifactError, match=r"file: tuned.candidates: found another time in sm90 [^;]+; expected finite times"
    ):
        read_record(written.encode(), "file")
    store.keep(record).write_text(written)
    assert [type(each) for _, each in store.every()] == [ArtifactError]


def test_a_record_is_a_spec_like_any_other(record: Record) -> None:
    path = store.keep(record)
    assert load_spec(path) == record.settled


def test_the_plan_is_the_winner_and_says_so(record: Record) -> None:
    before = planned(open_spec(), PROBLEM)
    store.keep(record)
    found = planned(open_spec(), PROBLEM)
    assert (found.cta_tile, found.stages) == (record.settled.tile.cta, record.settled.tile.stages)
    assert found.family == record.settled.family
    assert (found.cta_tile, found.scheduler.order) != (before.cta_tile, before.scheduler.order)
    assert f"tuned on {DEVICE} at {PROBLEM}" in found.explain()
    assert found.spec == open_spec()


def test_what_is_said_of_a_record_is_as_much_as_was_measured(record: Record) -> None:
    found = record.evidence
    assert re.search(r", \S+: [\d.]+ us, the model's selection takes [\d.]+ us$", record.said)
    favorite = replace(record, evidence=replace(found, winner=found.favorite))
    assert f"us, the model's selection, which none of {len(found.candidates)} beat" in favorite.said
    unmeasured = tuple(x if x.name != found.favorite else replace(x, graph=None, launch=None) for x in found.candidates)
    assert " us" not in replace(record, evidence=replace(found, candidates=unmeasured)).said


def test_what_was_measured_is_what_is_built_later(record: Record) -> None:
    from cutegen.api import build_request, request_of
    from cutegen.tuned.answer import settled_plan

    compiled = request_of(settled_plan(record.asked, record.settled, target(TARGET), PROBLEM)).inputs.key
    store.keep(record)
    assert build_request(open_spec(), TARGET, problem=PROBLEM).inputs.key == compiled


def test_nearby_problems_are_those_of_the_bucket(record: Record) -> None:
    store.keep(record)
    near, far = ProblemShape(1024, 4096, 4096), ProblemShape(1025, 4096, 4096)
    assert store.find(open_spec(), TARGET, near, DEVICE) == record
    assert store.find(open_spec(), TARGET, far, DEVICE) is None


def test_the_problem_itself_comes_before_its_neighbors(record: Record) -> None:
    other = ProblemShape(1024, 4096, 4096)
    neighbor = replace(record, evidence=replace(record.evidence, problem=other))
    store.keep(record)
    store.keep(neighbor)
    assert store.find(open_spec(), TARGET, other, DEVICE) == neighbor
    assert store.find(open_spec(), TARGET, PROBLEM, DEVICE) == record


def test_the_nearest_neighbor_is_that_of_the_least_ratios(record: Record) -> None:
    """49 to 64 rows is farther than 3900 to 4096 columns."""
    more_rows, fewer_columns = (
        replace(record, evidence=replace(record.evidence, problem=ProblemShape(*extents)))
        for extents in ((64, 4096, 4096), (49, 3900, 4096))
    )
    for each in (more_rows, fewer_columns):
        store.keep(each)
    assert store.find(open_spec(), TARGET, ProblemShape(49, 4096, 4096), DEVICE) == fewer_columns
    assert store.find(open_spec(), TARGET, ProblemShape(63, 4096, 4096), DEVICE) == more_rows


def test_defaults_written_out_and_names_ask_for_the_same(record: Record) -> None:
    store.keep(record)
    assert store.find(open_spec("another", align=16), TARGET, PROBLEM, DEVICE) == record
    assert store.find(open_spec(align=8), TARGET, PROBLEM, DEVICE) is None


def test_another_device_is_not_answered(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(record)
    monkeypatch.setattr(answer, "present_gpu_name", lambda: "NVIDIA H100 80GB HBM3")
    assert answer.record_for(open_spec(), target(TARGET), PROBLEM) is None
    monkeypatch.setattr(answer, "present_target", lambda: None)
    assert answer.record_for(open_spec(), target(TARGET), PROBLEM) is None


def test_keys_that_are_given_make_another_question(record: Record) -> None:
    store.keep(record)
    assert store.find(replace(open_spec(), family="sm80"), TARGET, PROBLEM, DEVICE) is None


def test_a_damaged_record_is_passed_over_with_one_word(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    path = store.keep(record)
    path.write_text(path.read_text().replace("schema = 1", "schema = 7"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert planned(open_spec(), PROBLEM).cta_tile == _model().cta_tile
    (message,) = [each.getMessage() for each in caplog.records]
    assert "tuned.schema: found 7; expected 1" in message
    assert str(path) in message


def _model() -> GemmPlan:
    made = plan_by_model(open_spec(), TARGET, PROBLEM)
    assert isinstance(made, GemmPlan)
    return made


def test_a_record_under_the_name_of_another_device_is_passed_over(
    record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.keep(record)
    path.rename(path.with_name(path.name.replace("nvidia-h200", "nvidia-a100")))
    with caplog.at_level(logging.WARNING):
        assert store.find(open_spec(), TARGET, PROBLEM, "NVIDIA A100") is None
    assert f"found one for {DEVICE}; its name says another" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no table tuned.asked"),
        ("[tuned]\nschema = 1\n", "found no table tuned.asked"),
        ("= 3", "not TOML"),
        ("a = " + "[" * 60 + "]" * 60, "nested more than"),
    ],
)
def test_what_is_no_record_is_refused_with_its_file(text: str, message: str) -> None:
    with pytest.raises(ArtifactError, match="here") as caught:
        read_record(text.encode(), "here")
    assert message in str(caught.value)


def test_a_record_of_another_problem_than_it_asked_is_refused(record: Record) -> None:
    text = record.to_toml()
    head, tail = text.split("[tuned]")
    with pytest.raises(ArtifactError, match=r"problem: differs from tuned\.asked"):
        read_record(f"{head.replace('f16', 'bf16')}[tuned]{tail}".encode(), "here")


GROUPED = ProblemShape(8192, 1536, 2048, groups=64)
OF_ROWS = Groups("m")
OF_ROWS_TILE = Tile((128, 128, 64))


def of_groups(name: Distribution, seed: int = 0) -> Record:
    """The record of experts of 128 rows on average, spread like that, which the second candidate won."""
    sizes = GroupSizes(OF_ROWS, name.sizes(GROUPED.m, 64), name)
    spec = replace(load_spec("sm80_bf16_grouped"), tile=OF_ROWS_TILE)
    return with_winner(measured(spec, GROUPED, seed=seed, most=2, sizes=sizes), 1)


@pytest.fixture(scope="module")
def zipf() -> Iterator[Record]:
    yield of_groups(Distribution.ZIPF)
    end_children()


def test_a_record_of_groups_says_how_rows_were_spread_and_comes_back(zipf: Record) -> None:
    assert zipf.evidence.sizes == "zipf"
    assert "at 8192x1536x2048 in 64 groups (zipf), " in zipf.said
    assert read_record(zipf.to_toml().encode(), "file") == zipf
    path = store.keep(zipf)
    assert [each for _, each in store.every()] == [zipf]
    assert store.holds(path)


def test_groups_of_the_same_mean_find_it_and_others_do_not(zipf: Record) -> None:
    """Means of 128 and 100 rows are of one bucket, and so are 64 and 40 groups; the later of two records counts."""
    store.keep(zipf)
    asked = zipf.asked
    alike = (GROUPED, ProblemShape(40 * 100, 1536, 2048, groups=40), bucket(GROUPED, groups=OF_ROWS))
    others = (
        ProblemShape(64 * 129, 1536, 2048, groups=64),
        ProblemShape(8192, 1536, 2048, groups=32),
        replace(GROUPED, n=1537),
    )
    assert [store.find(asked, TARGET, each, DEVICE) for each in (*alike, *others)] == [zipf] * 3 + [None] * 3
    later = of_groups(Distribution.HOT)
    assert store.keep(later) == store.keep(zipf)
    store.keep(later)
    assert store.find(asked, TARGET, GROUPED, DEVICE) == later


def test_a_call_of_groups_asks_for_it(zipf: Record) -> None:
    """The request of 8,000 tokens for 64 experts, as grouped_mm makes it, is answered by the tuned kernel."""
    store.keep(zipf)
    product = GroupedProduct(OF_ROWS, 64, 8000, 1536, 2048)
    request = Request(
        a=Matrix("bf16", "k", 16),
        b=Matrix("bf16", "k", 16),
        c=Matrix("bf16", "n", 16),
        ops=(),
        problem=bucket(product.chosen_for(None), groups=OF_ROWS),
        target=TARGET,
        device=DEVICE,
        groups=OF_ROWS,
    )
    asked = replace(spec_of(request), family="sm80", tile=OF_ROWS_TILE)  # which the tuned spec gives
    assert answer.record_for(asked, target(TARGET), request.problem, DEVICE) == zipf
    made = answer.plan_of(zipf, target(TARGET), request.problem)
    assert made is not None
    assert "(zipf)" in made.explain()


def test_groups_are_not_tuned_without_their_sizes() -> None:
    with pytest.raises(SpecError, match="found no sizes to measure; expected both, or neither"):
        tune_request_of(load_spec("sm90_bf16_grouped"), TARGET, GROUPED, DEVICE)
    with pytest.raises(SpecError, match="found sizes of groups to measure"):
        tune_request_of(open_spec(), TARGET, PROBLEM, DEVICE, sizes=GroupSizes(OF_ROWS, (3,), "3"))
