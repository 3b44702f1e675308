"""README.md, docs/tour.md and docs/cache.md are run: their specs are written, their commands and Python executed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean

import pytest

from benchmarks.performance.claims import x_peer, x_torch
from benchmarks.performance.documents import FIGURES, place
from benchmarks.performance.figures import by_problem, loaded
from cutegen.bench.contenders import CUTLASS_HOPPER, QUACK
from cutegen.bench.measure import Regime
from cutegen.hardware import targeting
from cutegen.spec import shipped_specs
from tests.house.documents import ROOT, Fence, fences, transcripts
from tests.house.replay import compare, execute, replay

README = ROOT / "README.md"
MOST_LINES = 250
"""README.md and ARCHITECTURE.md are read in one sitting; what does not fit has a page of its own."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, an empty cache, no GPU: what the outputs were made with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(targeting, "_compute_capability", lambda: None)
    targeting.present_target.cache_clear()
    yield tmp_path
    targeting.present_target.cache_clear()


def write_spec(fence: Fence) -> None:
    """Write a TOML block to the file that its first line names."""
    Path(fence.text.splitlines()[0].removeprefix("# ").split()[0]).write_text(fence.text)


@pytest.mark.dsl
@pytest.mark.parametrize(("page", "least"), [("README.md", 3), ("docs/tour.md", 8), ("docs/cache.md", 2)])
@pytest.mark.usefixtures("machine")
def test_what_the_page_shows_is_what_happens(page: str, least: int) -> None:
    for fence in fences(README):  # whose specs other pages use
        if fence.language == "toml":
            write_spec(fence)
    namespace: dict[str, object] = {}
    printed = ""
    ran = 0
    for fence in fences(ROOT / page):
        if fence.language == "toml":
            write_spec(fence)
        elif fence.language == "python":
            printed = execute(fence, namespace)
        elif fence.language == "text":
            compare(f"{fence.document}:{fence.line}", fence.text, printed)
        elif fence.language == "console":
            for transcript in transcripts(fence):
                ran += replay(transcript)
    assert ran >= least, f"the console blocks of {page} were not found"


def test_a_different_output_is_noticed() -> None:
    compare("here", "a\n...\nd ... f\n...\n", "a  \nb\nc\nd e f\n")
    for found in ("a\nb\nc\n", "a\nd e f g\n", "d e f\n"):
        with pytest.raises(pytest.fail.Exception, match="the document says"):
            compare("here", "a\n...\nd ... f\n", found)


def test_the_first_pages_are_short() -> None:
    for page in ("README.md", "ARCHITECTURE.md"):
        assert len((ROOT / page).read_text().splitlines()) <= MOST_LINES, page


def test_how_far_peers_are_behind_is_what_was_measured() -> None:
    words = r"([\d.]+) times as fast as QuACK.*?([\d.]+) times as fast as\sCUTLASS"
    said = re.search(words, README.read_text(), re.DOTALL)
    assert said is not None
    suite = by_problem(loaded(FIGURES.read_text()).suite, Regime.GRAPH).values()
    for peer, times in zip((QUACK, CUTLASS_HOPPER), said.groups(), strict=True):
        ratios = [ratio for row in suite if (ratio := x_peer(row, peer)) is not None]
        assert times == f"{geometric_mean(ratios):.2f}", peer


def test_how_far_torch_is_behind_on_an_h100_is_what_was_measured() -> None:
    said = re.search(r"([\d.]+) times as fast as torch.*?([\d.]+) times over the random", README.read_text(), re.DOTALL)
    assert said is not None
    path, _ = place("H100")
    figures = loaded(path.read_text())
    for section, times in zip((figures.suite, figures.sample), said.groups(), strict=True):
        assert times == f"{geometric_mean(map(x_torch, by_problem(section, Regime.GRAPH).values())):.2f}"


def test_every_shipped_spec_and_example_is_listed() -> None:
    examples = [f"examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".cpp")]
    assert examples
    page = (ROOT / "examples" / "README.md").read_text()
    assert [name for name in examples if f"`{name}`" not in page] == []
    assert [name for name in shipped_specs() if f"`{name}`" not in (ROOT / "layouts" / "README.md").read_text()] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]
    rooms = [f"{path.parent.name}/README.md" for path in (ROOT / "docs").glob("*/README.md")]
    assert [name for name in (*pages, *rooms) if f"]({name})" not in index] == []


@pytest.mark.slow
@pytest.mark.dsl
def test_the_cost_table_has_the_rows_that_the_benchmark_prints() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "cost.py"), "--runs", "1", "--json"]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    page = (ROOT / "docs" / "cost.md").read_text()
    assert re.findall(r"^\| (.+?) \| [\d.]+ m?s \|", page, re.MULTILINE) == list(measured)
