"""build, run and cache, for real: kernels are compiled once for the whole file, then found, run and damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from cutegen.cli import run as run_verb
from cutegen.run import Outcome, expected_outcome
from tests.cli.commands import Cli

pytestmark = pytest.mark.dsl

SPEC = """
family = "sm80"
problem.a = { dtype = "f16", major = "k" }
problem.b = { dtype = "f16", major = "k" }
problem.c = { dtype = "f16", major = "n" }
tile = { cta = [64, 64, 32], stages = 2 }
"""
ARCH = "--arch sm_80"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec, small.toml, and a cache that holds it for sm_80."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "small.toml").write_text(SPEC)
    return folder


@pytest.fixture
def small(built: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Path:
    """The spec; it is in the cache."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(built / "cache"))
    spec = built / "small.toml"
    if not (built / "cache").exists():
        outcome = cli(f"build {spec} {ARCH} --json")
        assert (outcome.code, outcome.json["hit"]) == (0, False)
        assert outcome.json["miss"]["nearest"] is None
    return spec


def test_build_says_what_it_found(small: Path, cli: Cli) -> None:
    outcome = cli(f"build {small} {ARCH} --json")
    table = outcome.json
    assert (outcome.code, outcome.err) == (0, "")
    assert (table["hit"], table["target"], table["miss"], table["warnings"]) == (True, "sm_80", None, [])
    assert Path(table["path"]).name == table["key"]
    assert table["instructions"]["predicted"] == table["instructions"]["emitted"]
    assert table["registers"] > 32
    assert table["spills"] == 0
    text = cli(f"build {small} {ARCH}").out
    assert text.startswith("small for sm_80: hit, from the cache\n")
    assert table["key"] in text


def test_the_artifact_holds_the_plan_that_is_printed(small: Path, cli: Cli) -> None:
    path = Path(cli(f"build {small} {ARCH} --json").json["path"])
    assert (path / "plan.json").read_text() == cli(f"plan {small} {ARCH} --json").out


def test_a_miss_is_explained_by_the_nearest_entry(small: Path, cli: Cli, tmp_path: Path) -> None:
    lookup = cli(f"cache info {small} --arch sm_86 --json").json["lookup"]
    assert (lookup["hit"], lookup["miss"]["differences"]) == (
        False,
        [{"field": "gpu_arch", "cached": "sm_80", "requested": "sm_86"}],
    )
    other = tmp_path / "small.toml"
    other.write_text(SPEC.replace("stages = 2", "stages = 3"))
    text = cli(f"cache info {other} {ARCH}").out
    assert "source_sha256" in text
    assert "+STAGES = 3" in text


def test_cache_lists_and_verifies(small: Path, cli: Cli) -> None:
    key = cli(f"build {small} {ARCH} --json").json["key"]
    (entry,) = cli("cache list --json").json["entries"]
    assert (entry["key"], entry["arch"]) == (key, "sm_80")
    assert key[:16] in cli("cache list").out
    assert cli("cache verify --json").json == {"checked": 1, "damaged": []}
    assert cli("cache path").out.strip() == cli("cache info --json").json["path"]
    assert cli("cache prune --json").json == {"removed": [], "bytes": 0}


def test_damage_is_found_and_told(
    small: Path, built: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(built / "cache", tmp_path / "cache")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    (ptx,) = (tmp_path / "cache").glob("*/*/kernel.ptx")
    ptx.write_bytes(ptx.read_bytes()[:-1])
    outcome = cli("cache verify")
    assert outcome.code == 1
    assert "1 damaged" in outcome.out
    assert "cutegen: error: 1 of 1 cache entries are damaged" in outcome.err
    assert cli("cache list").out == "the cache is empty\n"
    assert cli("cache info --json").json["quarantined"] == 1


def test_clear_leaves_nothing(
    small: Path, built: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(built / "cache", tmp_path / "cache")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    assert len(cli("cache clear --json").json["removed"]) == 1
    assert cli("cache list --json").json == {"entries": []}


def test_run_on_the_cpu_is_right(small: Path, cli: Cli) -> None:
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 40,72,48 --seed 7 --json")
    table = outcome.json
    assert outcome.code == 0
    assert (table["device"], table["problem"], table["seed"], table["ok"]) == ("cpu", [40, 72, 48], 7, True)
    assert table["first_wrong"] is None
    assert 0 < table["rel_error"] < 1e-3


def test_a_wrong_result_is_exit_1_and_says_where(small: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(*operands: Any, **options: Any) -> Outcome:
        right = expected_outcome(*operands, **options)
        right.result.value[3, 5] += 10
        return right

    monkeypatch.setattr(run_verb, "expected_outcome", shifted)
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 8,8,32 --json")
    assert (outcome.code, outcome.json["ok"]) == (1, False)
    assert (outcome.json["first_wrong"]["row"], outcome.json["first_wrong"]["column"]) == (3, 5)
    assert "1 of 64 elements are wrong; the first is (3, 5)" in outcome.error


def test_without_a_gpu_cuda_is_something_outside(small: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    outcome = cli(f"run {small} {ARCH} --device cuda")
    assert (outcome.code, outcome.out) == (3, "")
    assert "torch sees no GPU" in outcome.error


def test_a_problem_that_memory_cannot_hold(small: Path, cli: Cli) -> None:
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 2147483647,8,2147483647")
    assert outcome.code == 3
    assert outcome.error.startswith("out of memory")


@pytest.mark.gpu
def test_run_on_the_gpu_is_right(cli: Cli) -> None:
    outcome = cli("run sm80_hgemm_tn --device cuda --problem 1000,264,128 --json")
    assert (outcome.code, outcome.json["device"], outcome.json["ok"]) == (0, "cuda", True)
