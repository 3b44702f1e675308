"""`cutegen show --format html`: a page to a file or to stdout."""

from __future__ import annotations

from pathlib import Path

from cutegen.algebra import parse_layout
from cutegen.hardware import dtype
from cutegen.show.page import page_of_layout
from tests.cli.commands import Cli
from tests.show.test_page import told


def test_the_command_writes_the_page(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert cli(f"show sm80_hgemm_tn --arch sm_80 --out {path}").code == 0
    printed = cli("show sm80_hgemm_tn --arch sm_80 --format html")
    assert (printed.code, printed.out) == (0, path.read_text())
    assert told(printed.out)["overview"]["title"] == "sm80_hgemm_tn"
    opened = told(cli("show sm80_hgemm_tn s2r --arch sm_80 --thread 37 --format html").out)["open"]
    assert (opened["part"], opened["thread"]) == ("s2r", 37)


def test_a_page_can_follow_an_element_of_any_tile(cli: Cli) -> None:
    opened = told(cli("show sm80_hgemm_tn --arch sm_80 --element a,140,104 --format html").out)["open"]
    assert opened["element"] == ["a", 12, 40, 1]


def test_a_probe_has_a_page_of_its_loads(cli: Cli) -> None:
    data = told(cli("show ldmatrix_probe --arch sm_80 --format html").out)
    assert (data["epilogue"], data["pipeline"]) == (None, None)
    assert data["s2r"]["a"]["kind"] == "copied"


def test_a_layout_has_a_page(cli: Cli) -> None:
    text = "Sw<3,3,3> o (8,64):(64,1)"
    data = told(cli("show --format html --layout", text).out)
    assert (data["kind"], data["layout"]["swizzle"], data["layout"]["shape"]) == ("layout", [3, 3, 3], [8, 64])
    assert page_of_layout(parse_layout(text), dtype("f16"), text).count("Sw&lt;3,3,3&gt;") == 1
