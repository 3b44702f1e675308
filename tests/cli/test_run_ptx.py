"""Foreign PTX on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import Cli
from tests.run.test_foreign_launches import HEAD, SCALE

RANKS = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry ranks(.param .u64 x) .explicitcluster {
    .reg .b32 %r<2>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %cluster_ctarank;
    mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
"""


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    path = tmp_path / "scale.ptx"
    path.write_text(HEAD + SCALE)
    return path


def test_it_runs_reports_and_saves(scale: Path, cli: Cli, tmp_path: Path) -> None:
    outcome = cli(f"run --ptx {scale} --arg f32[32]:arange --arg f32:2.5 --save {tmp_path / 'out'} --json")
    assert outcome.code == 0
    loads = [row for row in outcome.json["instructions"] if row["opcode"] == "ld.global.f32"]
    assert [(row["executed"], row["sectors"]) for row in loads] == [(1, 4)]
    assert outcome.json["saved"] == [str(tmp_path / "out" / "arg0.npy")]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "arg0.npy"), np.arange(32, dtype=np.float32) * 2.5)


def test_text_has_a_row_for_each_opcode(scale: Path, cli: Cli) -> None:
    text = cli(f"run {scale} --arg f32[32]:random --arg f32:2").out
    assert "scale: 9 warp instructions" in text
    assert sum(line.strip().startswith("st.global.f32") for line in text.splitlines()) == 1


def test_clusters_are_those_that_are_asked_for(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ranks.ptx").write_text(RANKS)
    asked = f"run {tmp_path / 'ranks.ptx'} --grid 6 --block 1 --arg u32[6]:ones --save {tmp_path}"
    assert cli(f"{asked} --cluster 3").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "arg0.npy"), [0, 1, 2, 0, 1, 2])
    untold = cli(asked)
    assert (untold.code, "--cluster" in untold.error) == (2, True)


def test_undefined_behavior_is_exit_1_with_its_line(scale: Path, cli: Cli) -> None:
    outcome = cli(f"run --ptx {scale} --arg f32[16]:zeros --arg f32:2")
    assert outcome.code == 1
    assert outcome.error.startswith("line 12: out of bounds")


@pytest.mark.parametrize(
    ("options", "mention"),
    [
        ("--arg f32[32]:zeroes --arg f32:1", "--arg: found 'f32[32]:zeroes'; expected TYPE:NUMBER"),
        ("--arg f32[32]:zeros --arg f33:1", "--arg: found 'f33:1'"),
        ("--arg f32[32]:zeros --arg f32:one", "--arg: found f32:'one'"),
        ("--arg nothing.npy", "nothing.npy cannot be read"),
        ("--arg f32[32]:zeros", "--arg: found 1 for scale; expected 2, one per parameter in order: x, factor"),
        ("--grid 0", "--grid: found '0'"),
        ("--block 1,2,3,4", "--block: found '1,2,3,4'"),
        ("--cluster 0", "--cluster: found '0'"),
        ("--entry other", "--entry: found 'other'; expected one of scale"),
        ("--arg f32[32]:zeros --arg f32:1 --policy sideways", "sideways"),
    ],
)
def test_bad_options_are_told(options: str, mention: str, scale: Path, cli: Cli) -> None:
    outcome = cli(f"run --ptx {scale} {options}")
    assert (outcome.code, outcome.out) == (2, "")
    assert mention in outcome.error


def test_a_saved_array_can_be_read_again(scale: Path, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full(32, 3, np.float32))
    assert cli(f"run --ptx {scale} --arg {tmp_path / 'x.npy'} --arg f32:2 --save {tmp_path}").code == 0
    assert np.load(tmp_path / "arg0.npy").tolist() == [6.0] * 32
