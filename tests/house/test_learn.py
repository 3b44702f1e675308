"""docs/learn and docs/stages.md: every command and program is run again, and every picture drawn again."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from cutegen.build import Cache
from tests.house.documents import ROOT, fences, inline_code, transcripts
from tests.house.replay import compare, execute, printed

LEARN = ROOT / "docs" / "learn"
CHAPTERS = {path.stem: path for path in sorted(LEARN.glob("*.md"))}
PAGES = {**CHAPTERS, "stages": ROOT / "docs" / "stages.md"}
OTHERS = ("sed", "grep", "ls")
"""Programs of every system that pages use beside cutegen, on files in a folder of their own."""


@pytest.fixture(autouse=True)
def _cached(monkeypatch: pytest.MonkeyPatch, kernels: Cache) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))


@pytest.mark.dsl
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_happens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chapters only read, where they lie; what writes files does so in a folder of its own."""
    monkeypatch.chdir(LEARN if name in CHAPTERS else tmp_path)
    printed_last = None
    for fence in fences(PAGES[name]):
        if fence.language == "python" and not fence.file:  # tests/run/test_generated_file.py runs files
            printed_last = execute(fence, {})
        elif fence.language == "text":
            assert printed_last is not None
            compare(f"{fence.document}:{fence.line}", fence.text, printed_last)
        for transcript in transcripts(fence) if fence.language == "console" else ():
            words = shlex.split(transcript.command)
            if words[0] == "cutegen":
                found = printed(transcript.command)
            else:
                assert words[0] in OTHERS, transcript.command
                found = subprocess.run(words, capture_output=True, text=True, check=False).stdout
            compare(f"{transcript.address}: {transcript.command}", transcript.output, found)


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_answers_of_exercises_are_commands_that_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LEARN)
    for words in inline_code(CHAPTERS[name]):
        if re.match(r"cutegen show \S", words):
            assert "error" not in printed(words), words


def test_every_chapter_has_exercises_and_cites_its_source() -> None:
    for name in CHAPTERS.keys() - {"README"}:
        text = CHAPTERS[name].read_text()
        assert "\n## Exercises\n" in text
        assert "\nSource: " in text
        assert f"({name}.md)" in CHAPTERS["README"].read_text()


def test_the_pictures_are_up_to_date(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "make_learn.py"
    specification = util.spec_from_file_location("make_learn", script)
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules["make_learn"] = util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.make_pictures(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (LEARN / "pictures").iterdir()}
    assert sorted(made) == sorted(kept)
    assert [name for name, text in made.items() if text != kept[name]] == [], f"run {script.name}"
    shown = "".join(path.read_text() for path in CHAPTERS.values())
    assert all(f"(pictures/{name})" in shown for name in kept)
