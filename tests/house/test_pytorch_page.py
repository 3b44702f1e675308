"""docs/pytorch.md and docs/grouped.md are run: their Python in order, and what it prints is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.dispatch.formula import ACTIVATIONS
from tests.house.documents import ROOT, fences
from tests.house.replay import compare, execute

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize(("page", "texts"), [("pytorch.md", 8), ("grouped.md", 3)])
def test_what_the_page_shows_is_what_happens(
    page: str, texts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path))
    namespace: dict[str, object] = {}
    printed, compared = "", 0
    for fence in fences(ROOT / "docs" / page):
        if fence.language == "python":
            printed = execute(fence, namespace)
        elif fence.language == "text":
            compare(f"{fence.document}:{fence.line}", fence.text, printed)
            compared += 1
    assert compared == texts


def test_the_page_lists_every_activation() -> None:
    page = (ROOT / "docs" / "pytorch.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("- `activation`: "))
    assert {name for name in ACTIVATIONS if f"`{name}`" in line.partition(".")[0]} == set(ACTIVATIONS)
