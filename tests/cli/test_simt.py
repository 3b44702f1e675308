"""Every part of a plan without tensor cores is shown, as text, as JSON, and as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cutegen.cli.main import main

PARTS = ["mma", "smem", "g2s", "s2r", "epilogue", "pipeline", "partitions"]
SPEC = "simt_sgemm_tn --arch sm_80"


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_shown(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, arch = SPEC.split(maxsplit=1)
    assert main(["show", name, part, *arch.split()]) == 0
    assert capsys.readouterr().out
    assert main(["show", name, part, *arch.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spec"] == name


@pytest.mark.parametrize("part", PARTS[:-1])
def test_every_part_is_drawn(part: str, tmp_path: Path) -> None:
    name, arch = SPEC.split(maxsplit=1)
    file = tmp_path / "picture.svg"
    assert main(["show", name, part, *arch.split(), "--out", str(file)]) == 0
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


def test_what_is_shown_is_of_this_family(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for part in ("mma", "s2r", "pipeline"):
        main(f"show simt_sgemm_tn {part} --arch sm_80".split())
        shown[part] = capsys.readouterr().out
    assert "fma.rn.f32" in shown["mma"]
    assert "1x1x1, 2 operations by 1 thread" in shown["mma"]
    assert "plain loads of 128 bits" in shown["s2r"]
    assert "fma" in shown["pipeline"]
    assert "mma " not in shown["pipeline"]
    assert "cp.async" not in shown["pipeline"]
