"""examples/hopper_ladder.py: what it prints with a GPU and without, and that each rung changes what it says."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from cutegen.bench.benchmark import Result
from cutegen.bench.measure import Measurement
from cutegen.contract.problem import ProblemShape
from cutegen.errors import DeviceError
from cutegen.spec import Mma, Schedule, Tile
from examples import hopper_ladder as example
from examples.hopper_ladder import Rung, ladder
from tests.bench.conftest import result

RUNGS = list(ladder())
CUBE = ProblemShape(4096, 4096, 4096)
OPEN: dict[str, Any] = {"family": None, "tile": Tile(), "mma": Mma(), "schedule": Schedule()}


def differing(before: Any, after: Any, address: str = "") -> set[str]:
    """The keys in which two specs differ, as a spec writes them."""
    if is_dataclass(before) and is_dataclass(after):
        found = (
            differing(getattr(before, x.name), getattr(after, x.name), f"{address}.{x.name}") for x in fields(before)
        )
        return set().union(*found)
    return set() if before == after else {address.removeprefix(".")}


def said(rung: Rung) -> set[str]:
    """The keys that a rung says it changes, `{a,b}` written out."""
    found = re.findall(r"([a-z_.{},]+\w+|[a-z_]+) (?:=|left out)", rung.keys)
    return {key.replace("{a,b}", operand) for key in found for operand in "ab"}


@pytest.mark.parametrize(("before", "after"), list(pairwise(RUNGS)), ids=lambda rung: rung.name)
def test_a_rung_changes_what_it_says_and_no_more(before: Rung, after: Rung) -> None:
    if after.name == "as cutegen chooses":
        assert after.spec == replace(RUNGS[-1].spec, **OPEN, problem=after.spec.problem, name=after.spec.name)
        return
    base = next(rung for rung in RUNGS if rung.name == "clusters of 2") if after.name == "e4m3" else before
    changed = differing(replace(base.spec, name=""), replace(after.spec, name=""))
    # Warpgroups where there were warps, and the schedule's keys that a family does not have, come with the family.
    with_family = {"mma.atom_layout", "schedule.consumers", "schedule.cluster"} if "family" in changed else set()
    assert said(after) == changed - with_family


def test_without_a_gpu_the_figures_are_predictions_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise DeviceError("no GPU")

    monkeypatch.setattr(example, "require_gpu", refuse)
    monkeypatch.setattr("sys.argv", ["hopper_ladder.py"])
    example.main()
    said = capsys.readouterr()
    assert "times are predictions" in said.err
    assert "predicted for one H200" in said.out
    assert all(rung.name in said.out for rung in RUNGS)


def test_with_one_each_rung_has_its_gain_over_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(rungs: list[Rung], problem: ProblemShape, rounds: int) -> tuple[Result, ...]:
        times = [400.0 / (i + 1) for i in range(len(rungs))]
        ours = [
            replace(result(rung.name, problem, us, ours=True), measurement=Measurement(us, us, us, rounds))
            for rung, us in zip(rungs, times, strict=True)
        ]
        return (result("torch.matmul", problem, 200.0, ours=False), *ours)

    monkeypatch.setattr(example, "on_hopper", lambda: True)
    monkeypatch.setattr(example, "measured", measured)
    example.climb(CUBE, 5)
    lines = capsys.readouterr().out.splitlines()
    tma = next(line for line in lines if line.lstrip().startswith("TMA"))
    assert "200.0" in tma
    assert "2.00x" in tma
    assert lines[-1].split() == ["torch.matmul", "200.0", "687"]


def test_a_wrong_problem_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["hopper_ladder.py", "--problem", "1,2"])
    with pytest.raises(SystemExit, match=r"hopper_ladder\.py: error: --problem: found '1,2'"):
        example.main()
