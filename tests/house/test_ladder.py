"""examples/ladder.py: each rung differs from the one below in what it says, and the last one is the shipped spec."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import pytest

from cutegen.errors import DeviceError
from cutegen.plan import plan
from cutegen.spec import GemmSpec, load_spec
from tests.house.documents import ROOT

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "ladder.py"))
RUNGS = list(EXAMPLE["ladder"]())
SPECS = [rung for rung in RUNGS if rung.spec is not None]
PUBLISHED = [3_640, 10_683, 26_274, 35_956, 42_634, 44_859, 48_700, 50_672, 53_065, 53_573]


def values(part: Any, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key of a spec with its value, tables that are left out by their own name."""
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            yield from values(value, f"{prefix}{field.name}.")
        elif field.compare:
            yield f"{prefix}{field.name}", value


def changed(before: GemmSpec, after: GemmSpec) -> set[str]:
    """The keys whose values differ, A's and B's as one, a shared layout by its table."""
    old, new = dict(values(before)), dict(values(after))
    keys = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    folded = {re.sub(r"^(smem|g2s)\.[ab]\b", r"\1.{a,b}", key) for key in keys}
    return {re.sub(r"^(smem\.\{a,b\}|epilogue\.smem)\..*", r"\1", key) for key in folded}


@pytest.mark.parametrize(("below", "rung"), list(pairwise(SPECS)), ids=lambda rung: rung.name)
def test_a_rung_changes_the_keys_that_it_names(below: Any, rung: Any) -> None:
    found = changed(below.spec, rung.spec)
    assert 1 <= len(found) <= 2
    if rung.keys == "smem left out":
        assert found <= {"smem.{a,b}", "smem.a", "smem.b"}
    else:
        assert found == set(re.findall(r"\w+\.[\w.{},]+(?= = )", rung.keys))


def test_the_published_column_and_where_it_ends() -> None:
    assert [rung.published for rung in RUNGS if rung.published] == PUBLISHED
    assert [rung.spec for rung in RUNGS if rung.name == "padding"] == [load_spec("double_buffer_128x128x32")]


def test_the_page_has_the_rungs_their_cycles_and_the_published_column() -> None:
    page = (ROOT / "docs" / "systems" / "double_buffer_128x128x32.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.count("|") == 8][2:]
    cycles = ["" if x.spec is None else f"{EXAMPLE['shared_cycles'](plan(x.spec, 'sm_90')):,}" for x in RUNGS]
    published = ["" if x.published is None else f"{x.published / 1000:.1f}" for x in RUNGS]
    assert [row[0] for row in rows] == [x.name for x in RUNGS]
    assert [row[1].replace("`", "") for row in rows] == [x.keys for x in RUNGS]
    assert [row[2] for row in rows] == cycles
    assert [row[3] for row in rows] == published


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "cuda"], "ladder.py: error: no GPU; look elsewhere"),
        (["--problem", "4096,4096"], "ladder.py: error: --problem: found '4096,4096'; expected three integers M,N,K"),
    ],
)
def test_it_says_in_one_line_why_it_cannot_climb(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise DeviceError("no GPU; look elsewhere")

    monkeypatch.setitem(EXAMPLE["main"].__globals__, "require_gpu", refuse)
    monkeypatch.setattr("sys.argv", ["ladder.py", *words])
    with pytest.raises(SystemExit, match=said):
        EXAMPLE["main"]()
