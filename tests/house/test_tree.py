"""What holds for every file: small rooms, no leftovers, nothing of one machine; and what an import may pull in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.documents import ROOT

MAX_LINES = 850
FOREIGN = ("cutlass", "torch", "cuda")

# Spelled in pieces, so that this file does not find itself.
LEFTOVERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.~}$/-])/(?:work|root|home|opt|mnt|Users)/\w")
NAMED_PATHS = re.compile(r"\b(?:cutegen|docs|examples|layouts|templates|tests|benchmarks)/[\w./-]+\.\w+")
REGISTRIES = re.compile("py" + r"pi\.org|python" + r"hosted|index-" + r"url|find-" + "links", re.IGNORECASE)


def tracked() -> list[Path]:
    """The files under version control that are text."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_leftovers() -> None:
    assert lines_that_match(LEFTOVERS) == []


def test_nothing_of_one_machine() -> None:
    assert lines_that_match(MACHINE_PATHS) == []
    assert lines_that_match(REGISTRIES) == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert LEFTOVERS.search("# TO" + "DO: later")
    assert MACHINE_PATHS.search('open("' + "/ho" + 'me/someone")')
    assert not MACHINE_PATHS.search("layouts/work/a")


def test_paths_named_in_the_sources_exist() -> None:
    sources = [path for path in tracked() if path.suffix in (".py", ".j2", ".toml", ".sh")]
    named = {
        (str(path.relative_to(ROOT)), name)
        for path in sources
        for line in path.read_text().splitlines()
        if "CUTLASS" not in line  # whose own paths are cited
        for name in NAMED_PATHS.findall(line)
    }
    assert ("cutegen/spec/checks.py", "layouts/README.md") in named
    assert {(source, name) for source, name in named if not (ROOT / name).exists()} == set()


def test_rooms_are_small() -> None:
    sources = [path for path in tracked() if path.suffix in (".py", ".j2")]
    assert sources
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import cutegen",
        "import cutegen; cutegen.plan(cutegen.load_spec('sm80_hgemm_tn')).explain()",
        "from cutegen.cli.main import main; main(['plan', 'sm80_hgemm_tn'])",
        "from cutegen.cli.main import main; main(['show', 'cute_tutorial_tn', 'partitions'])",
        "from cutegen.cli.main import main; main(['emit', 'sm80_hgemm_tn'])",
    ],
)
def test_neither_the_dsl_nor_torch_is_imported(code: str) -> None:
    code += f"\nimport sys; print('foreign', [name for name in {FOREIGN!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "foreign []"


def test_imports_only_go_down() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
