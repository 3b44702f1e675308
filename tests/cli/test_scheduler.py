"""`--scheduler`: kernels are built, and tuned, by the workers of a Dask cluster, whose caches are folders of their own.

The timer that stands in for a GPU's is a value of the job (`cutegen.tune.jobs.Timer`); all else is real.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from cutegen.build import Cache
from cutegen.build.pack_file import read_pack
from cutegen.tuned import store
from cutegen.tuned.record import Record
from tests.cli.commands import Cli
from tests.executors.clusters import cluster
from tests.tune.journals import counts_once, lines_of

SMALL = """
family = "sm80"
problem.a = { dtype = "f16", major = "k" }
problem.b = { dtype = "f16", major = "k" }
problem.c = { dtype = "f32", major = "n" }
tile.cta = [32, 32, 16]
"""
PROBLEMS = [(64 + 32 * n, 64, 256) for n in range(12)]
TUNE = "tune small.toml --problems problems.txt --most 2 --arch sm_80 --stand-in 0.12 --json"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("CUTEGEN_TUNED_DIR", str(tmp_path / "tuned"))
    Path("small.toml").write_text(SMALL)
    Path("problems.txt").write_text("".join(f"{m},{n},{k}\n" for m, n, k in PROBLEMS))


@pytest.mark.slow
def test_workers_build_and_artifacts_come_home(cli: Cli, tmp_path: Path) -> None:
    with cluster([tmp_path / f"worker{n}" for n in range(2)], gpu=False) as two:
        found = cli(f"build small.toml sm90_hgemm_tn --arch sm_80 --out artifacts --json --scheduler {two.address}")
        assert found.code == 2
        assert "sm90_hgemm_tn for sm_80" in found.err
        assert (Path("artifacts/small-sm_80/kernel.cubin")).exists()
        (entry,) = Cache(tmp_path / "home").entries()
        again = cli(f"build small.toml --arch sm_80 --json --scheduler {two.address}").json
        assert again["key"] == entry.key
        packed = cli(f"pack small.toml --arch sm_80 --out a.cutepack --scheduler {two.address}")
        assert packed.code == 0
        assert len(read_pack(Path("a.cutepack")).index.entries) == 1


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_loses_nothing(cli: Cli, tmp_path: Path) -> None:
    caches = [tmp_path / f"worker{n}" for n in range(3)]
    with cluster(caches, threads=2) as three:
        victim, at_kill = three.pids()[0], list[int]()

        def kill_in_the_middle() -> None:
            while (done := _lines(tmp_path / "tuned" / "unfinished")) < 3:
                time.sleep(0.02)
            three.kill(victim)
            at_kill.append(done)

        killer = threading.Thread(target=kill_in_the_middle)
        killer.start()
        found = cli(f"{TUNE} --scheduler {three.address}")
        killer.join()
    assert found.code == 0, found.err
    assert 3 <= at_kill[0] < len(PROBLEMS), "it was in the middle"
    answer = json.loads(found.out)
    assert (len(answer["results"]), answer["failures"], answer["resumed"]) == (len(PROBLEMS), [], 0)
    (journal,) = (tmp_path / "tuned" / "unfinished").glob("finished-*.jsonl")
    assert counts_once(journal)
    results = dict(lines_of(journal))
    assert sorted(tuple(each["problem"].values())[:3] for each in results.values()) == PROBLEMS
    for each in results.values():
        times = {result["name"]: result["graph"]["median_us"] for result in each["results"]}
        favorite = each["results"][0]["name"]  # kept if the other is faster by less than the margin
        assert each["winner"] == (favorite if each["tie"] else min(times, key=times.__getitem__))
    records = [record for _, record in store.every() if isinstance(record, Record)]
    assert sorted(tuple(each.evidence.problem.extents.values()) for each in records) == PROBLEMS
    assert all(len(each.evidence.candidates) == 2 for each in records)
    keys = {result["key"] for each in results.values() for result in each["results"]}
    assert {entry.key for entry in Cache(tmp_path / "home").entries()} == keys
    for cache in map(Cache, (tmp_path / "home", *caches)):
        assert cache.verify() == ()


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("[!f.]*.jsonl"))


@pytest.mark.parametrize(
    "verb", ["build small.toml", "build small.toml small.toml --arch 80,90", "pack small.toml -o a.cutepack", TUNE]
)
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            "--scheduler nonsense",
            3,
            "missing port number in address 'nonsense'; expected an address such as tcp://10.0",
        ),
        ("--scheduler nonsense --jobs 2", 2, "--jobs: found 2 together with --scheduler"),
    ],
)
def test_a_scheduler_that_cannot_be_used_is_one_line(verb: str, options: str, code: int, said: str, cli: Cli) -> None:
    found = cli(f"{verb} {options}")
    assert (found.code, found.out) == (code, "")
    assert said in found.error
    assert sorted(os.listdir()) == ["problems.txt", "small.toml"]
    assert not Path("../tuned").exists()


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_one_line(cli: Cli) -> None:
    found = cli(f"{TUNE} --scheduler tcp://127.0.0.1:9")
    assert (found.code, found.out) == (3, "")
    assert "not reached within 5 s" in found.error
