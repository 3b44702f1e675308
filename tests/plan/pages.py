"""The pages under docs/ as tests read them."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def words_of(page: str) -> str:
    """Return the words of a page, a space between each: a line may break anywhere."""
    return " ".join((DOCS / page).read_text().split())
