"""Requests as values, and who is asked for a kernel in which order."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cutegen.build import Cache
from cutegen.contract import ProblemShape
from cutegen.contract.problem import bucket
from cutegen.dispatch.model import ModelProvider, spec_of
from cutegen.dispatch.provider import MODEL, PACK, TUNED, Answer, Served
from cutegen.dispatch.providers import Providers
from cutegen.dispatch.request import TRIED, Matrix, Request
from cutegen.errors import ArtifactError, RequestError

ROW = Matrix("f16", "k", 16)
REQUEST = Request(
    a=ROW,
    b=ROW,
    c=Matrix("f16", "n", 16),
    ops=("alpha", "bias_n", "gelu_erf", "residual"),
    bias="f16",
    residual=Matrix("f16", "n", 8),
    problem=ProblemShape(64, 64, 64),
    target="sm_80",
)


@dataclass
class Shelf:
    """A provider that has one thing for every request, or nothing."""

    name: str
    thing: Any = None
    ready: bool = True
    opened: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        def take() -> Any:
            self.opened.append(request)
            return self.thing

        return Answer(f"{self.name} says so", None if self.thing is None else take, self.ready)


def test_a_request_travels_as_json() -> None:
    assert Request.from_json(json.loads(json.dumps(REQUEST.as_json())), "it") == REQUEST


@pytest.mark.parametrize(("key", "value"), [("ops", [1]), ("a", {}), ("problem", {"m": 1}), ("target", None), ("x", 1)])
def test_a_wrong_request_is_refused_with_its_address(key: str, value: object) -> None:
    with pytest.raises(ArtifactError, match=f"it: .*{key}"):
        Request.from_json(REQUEST.as_json() | {key: value}, "it")


def test_the_first_rank_that_has_a_kernel_serves_and_is_asked_once() -> None:
    model, pack, tuned = Shelf("model", "m"), Shelf("pack", "p"), Shelf("tuned")
    them = Providers()
    for rank, one in ((MODEL, model), (PACK, pack), (TUNED, tuned)):
        them.register(rank, one)
    assert [one.name for one, _ in them.answers(REQUEST)] == ["tuned", "pack"]
    assert them.kernel_for(REQUEST) == them.kernel_for(REQUEST) == Served("p", "pack", "pack says so")  # type: ignore[arg-type]
    assert (len(pack.opened), model.opened) == (1, [])


def test_another_provider_is_asked_at_once_and_a_withdrawn_one_no_more() -> None:
    them, older, newer = Providers(), Shelf("older", "o"), Shelf("newer", "n")
    them.register(PACK, older)
    assert them.kernel_for(REQUEST).provider == "older"
    changes = them.changes
    them.register(PACK, newer)
    assert them.kernel_for(REQUEST).provider == "newer"
    assert them.changes > changes
    them.withdraw(newer)
    assert them.kernel_for(REQUEST).provider == "older"


def test_what_must_be_compiled_is_passed_over_where_nothing_may_be() -> None:
    them = Providers()
    them.register(PACK, Shelf("slow", "s", ready=False))
    with pytest.raises(RequestError, match=r"64x64x64 on sm_80; a: f16 k-major.*CUDA graph.*cutegen\.prepare"):
        them.kernel_for(REQUEST, compiling=False)
    them.register(MODEL, Shelf("at hand", "h"))
    assert them.kernel_for(REQUEST, compiling=False).provider == "at hand"


def test_nobody_having_a_kernel_is_an_error_with_every_reason() -> None:
    them = Providers()
    for name in ("one", "two"):
        them.register(PACK, Shelf(name))
    with pytest.raises(RequestError, match="two: two says so; one: one says so"):
        them.kernel_for(REQUEST)
    with pytest.raises(RequestError, match="'shelf'; expected one of tuned, pack, model"):
        them.register("shelf", Shelf("x"))


def test_many_threads_that_ask_for_one_kernel_have_it_opened_and_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []
    monkeypatch.setattr("cutegen.dispatch.providers.record", recorded.append)
    them, shelf = Providers(), Shelf("shelf", "k")
    them.register(PACK, shelf)
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        them.kernel_for(REQUEST)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(shelf.opened), recorded) == (1, [{"request": REQUEST.as_json()}])


@pytest.mark.dsl
def test_the_model_builds_what_is_asked_and_one_kernel_for_problems_that_come_to_the_same(
    kernels: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    model = ModelProvider()
    asked = replace(REQUEST, batch_invariant=True)
    answer = model.answer(asked)
    assert answer.open is not None
    assert not answer.ready
    assert re.search(r"family sm80, CTA tile \S+: \d.* on .*: \S+ us (estimated|predicted), bound by", answer.why)
    kernel = answer.open()
    assert model.answer(asked).ready
    names = [tensor.name for tensor in kernel.contract.tensors]
    assert (names, kernel.contract.scalars) == (["a", "b", "c", "residual", "bias"], ("alpha",))
    again = model.answer(replace(asked, problem=ProblemShape(48, 64, 64)))
    assert again.open is not None
    assert again.open() is kernel


def test_what_no_family_can_do_is_an_answer_and_not_an_exception() -> None:
    answer = ModelProvider().answer(replace(REQUEST, a=Matrix("e4m3", "k", 16), b=Matrix("e4m3", "k", 16)))
    assert answer.open is None
    assert "sm_89" in answer.why


def test_rows_that_must_not_depend_on_their_number_have_one_slice_of_k_and_one_problem() -> None:
    assert spec_of(replace(REQUEST, batch_invariant=True)).schedule.split_k == 1
    problems = {bucket(ProblemShape(m, 96, 640, batch), batch_invariant=True) for m in (1, 7, 4096) for batch in (1, 5)}
    assert len(problems) == 1


def test_buckets_hold_what_they_stand_for_and_are_few() -> None:
    buckets = {bucket(ProblemShape(m, 64, m)) for m in range(1, 4097)}
    assert all(one.m >= 1 for one in buckets)
    assert len({one.m for one in buckets}) == 24
    assert all(bucket(ProblemShape(m, m, m, m)) >= ProblemShape(m, m, m, m) for m in (1, 2, 3, 31, 100, 2047, 60001))
    assert bucket(ProblemShape(5, 4096, 14336)) == ProblemShape(6, 4096, 14336)


def test_a_mistrusted_request_is_served_by_what_has_run() -> None:
    """Its kernel is looked up again, as a request for families that are tried; others keep theirs."""
    them, shelf = Providers(), Shelf("shelf", "k")
    them.register(MODEL, shelf)
    other = replace(REQUEST, target="sm_90")
    for request in (REQUEST, other):
        them.kernel_for(request)
    changes = them.changes
    them.mistrust(REQUEST)
    assert them.changes > changes
    for request in (REQUEST, other):
        them.kernel_for(request)
    assert shelf.opened[2:] == [replace(REQUEST, family=TRIED), other]
    assert Request.from_json(json.loads(json.dumps(shelf.opened[2].as_json())), "it") == shelf.opened[2]
    assert spec_of(shelf.opened[2]).family is None
    assert spec_of(replace(REQUEST, family="sm80")).family == "sm80"
