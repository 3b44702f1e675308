"""A kernel's file that somebody edited, and an artifact's folder: run, reported on, emitted, or refused in a line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import Cli

pytestmark = pytest.mark.dsl

SPEC = """
family = "{family}"
problem.a = {{ dtype = "f16", major = "k" }}
problem.b = {{ dtype = "f16", major = "k" }}
problem.c = {{ dtype = "f16", major = "n" }}
tile = {{ cta = [64, 64, 64], stages = 4 }}
"""
SIMT = """
family = "simt"
problem.a = { dtype = "f32", major = "k" }
problem.b = { dtype = "f32", major = "k" }
problem.c = { dtype = "f32", major = "n" }
tile = { cta = [32, 32, 8], stages = 2 }
"""
TARGETS = {"sm80": "sm_80", "sm90": "sm_90", "sm120": "sm_90", "simt": "sm_80"}


@pytest.fixture(autouse=True)
def _here(empty_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def emitted(cli: Cli, family: str) -> str:
    Path("mine.toml").write_text(SIMT if family == "simt" else SPEC.format(family=family))
    assert cli(f"emit mine.toml --arch {TARGETS[family]} --out kernel.py").code == 0
    return Path("kernel.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sm80", "sm90", "sm120"])
def test_other_stages_run_right_and_are_named(cli: Cli, family: str) -> None:
    text = emitted(cli, family)
    edited, count = re.subn(r"^(STAGES\b.* = )4\b", r"\g<1>3", text, flags=re.MULTILINE)
    assert count == 1
    Path("kernel.py").write_text(edited)
    outcome = cli(f"run kernel.py --arch {TARGETS[family]} --device cpu --problem 130,72,328 --json")
    assert (outcome.code, outcome.err) == (0, "cutegen: note: kernel.py: stages: 3, the plan has 4\n")
    assert outcome.json["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("family", TARGETS)
def test_another_tile_order_runs_right_and_is_no_plans_kernel(cli: Cli, family: str) -> None:
    """The edited text has its own key: what a spec asks for is never answered with it.

    CTAs of family sm90 find their first tile by a function of its own.
    """
    text = emitted(cli, family)
    edited, count = re.subn(
        r"^    return tile_m, tile_n$", "    return tiles_m - 1 - tile_m, tile_n", text, flags=re.MULTILINE
    )
    functions = "tile_coordinate, first_tile_coordinate" if family == "sm90" else "tile_coordinate"
    assert count == len(functions.split())
    Path("kernel.py").write_text(edited)
    outcome = cli(f"run kernel.py --arch {TARGETS[family]} --device cpu --problem 130,72,72")
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith(f"cutegen: note: kernel.py: {functions}: edited; instruction counts")
    itself = cli(f"build kernel.py --arch {TARGETS[family]} --out built")
    assert (itself.code, "hit, from the cache" in itself.out) == (0, True)
    assert itself.err.startswith(f"cutegen: note: kernel.py: {functions}: edited")
    assert "tiles_m - 1" in (Path("built") / f"mine-{TARGETS[family]}" / "kernel.py").read_text()
    build = cli(f"build mine.toml --arch {TARGETS[family]} --json").json
    assert not build["hit"]
    assert "tiles_m - 1" not in Path(build["path"], "kernel.py").read_text()


@pytest.mark.slow
def test_a_wrong_edit_is_found_by_the_numbers(cli: Cli) -> None:
    text = emitted(cli, "sm80")
    Path("kernel.py").write_text(text.replace("tCrC.fill(0.0)", "tCrC.fill(1.0)"))
    outcome = cli("run kernel.py --arch sm_80 --device cpu --problem 128,128,64")
    assert outcome.code == 1
    assert "wrong" in outcome.err


@pytest.mark.slow
def test_an_artifacts_folder_is_run_reported_on_and_emitted(cli: Cli) -> None:
    emitted(cli, "sm80")
    assert cli("build mine.toml --arch sm_80 --out built").code == 0
    (folder,) = Path("built").iterdir()
    for words in (str(folder), "built"):
        outcome = cli(f"run {words} --device cpu --json")
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.json["ok"]
    assert "predicted" in cli(f"report {folder} --problem 64,64,64").out
    assert cli(f"run {folder} --arch a100 --device cpu").code == 0
    assert "which is for sm_80; leave it out" in cli(f"run {folder} --arch h100 --device cpu").error
    for made in (folder, "kernel.py"):
        assert "--problem: found together with a finished kernel" in cli(f"emit {made} --problem 64,64,64").error
    assert cli(f"emit {folder} --what ptx --out k.ptx").code == 0
    assert Path("k.ptx").read_bytes() == (folder / "kernel.ptx").read_bytes()


@pytest.mark.slow
def test_a_damaged_folder_is_refused_in_a_line(cli: Cli) -> None:
    emitted(cli, "sm80")
    assert cli("build mine.toml --arch sm_80 --out built").code == 0
    (folder,) = Path("built").iterdir()
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        file.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        outcome = cli(f"run {folder} --device cpu")
        assert outcome.code == 3
        assert file.name in outcome.error
        file.write_bytes(whole)
    # A launch that is not the kernel's, with digests that fit: somebody wrote it so.
    table = json.loads((folder / "plan.json").read_text())
    table["launch"]["threads"] *= 2
    from cutegen.build import open_artifact

    sealed = open_artifact(folder).content.with_plan(json.dumps(table)).sealed()
    sealed.write_folder(folder)
    assert "launch does not match the constants in kernel.py" in cli(f"run {folder} --device cpu").error
    (folder / "kernel.ptx").unlink()
    assert "kernel.ptx missing" in cli(f"run {folder} --device cpu").error


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("foreign.py", b"print(1)\n", "found no KERNEL_NAME"),
        ("broken.py", b"def f(:\n", "broken.py:1: invalid syntax"),
        ("binary.py", b"\xff\xfe\x00", "byte 0 is not UTF-8"),
        ("empty.py", b"", "found no KERNEL_NAME"),
    ],
)
def test_a_foreign_file_is_refused_in_a_line(cli: Cli, file: str, content: bytes, said: str) -> None:
    Path(file).write_bytes(content)
    for verb in ("run", "report", "build"):
        outcome = cli(f"{verb} {file}")
        assert outcome.code == 2
        assert said in outcome.error


def test_what_is_not_there_is_refused_in_a_line(cli: Cli) -> None:
    assert "nothing.py: cannot be opened" in cli("run nothing.py").error
    Path("empty").mkdir()
    assert "empty: found no artifact; expected one folder of `cutegen build --out`" in cli("run empty").error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--what ptx,sass", "--what: found ptx, sass; expected one for stdout, or --out FOLDER for several"),
        ("--what asm", "--what: found 'asm'; expected one or more of source, ptx, sass, cubin"),
        ("--what sass --out k.ptx", "--out: found k.ptx for sass; expected a file that ends with .sass"),
        ("--what sass,ptx --out k.ptx", "--out: found k.ptx for sass, ptx; expected a folder"),
        ("--out k.elf", "--out: found k.elf, which ends with .elf"),
        ("--what cubin", "--what: found cubin, which is binary; expected --out FILE.cubin, or a pipe"),
    ],
)
def test_a_stage_that_cannot_be_shown_so_is_refused(
    cli: Cli, words: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    outcome = cli(f"emit sm80_hgemm_tn --arch sm_80 {words}")
    assert outcome.code == 2
    assert said in outcome.error
    assert not Path("k.ptx").exists()
