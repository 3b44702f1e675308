"""`--scheduler`: kernels are compiled by the workers of a Dask cluster, whose caches are folders of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutegen.build import Cache
from cutegen.build.pack_file import read_pack
from tests.cli.commands import Cli
from tests.executors.clusters import Cluster, cluster

SMALL = """
problem.a = { dtype = "f16", major = "k" }
problem.b = { dtype = "f16", major = "k" }
problem.c = { dtype = "f32", major = "n" }
tile.cta = [32, 32, 16]
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster([tmp_path_factory.mktemp("worker") for _ in range(2)], gpu=False) as found:
        yield found


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.slow
def test_workers_build_and_artifacts_come_home(
    two: Cluster, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "home"))
    Path("small.toml").write_text(SMALL)
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


@pytest.mark.parametrize(
    "verb", ["build small.toml", "build small.toml small.toml --arch 80,90", "pack small.toml -o a.cutepack"]
)
def test_a_scheduler_that_is_no_address(verb: str, cli: Cli) -> None:
    Path("small.toml").write_text(SMALL)
    found = cli(f"{verb} --scheduler nonsense")
    assert found.code == 3
    assert "missing port number in address 'nonsense'; expected an address such as tcp://10.0.0.1:8786" in found.error
    found = cli(f"{verb} --scheduler nonsense --jobs 2")
    assert (found.code, os.listdir()) == (2, ["small.toml"])
    assert "--jobs: found 2 together with --scheduler" in found.error
