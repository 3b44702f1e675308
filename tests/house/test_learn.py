"""docs/learn and docs/stages.md: every command is run again, and every picture drawn again."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cutegen.build import Cache
from tests.house.documents import ROOT, fences, transcripts
from tests.house.replay import compare, execute, printed

PAGES = {path.stem: path for path in (*sorted((ROOT / "docs" / "learn").glob("*.md")), ROOT / "docs" / "stages.md")}
OTHERS = ("sed", "grep", "ls")
"""Programs of every system that pages use beside cutegen, on files in a folder of their own."""


@pytest.mark.dsl
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_happens(
    name: str, kernels: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    monkeypatch.chdir(tmp_path)
    for path in (ROOT / "docs" / "learn").glob("*.*"):
        if path.suffix in (".toml", ".ptx"):
            shutil.copy(path, tmp_path)
    for fence in fences(PAGES[name]):
        if fence.language == "python":
            execute(fence, {})
        for transcript in transcripts(fence) if fence.language == "console" else ():
            words = shlex.split(transcript.command)
            if words[0] == "cutegen":
                found = printed(transcript.command)
            else:
                assert words[0] in OTHERS, transcript.command
                found = subprocess.run(words, capture_output=True, text=True, check=False).stdout
            compare(f"{transcript.address}: {transcript.command}", transcript.output, found)
