"""docs/seeing.md: its commands are run, and what they print is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.algebra.expressions import OPERATIONS
from tests.house.documents import ROOT, fences, inline_code, transcripts
from tests.house.replay import replay

PAGE = ROOT / "docs" / "seeing.md"


def test_what_the_page_shows_is_what_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("COLUMNS", raising=False)
    shown = [each for fence in fences(PAGE) if fence.language == "console" for each in transcripts(fence)]
    assert sum(map(replay, shown)) == 6


def test_the_page_names_every_operation() -> None:
    assert set(OPERATIONS) <= set(inline_code(PAGE))
