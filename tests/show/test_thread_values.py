"""Any layout as a thread-value layout, and tables that are whole or say what they leave out."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cutegen.algebra import format_layout, offsets_2d, parse_layout
from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError
from cutegen.hardware import MMA_ATOMS, dtype
from cutegen.show.canvas import to_svg
from cutegen.show.canvas.drawing import MARK, Box
from cutegen.show.parts import VIEWS, Part, layout, thread_values
from tests.show.cases import plan_of

PROBLEM = ProblemShape(512, 512, 512)


@pytest.mark.parametrize("name", sorted(MMA_ATOMS)[::5])
def test_an_atoms_accumulators_are_where_its_layout_has_them(name: str) -> None:
    atom = MMA_ATOMS[name]
    tile = atom.shape_mnk[0], atom.shape_mnk[1]
    table = thread_values.view(atom.c_layout, tile).table
    for (thread, value), coord in np.ndenumerate(offsets_2d(atom.c_layout)):
        assert [thread, value] in map(list, table["holders"][coord % tile[0]][coord // tile[0]])
    assert (table["threads"], table["values"]) == offsets_2d(atom.c_layout).shape


def test_what_none_and_what_several_hold_is_said() -> None:
    lines = thread_values.view(parse_layout("(4,2):(1,2)"), (4, 3)).lines
    assert "  held     2 elements by several, 6 elements by none" in lines
    assert lines[-1].split() == ["3", "T1V1", ".", "."]


def test_a_marked_thread_is_dark_in_the_picture() -> None:
    drawn = thread_values.picture(parse_layout("((4,8),(2,2)):((32,1),(16,8))"), (16, 8), 5)
    marked = [item.lines for item in drawn.items if isinstance(item, Box) and item.fill == MARK]
    assert sorted(marked) == sorted([*(("T5", f"V{value}") for value in range(4)), ("thread 5",)])
    assert "T31" in to_svg(drawn, "")


def test_a_negative_coordinate_is_in_no_tile() -> None:
    with pytest.raises(RequestError, match="coordinates -3 to 0"):
        thread_values.view(parse_layout("4:-1"), (4, 1))


@pytest.mark.parametrize("part", [Part.MMA, Part.SMEM, Part.G2S, Part.S2R, Part.EPILOGUE])
@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "wgmma, M-major A", "simt_sgemm_nt", "8 warps"])
def test_a_table_is_whole_or_says_what_it_leaves_out(name: str, part: Part) -> None:
    """With --all nothing is left to be shown, and no line is lost."""
    plan = plan_of(name)
    short, whole = (VIEWS[part](plan, 0, PROBLEM, everything=everything).lines for everything in (False, True))
    assert not any("--all" in line for line in whole)
    assert (len(whole) > len(short)) == any("--all" in line for line in short)


def test_a_cut_counts_the_rows_that_it_leaves_out() -> None:
    lines = VIEWS[Part.SMEM](plan_of("sm80_hgemm_tn"), 0, PROBLEM).lines
    at = next(i for i, line in enumerate(lines) if line.startswith("Offset, in elements, of each 8 neighbors of A"))
    shown = [line for line in lines[at + 2 : at + 40] if re.match(r" +\d+ ", line)]
    cut = next(line for line in lines[at:] if "--all" in line)
    rows = int(re.findall(r"(\d+) more rows", cut)[0])
    assert 8 + rows == 128
    assert shown


def test_a_layout_in_full_has_every_offset() -> None:
    expression = parse_layout("(70,(10,3)):(300,(1,10))")
    assert "--all" in "\n".join(layout.view(expression, dtype("f16")).lines)
    lines = layout.view(expression, dtype("f16"), everything=True).lines
    assert max(map(len, lines)) <= 100
    found = {int(word) for line in lines for word in line.split() if word.isdigit()}
    assert set(offsets_2d(expression).ravel().tolist()) <= found
    assert format_layout(expression) in lines[0]


def test_every_warp_has_its_share() -> None:
    lines = VIEWS[Part.MMA](plan_of("8 warps"), 0, PROBLEM).lines
    at = lines.index("Every warp's share of the tiled MMA's tile")
    rows = [line.split() for line in lines[at + 2 : at + 10]]
    assert [row[0] for row in rows] == [str(warp) for warp in range(8)]
    assert [row[1] for row in rows] == [f"{32 * warp}..{32 * warp + 31}" for warp in range(8)]
