"""A small share of `make fuzz`: the first seeds of each kind, and every case that was found once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz import tensor_memory
from tests.fuzz.__main__ import main
from tests.fuzz.case import ACCEPTED, FOUND, KINDS, REFUSED, Case, Kind, Outcome
from tests.fuzz.judge import judge
from tests.fuzz.workers import verdicts
from tests.run.sm100_cases import random_case

SHARE = {"specs": 30, "ptx_texts": 75, "operands": 15, "caches": 10, "packs": 150, "kills": 2}
"""How many seeds of each kind are tried with every run of the tests; building takes seconds, and is a slow test."""
SLOW = pytest.param("built", 3, marks=pytest.mark.slow)
PRODUCTS, AT_ONCE = 30, 5
"""How many kernels of groups and pairs are tried with the slow tests, and how many of them by one test."""
KEPT = sorted(Path(__file__).with_name("kept").glob("*/*"))


def patient(name: str) -> Kind:
    """The kind with a limit that a slow machine keeps as well; `make fuzz` holds cases to the law's."""
    return replace(KINDS[name], cpu_limit_s=20)


@pytest.mark.parametrize(("name", "count"), [*SHARE.items(), SLOW])
def test_the_first_seeds_find_nothing(name: str, count: int) -> None:
    """And some are accepted: a generator that everything is refused of tries little."""
    tried = list(verdicts(patient(name), range(count), jobs=1))
    assert [verdict for verdict in tried if verdict.outcome.word == FOUND] == []
    accepted = sum(verdict.outcome.word == ACCEPTED for verdict in tried)
    assert accepted >= len(tried) // 10
    assert accepted < len(tried) or name in ("kills", "built")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PRODUCTS, AT_ONCE))
def test_kernels_of_groups_and_of_pairs_are_right(first: int) -> None:
    tried = list(verdicts(replace(KINDS["products"], cpu_limit_s=200), range(first, first + AT_ONCE), jobs=1))
    assert [verdict.outcome for verdict in tried] == [Outcome(ACCEPTED)] * AT_ONCE


@pytest.mark.slow
def test_a_kernel_of_tensor_memory_is_right() -> None:
    """`tests/run/test_sm100_kernels.py` tries more of them."""
    (verdict,) = verdicts(replace(KINDS["tensor_memory"], cpu_limit_s=400), [3], jobs=1)
    assert verdict.outcome == Outcome(ACCEPTED)


def test_a_case_of_tensor_memory_is_read_as_it_was_drawn() -> None:
    """Its batch and the sizes of its groups too: a kernel of groups is none of one product."""
    drawn = {seed: random_case(seed) for seed in range(20)}
    assert any(case.sizes for case in drawn.values())
    assert any(case.batch for case in drawn.values())
    assert {seed: tensor_memory.read(tensor_memory.case(seed)) for seed in drawn} == drawn


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_was_found_once_is_not_found_again(path: Path) -> None:
    verdict = judge(patient(path.parent.name), Case(0, path.read_bytes().decode("utf-8", "surrogatepass")))
    assert verdict.outcome.word in (ACCEPTED, REFUSED), verdict.outcome.detail


@pytest.mark.parametrize("name", KINDS)
def test_a_seed_is_a_case(name: str) -> None:
    module = KINDS[name].module
    assert [module.case(seed) for seed in (1, 2)] == [module.case(seed) for seed in (1, 2)]
    assert module.case(1).text != module.case(2).text


class Planted:
    """A kind whose every third case raises, whose every fourth never ends, and whose process dies of the fifth."""

    def case(self, seed: int) -> Case:
        return Case(seed, str(seed))

    def check(self, case: Case) -> Outcome:
        if case.seed == 3:
            raise ValueError("planted")
        if case.seed == 4:
            while True:
                pass
        if case.seed == 5:
            import os

            os._exit(1)
        return Outcome(ACCEPTED) if case.seed else Outcome(FOUND, "planted")


def test_what_raises_hangs_or_dies_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Kind, "module", property(lambda self: Planted()))
    status = main(["--kind", "specs", "--seed", "0", "--count", "7", "--time-limit", "0.5", "--jobs", "2"])
    said = capsys.readouterr().out
    assert status == 1
    assert "specs 0: planted" in said
    assert "specs 3: ValueError" in said
    assert "specs 4: was ended after" in said
    assert "specs 5: the process died of it" in said
    assert "python -m tests.fuzz --kind specs --count 1 --seed 5" in said
    assert said.splitlines()[-1].split()[:5] == ["specs", "7", "3", "0", "4"]
