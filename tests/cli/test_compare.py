"""`cutegen compare` as people and programs meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Cli

pytestmark = pytest.mark.usefixtures("empty_cache")


def test_two_specs_fit_a_terminal_of_100_columns(cli: Cli) -> None:
    outcome = cli("compare sm80_hgemm_tn cute_tutorial_tn --arch sm_80 --no-time")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "  mma.atom                    SM80_16x8x16_F32F16F16F32_TN        SM80_16x8x8_F16F16F16F16_TN" in lines
    assert "tile.cta 128x128x64" in outcome.out.partition("Equal")[2]


def test_columns_are_obeyed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    lines = cli("compare sm80_hgemm_tn cute_tutorial_tn --arch sm_80 --no-time --all").out.splitlines()
    assert max(map(len, lines)) <= 72


def test_for_a_problem_open_keys_are_chosen_for_it(cli: Cli) -> None:
    table = cli("compare sm80_hgemm_tn sm80_bf16_nn --arch sm_80 --problem 64,256,4096 --no-time --json").json
    assert table["problem"] == [64, 256, 4096]
    assert table["chosen_for_problem"]
    assert table["not_measured"] == "--no-time"


def test_a_picture_goes_to_a_file(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "compared.svg"
    assert cli(f"compare sm80_hgemm_tn cute_tutorial_tn --arch sm_80 --no-time --out {out}").code == 0
    assert "<title>sm80_hgemm_tn and cute_tutorial_tn</title>" in out.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sm80_hgemm_tn", "compare: found sm80_hgemm_tn alone; expected at least two specs"),
        ("sm80_hgemm_tn no_such_spec", "no_such_spec"),
        ("sm90_hgemm_tn sm90_bf16_nt --arch sm_80", "which has wgmma"),
        ("sm80_hgemm_tn sm80_bf16_nn --json --format svg", "--json: found together with a picture"),
    ],
)
def test_a_mistake_is_one_line_with_a_way_out(cli: Cli, words: str, said: str) -> None:
    outcome = cli(f"compare {words}")
    assert outcome.code == 2
    assert said in outcome.error


def test_times_that_are_asked_for_without_a_gpu_are_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutegen.bench.benchmark.present_target", lambda: None)
    outcome = cli("compare sm80_hgemm_tn sm80_bf16_nn --arch sm_80 --time")
    assert outcome.code == 3
    assert "--no-time compares without" in outcome.error


def test_an_edited_kernel_is_compared_with_its_spec(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    assert cli(f"emit sm80_hgemm_tn --arch sm_80 --out {path}").code == 0
    path.write_text(path.read_text().replace("\nSTAGES = 3\n", "\nSTAGES = 2\n"))
    outcome = cli(f"compare sm80_hgemm_tn {path} --arch sm_80 --no-time --json")
    assert outcome.code == 0
    (row,) = [each for each in outcome.json["rows"] if each["name"] == "tile.stages"]
    assert row["values"] == ["3", "2"]
    assert [each["name"] for each in outcome.json["specs"]] == ["sm80_hgemm_tn", "sm80_hgemm_tn (kernel.py)"]


@pytest.mark.dsl
def test_a_built_folder_brings_its_registers(cli: Cli, tmp_path: Path) -> None:
    assert cli(f"build sm80_hgemm_tn --arch sm_80 --out {tmp_path / 'built'}").code == 0
    (manifest,) = (tmp_path / "built").rglob("manifest.json")
    compared = cli(f"compare {manifest.parent} sm80_bf16_nn --arch sm_80 --no-time --json").json
    assert [each["built"] for each in compared["specs"]] == [True, False]
