"""Plans beside the choices of CUTLASS and QuACK: docs/blackwell.md has what the script writes from the plans of now."""

from __future__ import annotations

import json
import runpy

import pytest

from tests.house.documents import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "compare_choices.py"))


def test_the_recorded_choices_are_of_the_problems_of_the_script() -> None:
    choices = json.loads((ROOT / "docs" / "blackwell_choices.json").read_text())
    assert [(row["types"], *row["problem"]) for row in choices["rows"]] == [*SCRIPT["PROBLEMS"]]
    assert len(choices["rows"]) == 20
    assert set(choices["versions"]) == {"nvidia-matmul-heuristics", "quack-kernels"}


@pytest.mark.slow
def test_the_page_has_the_plans_of_now() -> None:
    """If a plan has changed: `python scripts/compare_choices.py` writes the section anew."""
    page = (ROOT / "docs" / "blackwell.md").read_text()
    written = page.partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0].strip()
    choices = json.loads((ROOT / "docs" / "blackwell_choices.json").read_text())
    assert written == SCRIPT["section"](choices)
    # A row without a sentence has choices like ours.
    rows = list(map(SCRIPT["_Row"], choices["rows"]))
    for row in rows:
        for who in ("cutlass", "quack"):
            theirs = row.row[who]
            told = f"{row.problem} {row.types}," in written and SCRIPT["_said"](theirs) in written if theirs else True
            assert told
            alike = theirs is None or SCRIPT["_alike"](theirs, row.ours)
            assert alike == (theirs is None or not any(SCRIPT["_said"](theirs) in line for line in row.differences()))
