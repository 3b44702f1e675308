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

from benchmarks.performance.claims import x_torch
from benchmarks.performance.documents import place
from benchmarks.performance.figures import by_problem, loaded
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


def gpu_row(name: str) -> str:
    """The last cell of a GPU's row on the first page: the speed over torch.matmul in a graph."""
    (cell,) = re.findall(rf"^\| {name} .*\| ([^|]*) \|$", README.read_text(), re.MULTILINE)
    return str(cell)


@pytest.mark.parametrize("name", ["H200", "H100"])
def test_how_far_torch_is_behind_is_what_was_measured(name: str) -> None:
    path, _ = place(name)
    figures = loaded(path.read_text())
    assert name in figures.device
    suite, drawn = (
        f"{geometric_mean(map(x_torch, by_problem(section, Regime.GRAPH).values())):.2f}"
        for section in (figures.suite, figures.sample)
    )
    assert gpu_row(name).startswith(f"suite {suite}, random problems {drawn}")


def test_the_layers_of_language_models_are_what_was_measured() -> None:
    us = json.loads((ROOT / "tests" / "gpu" / "h100_layers.json").read_text())["us"]
    mean = geometric_mean(torch_us / ours_us for torch_us, ours_us, *_ in us.values())
    rows, layers = ({name.split("x", 1)[i] for name in us} for i in (0, 1))
    assert len(us) == len(rows) * len(layers)
    said = gpu_row("H100")
    assert f"[{len(layers)} layers of language models]" in said
    assert f"at {len(rows)} numbers of rows {mean:.2f}" in said
    page = (ROOT / "docs" / "performance_h100.md").read_text()
    assert f"| all | {len(us)} | {mean:.2f} |" in page


MEASURED = re.compile(r"\d[\d.,]*\s(?:us|TFLOP/s|TB/s|times (?:as fast|torch|the speed))|\d[\d.]*\s?%")
BLOCK = re.compile(r"<!-- performance: \w+ -->.*?<!-- end -->|```.*?```", re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md"])
def test_figures_stand_in_blocks_that_a_script_writes(page: str) -> None:
    """A figure elsewhere would stay as it is when the data change; the table of GPUs is held by the tests above."""
    outside = BLOCK.sub("", (ROOT / page).read_text())
    assert sorted(set(MEASURED.findall(outside))) == []


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
