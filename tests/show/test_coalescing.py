"""Requests to global memory, against the plan's own count of sectors and the executor's, and towers that are folded."""

from __future__ import annotations

import re

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan.values.copies import AccessKey, VectorCopy
from cutegen.show.canvas.drawing import CONFLICT, Box, Cell, sparse_grid
from cutegen.show.follow import Element, OperandElementPath, follow
from cutegen.show.follow.locations import VectorStep
from cutegen.show.parts import g2s
from cutegen.show.parts.copies import Requests
from cutegen.show.parts.epilogue import picture as epilogue_picture
from cutegen.show.parts.tile import Tile
from tests.show.cases import SPECS, plan_of

BY_THREADS = [name for name in SPECS if not name.startswith(("sm120", "wgmma"))]
"""Specs whose threads copy: no bulk tensor copies."""


@pytest.mark.parametrize("name", BY_THREADS)
def test_all_requests_touch_the_sectors_that_the_plan_predicts(name: str) -> None:
    plan = plan_of(name)
    for x in plan.operands:
        assert isinstance(x.g2s, VectorCopy)
        requests = Requests.of(x.g2s, Tile.of_operand(x))
        assert sum(requests.sectors) == plan.predictions.sectors[AccessKey.g2s(x.name)].predicted


@pytest.mark.parametrize("name", BY_THREADS)
def test_every_sector_is_drawn_once_and_a_part_of_one_is_red(name: str) -> None:
    plan = plan_of(name)
    assert isinstance(plan.a.g2s, VectorCopy)
    requests = Requests.of(plan.a.g2s, Tile.of_operand(plan.a))
    boxes = [item for item in requests.picture(0).items if isinstance(item, Box) and item.lines != ("L", "B")]
    assert len(boxes) == requests.sectors[0]
    wanted = [int(box.lines[1].removesuffix(" B")) for box in boxes]
    assert sum(wanted) == requests.coords[0].size * plan.a.dtype.bytes
    assert all((box.fill == CONFLICT) == (count < 32) for box, count in zip(boxes, wanted, strict=True))


def test_a_request_is_told_row_by_row() -> None:
    plan = plan_of("sm80_hgemm_tn")
    assert isinstance(plan.a.g2s, VectorCopy)
    requests = Requests.of(plan.a.g2s, Tile.of_operand(plan.a))
    title, _, *rows = requests.lines("T", 1)
    assert title == "T"
    assert [line.split() for line in rows] == [
        [f"{4 + i}", "0..3", f"{8 * i}..{8 * i + 7}"] for i in range(4)
    ]  # 128 threads, 8 to a row of 128 bytes: warp 1 begins at row 4
    assert requests.summary == "8 per warp, 16 sectors each, at least 16"


@pytest.mark.parametrize("name", BY_THREADS)
def test_a_warp_issues_a_request_for_each_vector_of_a_thread(name: str) -> None:
    plan = plan_of(name)
    for x in plan.operands:
        assert isinstance(x.g2s, VectorCopy)
        vectors = x.tile[0] * x.tile[1] * x.dtype.bits // (x.g2s.bits * plan.tiled_mma.threads)
        assert Requests.of(x.g2s, Tile.of_operand(x)).summary.startswith(f"{vectors} per warp, ")


@pytest.mark.parametrize("name", BY_THREADS)
def test_the_first_copy_of_a_warp_is_one_of_those_that_the_plan_predicts(name: str) -> None:
    """All accesses are alike, so the first one's wavefronts, times accesses and warps, are those of the tile."""
    plan = plan_of(name)
    blocks = [
        block for block in g2s.view(plan, 0, ProblemShape(512, 512, 512)).blocks if block[0].startswith("First copy")
    ]
    for x, (title, _, *rows) in zip(plan.operands, blocks, strict=True):
        assert isinstance(x.g2s, VectorCopy)
        joined = re.search(r": (\d+) vectors of a thread at once$", title)
        access_bits = x.g2s.bits * (int(joined[1]) if joined else 1)
        accesses = x.tile[0] * x.tile[1] * x.dtype.bits // (access_bits * plan.tiled_mma.threads)
        found = sum(int(row.split()[1]) for row in rows) * accesses * plan.tiled_mma.threads // 32
        assert found == plan.predictions.wavefronts[AccessKey.g2s(x.name)].predicted


def test_joined_copies_are_shown_as_the_compiler_writes_them() -> None:
    """st.shared.v4.b32 of 8 neighbors along k: 16 bytes per lane, 8 lanes at once, one per row."""
    plan = plan_of("joined copies")
    assert plan.predictions.instructions["st.shared.v4.b32"]
    view = g2s.view(plan, 0, ProblemShape(512, 512, 512))
    title, _, *rows = next(block for block in view.blocks if block[0].startswith("First copy"))
    assert title == "First copy of warp 0 into shared memory: 8 vectors of a thread at once"
    lanes = ["0..7", "8..15", "16..23", "24..31"]
    assert [row.split()[:4] for row in rows] == [[each, "1", f"({each},", "0)"] for each in lanes]
    accesses = g2s.page(plan)["a"]["accesses"]
    assert accesses == [[*range(first, first + 8)] for first in (0, 8, 16, 24)]
    way = follow(plan, Element("a", (3, 13)), ProblemShape(512, 512, 512))
    assert isinstance(way, OperandElementPath)
    assert isinstance(way.copy, VectorStep)
    assert (way.copy.lanes_first, way.copy.lanes_last, way.copy.wavefronts) == (0, 7, 1)


def test_a_tower_is_folded_and_loses_no_cell() -> None:
    cells = {(row, column): Cell((f"{row},{column}",), "#ffffff") for row in range(128) for column in range(4)}
    drawn = sparse_grid(cells, "m\\n")
    boxes = {item.lines[0] for item in drawn.items if isinstance(item, Box)}
    assert boxes == {f"{row},{column}" for row, column in cells}
    assert drawn.height < 2.5 * drawn.width
    flat = sparse_grid({(0, j): Cell((f"{j}",), "#ffffff") for j in range(64)}, "m\\n")
    assert flat.height < flat.width / 4


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "wgmma", "8 warps", "sm120_hgemm_tn"])
def test_the_first_write_of_sums_has_every_lane_once(name: str) -> None:
    drawn = epilogue_picture(plan_of(name), 0)
    labels = [item.text for item in drawn.items if not isinstance(item, Box) and hasattr(item, "text")]
    at = next(i for i, text in enumerate(labels) if re.match("First write of warp 0", text))
    end = next((i for i, text in enumerate(labels) if "for its first store" in text), len(labels))
    lanes = [int(m.group(1)) for text in labels[at:end] if (m := re.search(r"lane (\d+):", text))]
    assert sorted(lanes) == list(range(32))
