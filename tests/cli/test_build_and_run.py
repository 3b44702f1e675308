"""build, run and cache, for real: kernels are compiled once for the whole file, then found, run and damaged."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutegen.build import Digest, Manifest, open_artifact
from cutegen.build.tables import build_lines, build_table
from cutegen.cli import run as run_verb
from cutegen.verify import Outcome, expected_outcome
from cutegen.verify import trial as trials
from cutegen.verify.counts import LaunchCounts, count_launch
from tests.cli.commands import Cli

pytestmark = pytest.mark.dsl

SPEC = """
family = "sm80"
problem.a = { dtype = "f16", major = "k" }
problem.b = { dtype = "f16", major = "k" }
problem.c = { dtype = "f16", major = "n" }
tile = { cta = [64, 64, 32], stages = 2 }
"""
FUSED = f"""{SPEC}
problem.bias = {{ dtype = "f32" }}
epilogue = {{ ops = ["bias_n", "aux", "gelu_tanh"] }}
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


@pytest.fixture
def own_cache(small: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the cache, to be spoilt."""
    shutil.copytree(built / "cache", tmp_path / "cache")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


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


@pytest.mark.slow
def test_a_build_for_a_target_whose_tensor_cores_are_not_used_says_so(small: Path, own_cache: Path, cli: Cli) -> None:
    said = "tcgen05, which the tensor cores of sm_100 are made for, is not used: torch is likely faster"
    assert said in cli(f"build {small} --arch b200").out.splitlines()
    assert cli(f"build {small} --arch b200 --json").json["remarks"] == [said]
    both = f"build {small} --arch sm_80,b200"
    assert cli(both).out.splitlines().count(said) == 1
    assert [x["remarks"] for x in cli(f"{both} --json").json["kernels"]] == [[], [said]]


def test_the_artifact_holds_the_plan_that_is_printed(small: Path, cli: Cli) -> None:
    path = Path(cli(f"build {small} {ARCH} --json").json["path"])
    printed = cli(f"plan {small} {ARCH} --json").json
    assert printed.pop("schema") == 1
    assert printed.pop("key_costs") == []
    assert json.loads((path / "plan.json").read_text()) == printed


def test_a_build_that_cannot_be_kept_names_no_path(small: Path, cli: Cli) -> None:
    """Its folder is removed when the process ends."""
    kept = open_artifact(cli(f"build {small} {ARCH} --json").json["path"])
    made = replace(kept, lasts=False)
    assert build_table(made, "sm_80", None)["path"] is None
    text = "\n".join(build_lines(made, "a kernel", None, with_source=False))
    assert str(kept.path) not in text
    assert "none: the cache cannot be written; --out FOLDER keeps the kernel" in text


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
    assert cli("cache verify --json").json == {"schema": 1, "checked": 1, "damaged": []}
    assert cli("cache path").out.strip() == cli("cache info --json").json["path"]
    assert cli("cache prune --json").json == {"schema": 1, "removed": [], "bytes": 0, "failures": []}


def test_damage_is_found_and_told(own_cache: Path, cli: Cli) -> None:
    (ptx,) = own_cache.glob("*/*/kernel.ptx")
    ptx.write_bytes(ptx.read_bytes()[:-1])
    outcome = cli("cache verify")
    assert outcome.code == 1
    assert "1 damaged" in outcome.out
    assert "cutegen: error: 1 of 1 cache entries are damaged" in outcome.err
    assert cli("cache list").out == "the cache is empty\n"
    assert cli("cache info --json").json["quarantined"] == 1


def test_clear_leaves_nothing(own_cache: Path, cli: Cli) -> None:
    assert len(cli("cache clear --json").json["removed"]) == 1
    assert cli("cache list --json").json == {"schema": 1, "entries": []}


def test_run_on_the_cpu_is_right(small: Path, cli: Cli) -> None:
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 40,72,48 --seed 7 --json")
    table = outcome.json
    assert outcome.code == 0
    assert (table["device"], table["problem"], table["seed"], table["ok"]) == ("cpu", [40, 72, 48], 7, True)
    assert table["first_wrong"] is None
    assert 0 < table["rel_error"] < 1e-3


def test_a_run_passes_what_the_epilogue_asks_for_and_checks_aux(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fused := tmp_path / "fused.toml").write_text(FUSED)
    arguments = f"run {fused} {ARCH} --device cpu --problem 40,24,48 --json"
    table = cli(arguments).json
    assert (table["ok"], table["aux"]["ok"]) == (True, True)

    def shifted(*operands: Any, **options: Any) -> Outcome:
        right = expected_outcome(*operands, **options)
        assert right.aux is not None
        right.aux.value[7, 3] += 10
        return right

    monkeypatch.setattr(trials, "expected_outcome", shifted)
    outcome = cli(arguments)
    assert (outcome.code, outcome.json["ok"], outcome.json["aux"]["ok"]) == (1, True, False)
    assert "elements of aux are wrong; the first is (7, 3)" in outcome.error


def test_a_wrong_result_is_exit_1_and_says_where(small: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(*operands: Any, **options: Any) -> Outcome:
        right = expected_outcome(*operands, **options)
        right.result.value[3, 5] += 10
        return right

    monkeypatch.setattr(trials, "expected_outcome", shifted)
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 8,8,32 --json")
    assert (outcome.code, outcome.json["ok"]) == (1, False)
    assert (outcome.json["first_wrong"]["row"], outcome.json["first_wrong"]["column"]) == (3, 5)
    # PTX ISA, m16n8k16: row 3, column 5 is c1 of lane 4 * 3 + 5 // 2.
    assert "1 of 64 elements are wrong; the first is (3, 5)" in outcome.error
    assert "computed by thread 14, tCrC(1,0,0), of CTA (0,0)" in outcome.error
    assert {key: outcome.json["first_wrong"][key] for key in ("cta", "block", "thread", "value", "register")} == {
        "cta": [0, 0],
        "block": 0,
        "thread": 14,
        "value": [1, 0, 0],
        "register": "tCrC(1,0,0)",
    }


def doctored(cache: Path, change: Callable[[str], str]) -> None:
    """Change the PTX of the only entry, and its digests, so that it is taken for what was compiled."""
    (ptx,) = cache.glob("*/*/kernel.ptx")
    changed = change(ptx.read_text())
    assert changed != ptx.read_text()
    manifest = Manifest.from_bytes((ptx.parent / "manifest.json").read_bytes())
    files = {**manifest.files, ptx.name: Digest.of(changed.encode())}
    ptx.write_text(changed)
    (ptx.parent / "manifest.json").write_bytes(replace(manifest, files=files).to_bytes())


def second_ldmatrix_reads_the_first(ptx: str) -> str:
    """The prologue's first two ldmatrix are A's, for rows 0 to 31 and 32 to 63 of the tile."""
    first, second, *_ = re.finditer(r"ldmatrix\S+ \{[^}]*\}, (\[[^]]*\]);", ptx)
    return ptx[: second.start(1)] + first[1] + ptx[second.end(1) :]


def a_barrier_is_missing(ptx: str) -> str:
    return ptx.replace("bar.sync", "// bar.sync", 1)


def test_one_wrong_address_in_the_ptx_is_found_and_its_register_named(small: Path, own_cache: Path, cli: Cli) -> None:
    doctored(own_cache, second_ldmatrix_reads_the_first)
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 64,64,64 --json")
    assert (outcome.code, outcome.json["as_predicted"]) == (1, True)
    wrong = outcome.json["first_wrong"]
    assert (wrong["row"], wrong["column"], wrong["thread"], wrong["value"]) == (32, 0, 0, [0, 1, 0])
    assert "computed by thread 0, tCrC(0,1,0), of CTA (0,0), blockIdx.x 0" in outcome.error


def test_a_missing_barrier_is_an_error_with_its_line(small: Path, own_cache: Path, cli: Cli) -> None:
    doctored(own_cache, a_barrier_is_missing)
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 64,64,64")
    assert (outcome.code, outcome.out) == (1, "")
    assert re.match(r"line \d+: ", outcome.error)


def test_counts_stand_beside_the_plans(small: Path, cli: Cli) -> None:
    sentence = f"run {small} {ARCH} --device cpu --strict"
    table = cli(f"{sentence} --json").json
    assert (table["problem"], table["policy"], table["jobs"], table["as_predicted"]) == (
        [128, 128, 96],
        "in-order",
        1,
        True,
    )
    planned = cli(f"plan {small} {ARCH} --json").json["wavefronts"]
    for key, count in table["wavefronts"].items():
        assert count["measured"] == count["predicted"] > 0
        times = {"g2s": 4 * 3, "s2r": 4 * 3.5, "epilogue": 4}[key.split(".")[0]]
        assert count["predicted"] == planned[key]["predicted"] * times
    assert table["executed"]["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]["measured"] == 128 * 128 * 96 // 2048
    assert sum(table["sectors"][f"g2s.{x}"]["measured"] for x in "ab") == 2 * 2 * 128 * 96 * 2 // 32
    text = cli(sentence).out
    assert re.search(r"s2r\.a +896 +896  64 x 4 CTAs x \(3 \+ 1/2\) k-tiles", text)


@pytest.mark.parametrize("strict", [False, True])
def test_other_counts_are_a_warning_or_an_error(
    strict: bool, small: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_more(*arguments: Any) -> LaunchCounts:
        right = count_launch(*arguments)
        loads = right.wavefronts["s2r.b"]
        return replace(right, wavefronts={**right.wavefronts, "s2r.b": replace(loads, measured=loads.measured + 1)})

    monkeypatch.setattr(trials, "count_launch", one_more)
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 64,64,32" + " --strict" * strict)
    assert outcome.code == (1 if strict else 0)
    assert outcome.err.startswith("cutegen: error: " if strict else "cutegen: warning: ")
    assert "wavefronts s2r.b: 97 measured, 96 predicted" in outcome.err
    assert "97  differs: 64 x 1 CTA x (1 + 1/2) k-tiles" in outcome.out


def test_orders_and_jobs_give_the_same(small: Path, cli: Cli) -> None:
    sentence = f"run {small} {ARCH} --device cpu --problem 70,72,40 --json"
    expected = cli(sentence).json
    for options, policy, jobs in [("--policy random:5", "random:5", 1), ("--policy reversed --jobs 2", "reversed", 2)]:
        found = cli(f"{sentence} {options}").json
        assert (found["policy"], found["jobs"]) == (policy, jobs)
        assert {**found, "policy": "in-order", "jobs": 1} == expected


def test_a_limit_of_steps_ends_a_run(small: Path, cli: Cli) -> None:
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 64,64,32 --max-steps 100")
    assert (outcome.code, outcome.out) == (1, "")
    assert "step limit" in outcome.error


def test_what_would_take_hours_is_refused_before_anything_is_built(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "new.toml").write_text(SPEC)
    outcome = cli(f"run {tmp_path / 'new.toml'} {ARCH} --device cpu --problem 20000,20000,20000 --jobs 1")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.match(r"--problem: found 20000,20000,20000, about [\d.]+ hours on the CPU with 1 job; ", outcome.error)
    assert "--problem 128,128,96 takes seconds" in outcome.error


def test_what_takes_minutes_is_announced(small: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_verb, "LONG_S", 0.0)
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 8,8,32")
    assert outcome.code == 0
    assert re.match(r"cutegen: note: --problem 8,8,32 takes about \d+ minutes on the CPU", outcome.err)


def test_orders_are_the_cpus(small: Path, cli: Cli) -> None:
    pytest.importorskip("torch")
    outcome = cli(f"run {small} {ARCH} --device cuda --policy reversed --jobs 2")
    assert outcome.code == 2
    assert outcome.error == "--policy, --jobs: found with a run on a GPU; expected --device cpu"


def test_without_a_gpu_cuda_is_something_outside(small: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    outcome = cli(f"run {small} {ARCH} --device cuda")
    assert (outcome.code, outcome.out) == (3, "")
    assert "torch sees no GPU" in outcome.error


def test_a_problem_that_memory_cannot_hold(small: Path, cli: Cli) -> None:
    outcome = cli(f"run {small} {ARCH} --device cpu --problem 2147352576,8,2147352576 --yes")
    assert outcome.code == 3
    assert outcome.err.splitlines()[-1].startswith("cutegen: error: out of memory")


@pytest.mark.gpu
def test_run_on_the_gpu_is_right(cli: Cli) -> None:
    outcome = cli("run sm80_hgemm_tn --device cuda --problem 1000,264,128 --json")
    assert (outcome.code, outcome.json["device"], outcome.json["ok"]) == (0, "cuda", True)
