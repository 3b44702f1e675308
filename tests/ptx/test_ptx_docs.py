"""docs/ptx.md says what is so."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mutations import mutants
from test_ptx_mutations import EQUIVALENT, SIZES, STAGE_LITERALS, TEXT

ROOT = Path(__file__).resolve().parents[2]
TEXT_OF_DOCS = (ROOT / "docs" / "ptx.md").read_text()


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT_OF_DOCS, re.DOTALL):
        exec(block, names)
    error, counts = capsys.readouterr().out.splitlines()
    assert float(error) < 1e-3
    assert counts.split()[2] == "0"


def test_named_files_exist() -> None:
    for path in re.findall(r"`((?:tests|benchmarks|docs)/[\w/.]+)`", TEXT_OF_DOCS):
        assert (ROOT / path).exists(), path


def test_the_table_of_mutants_is_right() -> None:
    names = {
        "barrier removed": "`bar.sync` removed",
        "wait removed": "`cp.async.wait_group` removed",
        "wait count raised": "its count raised",
        "commit removed": "`cp.async.commit_group` removed",
        "trans swapped": "`.trans` swapped",
        "stage changed": "stage offset or number changed",
        "mma dropped": "`mma` dropped",
        "predicate off by one": "predicate off by one",
    }
    made = Counter(mutant.kind for mutant in mutants(TEXT, stage_literals=STAGE_LITERALS))
    survived = Counter(m.kind for m in mutants(TEXT, stage_literals=STAGE_LITERALS) if m.before in EQUIVALENT)
    assert set(made) == set(names)
    for kind, name in names.items():
        assert f"| {name} | {made[kind]} | {made[kind] - survived[kind]} |" in TEXT_OF_DOCS
    assert len(SIZES) == 10
