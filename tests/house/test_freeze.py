"""scripts/freeze.py compares what is made of specs: the same is equal, a difference has its case and part."""

from __future__ import annotations

import json
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FREEZE = runpy.run_path(str(ROOT / "scripts" / "freeze.py"))


def _file(tmp_path: Path, **changed: str) -> Path:
    """A file of one accepted and one refused case, with these digests changed."""
    text = (ROOT / "layouts" / "simt_sgemm_tn.toml").read_text()
    accepted = FREEZE["Case"]("shipped", "simt_sgemm_tn@sm_80", "sm_80", None, text)
    refused = FREEZE["Case"]("refused", "0", "sm_80", None, text.replace("[problem]", "[problems]"))
    rows = [{**asdict(case), "digests": FREEZE["digests"](case)} for case in (accepted, refused)]
    assert "exception" not in rows[0]["digests"]
    assert set(rows[1]["digests"]) == {"message"}
    rows[0]["digests"] |= changed
    file = tmp_path / "freeze.json"
    file.write_text(json.dumps({"commit": "none", "cost": {}, "cases": rows}))
    return file


def test_what_did_not_change_is_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert FREEZE["compare"](_file(tmp_path), every=1, jobs=1, with_ptx=False, with_cost=False) == 0
    assert "2 cases compared with none: all equal" in capsys.readouterr().out


def test_a_difference_has_its_case_and_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path, launch="0" * 16)
    assert FREEZE["compare"](file, every=1, jobs=1, with_ptx=False, with_cost=False) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.split()[:4] == ["launch", "shipped", "1", "differ:"]
    assert first.endswith("simt_sgemm_tn@sm_80")
    assert last.endswith("differences")


def test_bare_code_has_neither_comments_nor_docstrings() -> None:
    code = 'class A:\n    """Says."""\n\n    def f(self):\n        """Says."""\n        return 1\n'
    bare = FREEZE["bare_code"]
    assert bare(code) == bare("# why\nclass A:\n    def f(self):  # how\n        return 1\n")
    assert bare(code) != bare(code.replace("return 1", "return 2"))
