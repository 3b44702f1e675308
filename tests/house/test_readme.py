"""README.md is run: its spec files are written, its commands and Python executed in order, their output compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutegen.hardware import targeting
from cutegen.spec import shipped_specs
from tests.house.documents import ROOT, fences, transcripts
from tests.house.replay import compare, execute, replay

README = ROOT / "README.md"
FENCES = tuple(fences(README))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, an empty cache, no GPU: what the README's outputs were made with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(targeting, "_compute_capability", lambda: None)
    targeting.present_target.cache_clear()
    yield tmp_path
    targeting.present_target.cache_clear()


@pytest.mark.dsl
def test_what_the_readme_shows_is_what_happens(machine: Path) -> None:
    namespace: dict[str, object] = {}
    printed = ""
    ran = 0
    for fence in FENCES:
        if fence.language == "toml":
            name = fence.text.splitlines()[0].removeprefix("# ").split()[0]
            (machine / name).write_text(fence.text)
        elif fence.language == "python":
            printed = execute(fence, namespace)
        elif fence.language == "text":
            compare(f"{fence.document}:{fence.line}", fence.text, printed)
        elif fence.language == "console":
            for transcript in transcripts(fence):
                ran += replay(transcript)
    assert ran >= 8, "the README's console blocks were not found"


def test_a_different_output_is_noticed() -> None:
    compare("here", "a\n...\nd ... f\n...\n", "a  \nb\nc\nd e f\n")
    for found in ("a\nb\nc\n", "a\nd e f g\n", "d e f\n"):
        with pytest.raises(pytest.fail.Exception, match="the document says"):
            compare("here", "a\n...\nd ... f\n", found)


def test_every_shipped_spec_and_example_is_listed() -> None:
    examples = [f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")]
    assert examples
    readme = README.read_text()
    assert [name for name in (*shipped_specs(), *examples) if f"`{name}`" not in readme] == []
    assert [name for name in shipped_specs() if f"`{name}`" not in (ROOT / "layouts" / "README.md").read_text()] == []


@pytest.mark.slow
@pytest.mark.dsl
def test_the_cost_table_has_the_rows_that_the_benchmark_prints() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "cost.py"), "--runs", "1", "--json"]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    section = README.read_text().split("## What it costs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| [\d.]+ m?s \|", section, re.MULTILINE)
    assert rows == list(measured)
