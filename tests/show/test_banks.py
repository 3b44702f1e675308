"""Banks: of a tile's elements, and of an access phase by phase, with the lanes that wait."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.show.canvas.banks import bank_tile, phase_charts, phase_lanes
from cutegen.show.canvas.drawing import CONFLICT
from tests.show.geometry import boxes, by_place, labeled, texts


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
    assert set(columns) <= {item.text for item in texts(picture)}


@pytest.mark.parametrize(
    ("offsets", "access_bytes", "waiting", "turns"),
    [
        # Rows of 64 bytes: lanes 0 and 2 meet banks 0 to 3, in other words; lane 4 reads what lane 0 reads.
        ([0, 64, 128, 192, 0, 80, 32, 48], 16, ["128", "192"], 2),
        ([row * 128 for row in range(8)], 16, [f"{row * 128}" for row in range(1, 8)], 8),
        ([lane // 2 * 4 for lane in range(32)], 4, [], 1),
    ],
)
def test_who_needs_another_word_of_the_same_banks_waits(
    offsets: list[int], access_bytes: int, waiting: list[str], turns: int
) -> None:
    picture = phase_charts(np.array(offsets), access_bytes, [""] * len(offsets))
    assert sorted(box.lines[0] for box in labeled(picture) if box.fill == CONFLICT) == sorted(waiting)
    assert any(item.text.endswith(f": {turns} wavefront{'s' * (turns > 1)}") for item in texts(picture))


def test_phases_without_a_conflict_have_each_lane_in_banks_of_its_own() -> None:
    swizzled = [row * 128 + (row ^ column) * 16 for column in range(4) for row in range(8)]
    picture = phase_charts(np.array(swizzled), 16, [""] * 32)
    titles = [item.text for item in texts(picture) if item.bold and "Phase" in item.text]
    assert titles == [f"Phase {p}, lanes {8 * p} to {8 * p + 7}: 1 wavefront" for p in range(4)]
    filled = labeled(picture)
    assert [box.lines[0] for box in filled if box.fill == CONFLICT] == []
    assert sorted(int(box.lines[0]) for box in filled) == sorted(swizzled)
    assert len(boxes(picture)) == 4 * 8 * 8
    for first in range(0, 32, 8):
        columns = [round(box.x, 3) for box in filled[first : first + 8]]
        assert len(set(columns)) == 8


@pytest.mark.parametrize("element_bytes", [4, 8])
def test_elements_of_a_word_or_more_are_cells(element_bytes: int) -> None:
    table = np.arange(64, dtype=np.int64).reshape(2, 32)
    drawn = by_place(bank_tile(table, element_bytes, ("m", "k"), cell_elems=1))
    assert {place: box.lines[0] for place, box in drawn.items()} == {
        (row, column): f"{(row * 32 + column) * element_bytes // 4 % 32}" for row in range(2) for column in range(32)
    }
