"""Text in columns: cells aligned, the last one wrapped between words, as wide as COLUMNS says."""

from __future__ import annotations

import pytest

from cutegen.support.words import LEAST_WIDTH, WIDTH, aligned, text_width, wrapped


@pytest.mark.parametrize(
    ("columns", "width"), [(None, WIDTH), ("72", 72), ("1", LEAST_WIDTH), ("0", WIDTH), ("many", WIDTH)]
)
def test_text_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert text_width() == width


def test_the_last_column_is_wrapped_below_itself() -> None:
    assert aligned([("key", "one two three four"), ("k", "five")], width=18) == [
        "  key  one two",
        "       three four",
        "  k    five",
    ]


def test_numbers_stand_at_the_right() -> None:
    rows = [("g2s.a", "8", "x"), ("s2r.a", "1,024", "y")]
    assert aligned(rows, right={1}) == ["  g2s.a      8  x", "  s2r.a  1,024  y"]


def test_a_word_longer_than_the_line_stays_whole() -> None:
    assert wrapped("a " + 30 * "b", width=10) == ["a", 30 * "b"]
