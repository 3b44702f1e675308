"""The timer on a GPU: groups of given sizes are checked against float64 and timed, and their record is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.cli.main import main
from cutegen.tune.measuring import end_children


@pytest.mark.gpu
@pytest.mark.dsl
def test_experts_of_uneven_sizes_are_tuned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_TUNED_DIR", str(tmp_path))
    problem = ["sm80_bf16_grouped", "--problem", "2000,512,256", "--groups", "16"]
    assert main(["tune", *problem, "--sizes", "zipf", "--most", "3", "--json"]) == 0, capsys.readouterr().err
    (result,) = json.loads(capsys.readouterr().out)["results"]
    end_children()
    assert {each["status"] for each in result["candidates"]} == {"ok"}
    assert all(each["graph"]["median_us"] > 0 for each in result["candidates"])
    assert main(["plan", *problem]) == 0
    assert "in 16 groups (zipf)" in " ".join(capsys.readouterr().out.split())
