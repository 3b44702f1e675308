"""A part is one file: what is printed of it and what is drawn of it stand together, and say the same."""

from __future__ import annotations

import re
from importlib import import_module

import numpy as np
import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.show.parts import OF_A_PROBE, PICTURES, VIEWS, Part, view_of
from cutegen.show.parts.copies import WarpAccess
from cutegen.show.parts.tile import Tile
from tests.show.cases import plan_of
from tests.show.geometry import labeled, texts

LANES_OF_A_PHASE = {4: 32, 8: 16, 16: 8}


@pytest.mark.parametrize("part", Part)
def test_a_parts_view_and_picture_are_of_the_file_with_its_name(part: Part) -> None:
    room = import_module(f"cutegen.show.parts.{part}")
    assert VIEWS[part] is room.view
    assert PICTURES.get(part) is getattr(room, "picture", None)


def test_no_view_is_of_anything_else() -> None:
    assert set(VIEWS) == {None, *Part}
    assert set(OF_A_PROBE) <= set(Part)


@pytest.mark.parametrize("part", [None, *Part])
def test_a_view_of_swapped_operands_says_whose_names_it_has(part: Part | None) -> None:
    swapped, plain = (
        view_of(part, plan_of(name), 0, ProblemShape(512, 512, 512)) for name in ("wgmma, A and B exchanged", "wgmma")
    )
    assert swapped.lines[:2] == ["A and B swapped: A here is the call's B", ""]
    assert swapped.table["swapped"] is True
    assert "swapped" not in (plain.lines[0], *plain.table)


def served_in_turns(byte_offsets: list[int], access_bytes: int) -> int:
    """The most words of 4 bytes that one of the 32 banks is asked for; lanes with the same word are served at once."""
    words = {offset // 4 + i for offset in byte_offsets for i in range(access_bytes // 4)}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("access_bytes", LANES_OF_A_PHASE)
@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "no swizzle", "cute_tutorial_tn"])
def test_lines_and_charts_of_an_access_agree_with_bank_arithmetic(name: str, access_bytes: int, seed: int) -> None:
    plan = plan_of(name)
    tile = Tile.of_operand(plan.b)
    elems = access_bytes // tile.dtype.bytes
    generator = np.random.default_rng(seed)
    starts = np.flatnonzero(tile.offsets % elems == 0)
    access = WarpAccess(tile, generator.choice(starts, 32), access_bytes)

    placed = [int(tile.offsets[coord]) * tile.dtype.bytes for coord in access.coords]
    count = LANES_OF_A_PHASE[access_bytes]
    expected = [served_in_turns(placed[first : first + count], access_bytes) for first in range(0, 32, count)]

    rows = re.findall(r"^ *(\d+)\.\.(\d+) +(\d+) ", "\n".join(access.lines("title")), re.MULTILINE)
    assert [tuple(map(int, row)) for row in rows] == [
        (i * count, (i + 1) * count - 1, turns) for i, turns in enumerate(expected)
    ]
    picture = access.picture()
    titles = [re.search(r": (\d+) wavefronts?$", item.text) for item in texts(picture)]
    assert [int(found[1]) for found in titles if found] == expected
    # Each lane's row has one filled cell, with the byte that it addresses.
    assert sorted(int(box.lines[0]) for box in labeled(picture)) == sorted(placed)


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "sm80_bf16_nn", "8 stages"])
def test_a_tile_lies_as_its_layout_says_whichever_mode_is_contiguous(name: str) -> None:
    plan = plan_of(name)
    for operand in plan.operands:
        tile = Tile.of_operand(operand)
        rows, columns = tile.by_row(tile.offsets).shape
        assert columns == operand.tile[operand.major_mode]
        assert rows * columns == operand.tile[0] * operand.tile[1]
        for coord in (0, 1, operand.tile[0], operand.tile[0] * operand.tile[1] - 1):
            row, column = tile.place(coord)
            assert tile.by_row(tile.offsets)[row, column] == tile.offsets[coord]
        # Eight neighbors to the right are one vector of 16 bytes.
        first = tile.by_row(tile.offsets)[0, :8]
        assert (np.diff(first) == 1).all()
