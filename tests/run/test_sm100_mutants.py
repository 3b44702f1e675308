"""A share of the mistakes in shipped kernels of family sm100: the executor or the result shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.build import Cache
from tests.run.ptx_mutants import Mutant, sampled
from tests.run.sm100_mutants import LAUNCHES, SURVIVED, VIOLATION, WRONG, Right, Verdict, load, store, table, verdicts
from tests.run.sm100_mutants_page import PAGE, RECORD, written
from tests.run.sm100_survivors import EXPLAINED, reason
from tests.run.tcgen05_changes import DROPPED, HANDSHAKES, NUMBERS, ORDER_KINDS, TWICE, VALUES, mutants

WAIT = """
	mov.b32 	%r87, 1;
	mbarrier.init.shared.b64 	[%r9+8], %r87;
	{.reg .pred over; again: mbarrier.try_wait.parity.shared::cta.b64 over, [%r1], %r2; @!over bra again;}
	mov.b32 	%r3, 0;
	mov.b32 	%r3, 7;
	setp.lt.s32 	%p1, %r3, 5;
"""


def test_a_mistake_changes_one_place_of_one_line() -> None:
    made = list(mutants(WAIT))
    assert {(each.line, each.kind, each.after) for each in made} >= {
        (3, "number of arrivals", "mbarrier.init.shared.b64 [%r9+8], 2;"),
        (3, "number of arrivals", "mbarrier.init.shared.b64 [%r9+8], 0;"),
        (3, "another barrier initialized", "mbarrier.init.shared.b64 [%r9+16], %r87;"),
        (4, "wait for a barrier dropped", "{.reg .pred over; again: setp.eq.u32 over, 0, 0; @!over bra again;}"),
        (7, "comparison off by one", "setp.le.s32 %p1, %r3, 5;"),
        (7, "number in a comparison", "setp.lt.s32 %p1, %r3, 6;"),
    }
    for each in made:
        before, after = WAIT.split("\n"), each.planted_in(WAIT).split("\n")
        assert [number for number, (x, y) in enumerate(zip(before, after, strict=True), 1) if x != y] == [each.line]


def test_a_register_that_is_set_twice_holds_no_number() -> None:
    text = "\tmov.b32 \t%r1, 4;\n\tmov.b32 \t%r1, 5;\n\tmbarrier.init.shared.b64 \t[%r9+8], %r1;\n"
    assert not [each for each in mutants(text) if each.kind == "number of arrivals"]


def test_verdicts_are_kept(tmp_path: Path) -> None:
    kept = [
        Verdict("k", Mutant("dropped", 3, "a;", ""), VIOLATION, "race"),
        Verdict("k", Mutant("dropped", 4, "b;", ""), SURVIVED, ""),
        Verdict("k", Mutant("dropped", 5, "c;", ""), SURVIVED, "the same"),
    ]
    store(tmp_path / "kept.json", kept)
    assert load(tmp_path / "kept.json") == kept
    assert json.loads((tmp_path / "kept.json").read_text())[0]["mutant"]["line"] == 3
    assert table(kept)[-1] == "| `k` | 3 | 0 | 1 | 0 | 0 | 0 | 2 | 1 |"


def test_reasons_are_for_kinds_that_exist() -> None:
    kinds = {kind for kind, *_ in (*HANDSHAKES, *VALUES, *NUMBERS)}
    kinds |= {f"{name} dropped" for name in DROPPED} | {f"{name} twice" for name in TWICE} | {"another parameter"}
    assert kinds > ORDER_KINDS
    for row in EXPLAINED:
        assert set(row.kinds) <= kinds, row
    assert reason(WAIT, Mutant("wait for a barrier dropped", 4, WAIT.split("\n")[3].strip(), "")) is None


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_broken_handshake_is_noticed(name: str, kernels: Cache) -> None:
    """A survivor without a reason must be read: mend the executor, or add a row to `sm100_survivors.py`."""
    right = Right(name, kernels)
    tried = sampled((each for each in mutants(right.text) if each.kind in ORDER_KINDS), 12, seed=0)
    found = list(verdicts(right, tried))
    assert [str(each) for each in found if each.word == SURVIVED and not each.message] == []
    assert sum(each.word == WRONG for each in found) < len(found) / 2  # most are seen whatever the result


def test_the_page_says_what_is_recorded() -> None:
    """`python -m tests.run.sm100_mutants_page` writes the section anew."""
    record = json.loads(RECORD.read_text())
    assert written(PAGE.read_text(), record) == PAGE.read_text()
    for kept in record.values():
        assert all(each["why"] for each in kept["survivors"])
        assert len(kept["survivors"]) == kept["words"].get(SURVIVED, 0)
    assert set(record) == set(LAUNCHES)
