"""Calls are answered from records of their own GPU, for the same question and bucket, before the model is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutegen.contract import ProblemShape
from cutegen.contract.problem import bucket
from cutegen.dispatch import model as room
from cutegen.dispatch.provider import MODEL, TUNED
from cutegen.dispatch.providers import Providers
from cutegen.dispatch.request import Matrix, Request
from cutegen.dispatch.tuned import TunedProvider
from cutegen.tune.measuring import end_children
from cutegen.tuned import store
from cutegen.tuned.record import Record
from tests.dispatch.test_providers import Shelf
from tests.tuned.made import DEVICE, PROBLEM, TARGET, measured, open_spec, with_winner

REQUEST = Request(
    a=Matrix("f16", "k", 16),
    b=Matrix("f16", "k", 16),
    c=Matrix("f16", "n", 16),
    problem=bucket(PROBLEM),
    target=TARGET,
    device=DEVICE,
)


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    yield with_winner(measured(open_spec()), 3)
    end_children()


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_TUNED_DIR", str(tmp_path / "tuned"))


def test_a_call_is_answered_with_the_record_of_its_bucket(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(record)
    built = []
    monkeypatch.setattr(room, "build", lambda asked, cache: built.append(asked))
    monkeypatch.setattr(room, "Kernel", lambda artifact: "the kernel")
    answer = TunedProvider().answer(REQUEST)
    assert answer.open is not None
    assert f"tuned on {DEVICE} at {PROBLEM}" in answer.why
    opened: Any = answer.open()
    assert opened == "the kernel"
    (asked,) = built
    assert asked.source.entry.startswith("open_tn")  # the artifact that was measured, under its own name


@pytest.mark.parametrize(
    "other",
    [
        {"device": "NVIDIA H100 PCIe"},
        {"device": None},
        {"problem": bucket(ProblemShape(1100, 4096, 4096))},
        {"ops": ("gelu_erf",)},
        {"a": Matrix("bf16", "k", 16), "b": Matrix("bf16", "k", 16)},
        {"b": Matrix("f16", "n", 16)},
        {"c": Matrix("f16", "n", 8)},
        {"batch_invariant": True},
        {"target": "sm_80"},
        {"target": "sm_77"},
    ],
    ids=str,
)
def test_another_question_is_not(record: Record, other: dict[str, Any]) -> None:
    store.keep(record)
    assert TunedProvider().answer(replace(REQUEST, **other)).open is None


def test_a_record_of_a_narrower_question_serves_no_open_call(record: Record) -> None:
    narrow = with_winner(measured(replace(open_spec(), family="sm80")), 0)
    store.keep(narrow)
    assert TunedProvider().answer(REQUEST).open is None


def test_records_are_asked_before_the_model(record: Record) -> None:
    store.keep(record)
    those, model = Providers(), Shelf("the model", "its kernel")
    those.register(MODEL, model)
    those.register(TUNED, TunedProvider())
    (first, answer), *others = those.answers(REQUEST)
    assert (first.name, others) == ("tuning records", [])
    assert answer.open is not None
    store.forget(next(iter(store.every()))[0])
    assert [provider.name for provider, _ in those.answers(REQUEST)] == ["tuning records", "the model"]
