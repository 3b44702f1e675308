"""`cutegen show` as pictures, and of layouts that belong to no spec."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cutegen.cli import pictures
from tests.cli.commands import Cli

PARTS = ("mma", "smem", "g2s", "s2r", "tmem", "epilogue", "pipeline")
STARTS = {"svg": "<svg ", "latex": "% ", "png": "\x89PNG"}
SWIZZLED = "Sw<3,3,3> o (8,(8,8)):(8,(1,64))"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("spec", "format_"), [*(("cute_tutorial_tn", format_) for format_ in STARTS), ("simt_sgemm_tn", "svg")]
)
def test_every_part_is_drawn_in_every_format(part: str, spec: str, format_: str, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    outcome = cli(f"show {spec} {part} --arch sm_80 --format {format_} --out {path}")
    told_of = f"cutegen: wrote: {path}, {path.stat().st_size:,} bytes\n"
    assert (outcome.code, outcome.out, outcome.err) == (0, "", told_of)
    assert path.read_bytes().decode("latin-1").startswith(STARTS[format_])


@pytest.mark.parametrize(("name", "format_"), [("a.svg", "svg"), ("a.tex", "latex"), ("A.PNG", "png")])
def test_the_name_of_the_file_says_the_format(name: str, format_: str, cli: Cli, tmp_path: Path) -> None:
    assert cli("show --layout", "(4,8)", "--out", str(tmp_path / name)).code == 0
    assert (tmp_path / name).read_bytes().decode("latin-1").startswith(STARTS[format_])


def test_without_a_file_a_picture_goes_to_stdout(cli: Cli) -> None:
    outcome = cli("show sm80_hgemm_tn pipeline --arch sm_80 --format svg")
    assert outcome.code == 0
    root = ElementTree.fromstring(outcome.out)
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text == "sm80_hgemm_tn: pipeline"


def test_png_is_not_written_to_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    outcome = cli("show --layout 8:1 --format png")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--format png: found a terminal; expected --out FILE" in outcome.error


def test_png_without_pillow_is_an_error_with_a_way_out(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    outcome = cli("show --layout 8:1 --format png")
    assert (outcome.code, outcome.out) == (3, "")
    assert "pip install 'cutegen[png]'" in outcome.error
    assert cli("show --layout 8:1 --format svg").code == 0


def test_a_layout_as_text_fits_a_terminal_and_shows_offsets_and_banks(cli: Cli) -> None:
    outcome = cli("show --layout", SWIZZLED)
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0] == "Sw<3,3,3> o _0 o (_8,(_8,_8)):(_8,(_1,_64))"
    assert max(map(len, lines)) <= 100
    second = lines[lines.index("Element offsets") + 3].split()
    assert second[:10] == ["1", "8", "9", "10", "11", "12", "13", "14", "15", "64"]
    banks = lines[lines.index("Banks") + 3].split()
    assert banks[:10] == ["1", "4", "4", "5", "5", "6", "6", "7", "7", "0"]


@pytest.mark.parametrize(
    "expression", ["7", "5:0", "(4,3,2)", "(300,400):(400,1)", "(8,64):(-64000,1)", "((2,2),(4,8)):((1,8),(2,16))"]
)
def test_any_layout_fits_a_terminal(expression: str, cli: Cli) -> None:
    outcome = cli("show --layout", expression)
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= 100


@pytest.mark.parametrize(("dtype", "element_bytes"), [("f16", 2), ("f32", 4)])
def test_a_layout_as_json_has_every_offset_and_bank(dtype: str, element_bytes: int, cli: Cli) -> None:
    table = cli("show --json --layout", "((2,2),(4,8)):((1,8),(2,16))", "--dtype", dtype).json
    offsets = [
        [i0 + 8 * i1 + 2 * j0 + 16 * j1 for j1 in range(8) for j0 in range(4)] for i1 in range(2) for i0 in range(2)
    ]
    assert table["offsets"] == offsets
    assert table["banks"] == [[offset * element_bytes // 4 % 32 for offset in row] for row in offsets]
    assert (table["layout"], table["shape"]) == ("((_2,_2),(_4,_8)):((_1,_8),(_2,_16))", [4, 32])


def test_every_suffix_is_a_formats() -> None:
    assert set(pictures.SUFFIXES.values()) == set(pictures.Format) - {pictures.Format.TEXT}
