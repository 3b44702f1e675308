"""An access phase by phase: which lanes share one, the banks above its columns, and the lanes that wait."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.show.canvas.banks import phase_charts, phase_lanes
from cutegen.show.canvas.colors import CONFLICT
from cutegen.show.canvas.picture import Box, Text


@pytest.mark.parametrize(
    ("lanes", "access_bytes", "phases"),
    [(32, 16, [8, 8, 8, 8]), (32, 8, [16, 16]), (32, 4, [32]), (8, 16, [8]), (8, 4, [8])],
)
def test_128_bytes_are_accessed_at_once(lanes: int, access_bytes: int, phases: list[int]) -> None:
    found = phase_lanes(lanes, access_bytes)
    assert [len(each) for each in found] == phases
    assert [lane for each in found for lane in each] == list(range(lanes))


@pytest.mark.parametrize(
    ("access_bytes", "columns"),
    [(16, ["0-3", "4-7", "28-31"]), (8, ["0-1", "2-3", "30-31"]), (4, ["0", "1", "31"]), (2, ["0", "1", "31"])],
)
def test_a_column_has_the_banks_that_an_access_meets(access_bytes: int, columns: list[str]) -> None:
    picture = phase_charts(np.arange(32) * access_bytes, access_bytes, [""] * 32)
    written = {item.text for item in picture.items if isinstance(item, Text)}
    written |= {line for item in picture.items if isinstance(item, Box) for line in item.lines}
    assert set(columns) <= written


def test_who_needs_another_word_of_the_same_banks_waits() -> None:
    """Rows of 64 bytes: lanes 0 and 2 meet banks 0 to 3, in other words; lane 4 reads what lane 0 reads."""
    offsets = np.array([0, 64, 128, 192, 0, 80, 32, 48])
    picture = phase_charts(offsets, 16, [""] * 8)
    waiting = [item.lines for item in picture.items if isinstance(item, Box) and item.fill == CONFLICT]
    assert sorted(waiting) == [("128",), ("192",)]
