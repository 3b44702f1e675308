"""docs/deploying.md is run: its commands and its Python in order, its list packed, its files parsed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from cutegen.build import Cache
from cutegen.cli.main import main
from cutegen.hardware import targeting
from cutegen.pack.kernel_list import read_list
from tests.house.documents import ROOT, commands, fences, transcripts
from tests.house.replay import compare, execute, replay

PAGE = ROOT / "docs" / "deploying.md"


@pytest.fixture(autouse=True)
def _machine(kernels: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    monkeypatch.setattr("cutegen.dispatch.pack.present_target", lambda: None)
    monkeypatch.setattr(targeting, "present_target", lambda: None)


@pytest.mark.slow
@pytest.mark.dsl
def test_what_the_page_shows_is_what_happens() -> None:
    printed, ran = "", 0
    for fence in fences(PAGE):
        if fence.language == "toml":
            Path(fence.text.splitlines()[0].removeprefix("# ")).write_text(fence.text)
        elif fence.language == "python":
            printed = execute(fence, {})
        elif fence.language == "text":
            compare(f"{fence.document}:{fence.line}", fence.text, printed)
        elif fence.language == "console":
            ran += sum(map(replay, transcripts(fence)))
    assert ran == 2
    assert [str(each) for each in read_list(Path("kernels.toml"))] == [
        "sm80_hgemm_tn for sm_80, 4096x4096x4096",
        "sm80_hgemm_tn for sm_80, 4 x 64x8192x8192",
        "mine for sm_80",
        "mine for sm_90",
    ]


def test_the_other_commands_are_those_that_exist(tmp_path: Path) -> None:
    """Those of CI and containers are not run here; what they name is there."""
    text = PAGE.read_text()
    for command in re.findall(r"(?:run: |RUN )(cutegen pack .*)", text):
        options = [word for word in shlex.split(command) if word.startswith("--")]
        assert set(options) <= {"--from", "--out", "--list"}
    assert (ROOT / "requirements-run.txt").exists()
    assert len(re.findall(r"--no-deps -r (?:/src/)?requirements-run\.txt", text)) == 2
    assert main(["pack", "--list", str(tmp_path / "nothing.cutepack")]) == 2
    assert "cutegen pack --list model.cutepack" in commands(PAGE, "cutegen")


def test_sizes_and_limits_are_those_of_the_code() -> None:
    from cutegen.build.record import MAX_KERNELS

    assert f"takes {MAX_KERNELS:,} kernels" in PAGE.read_text()
    assert "CUTEGEN_RECORD" in PAGE.read_text()
    tomllib.loads(next(fence.text for fence in fences(PAGE) if fence.language == "toml"))
