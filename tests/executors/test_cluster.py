"""A real Dask cluster of three workers on this machine: what travels, who is refused, and what a lost worker costs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.errors import DeviceError, OutsideError, RequestError, WorkerError
from cutegen.executors import ClusterWorkers
from cutegen.executors import cluster as cluster_module
from cutegen.executors.remote_job import Identity, identity
from tests.executors import jobs
from tests.executors.clusters import Cluster, cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [tmp_path_factory.mktemp("worker") for _ in range(3)]


@pytest.fixture(scope="module")
def three(caches: list[Path]) -> Iterator[Cluster]:
    with cluster(caches) as found:
        yield found


@pytest.fixture
def workers(three: Cluster, tmp_path: Path) -> Iterator[ClusterWorkers]:
    found = ClusterWorkers(three.address, cache=Cache(tmp_path / "mine"), gpu=True)
    yield found
    found.close()


def test_jobs_are_spread_and_a_gpu_has_one_at_a_time(workers: ClusterWorkers, tmp_path: Path) -> None:
    assert workers.gpus == workers.threads == 3
    assert [each.result() for each in [workers.submit(jobs.square, n) for n in range(20)]] == [n * n for n in range(20)]
    futures = [workers.submit(jobs.busy, tmp_path, gpu=True) for _ in range(15)]
    assert [each.result() for each in as_completed(futures)] == [0] * 15
    assert len({workers.submit(jobs.sleeping, 0.0).result() for _ in range(3)}) <= 3


def test_an_error_of_cutegens_comes_back_in_its_words(workers: ClusterWorkers) -> None:
    with pytest.raises(RequestError, match=r"a\.toml: tile: found 7; expected 2"):
        workers.submit(jobs.failing, 7).result()


def test_artifacts_are_sent_along_where_the_folders_differ(
    workers: ClusterWorkers, kernels: Cache, caches: list[Path], tmp_path: Path
) -> None:
    mine = Cache(tmp_path / "mine")
    artifact = build(build_request("sm80_hgemm_tn", "sm_80"), kernels)
    mine.publish(artifact.content.sealed())
    assert all(Cache(folder).entries() == () for folder in caches)
    futures = [workers.submit(jobs.sizes_on_a_gpu, (artifact.key,), gpu=True, needs=(artifact.key,)) for _ in range(9)]
    assert [each.result() for each in futures] == [{artifact.key: len(artifact.cubin)}] * 9
    held = [folder for folder in caches if Cache(folder).holds(artifact.key)]
    assert held
    assert all(Cache(folder).verify() == () for folder in held)


def test_artifacts_come_home_where_the_folders_differ(
    three: Cluster, kernels: Cache, caches: list[Path], tmp_path: Path
) -> None:
    artifact = build(build_request("sm80_bf16_nn", "sm_80"), kernels)
    for folder in caches:  # as if each had compiled it
        Cache(folder).publish(artifact.content.sealed())
    home = Cache(tmp_path / "home")
    workers = ClusterWorkers(three.address, cache=home)
    assert workers.submit(jobs.itself, (artifact.key,), brings=jobs.told).result() == (artifact.key,)
    found = home.artifact(artifact.key)
    assert found is not None
    assert found.cubin == artifact.cubin
    with pytest.raises(OutsideError, match="artifact 000000000000 is gone after it was built"):
        workers.submit(jobs.itself, ("0" * 64,), brings=jobs.told).result()
    workers.close()


def test_nothing_is_sent_where_the_folder_is_one(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = build(build_request("sm80_hgemm_tn", "sm_80"), kernels)
    monkeypatch.setattr(cluster_module, "parcels", None)
    monkeypatch.setattr(cluster_module, "unpack", None)
    with cluster([kernels.directory]) as one:
        workers = ClusterWorkers(one.address, cache=kernels)
        keys = (artifact.key,)
        assert workers.submit(jobs.itself, keys, needs=keys, brings=jobs.told).result() == keys
        workers.close()


def test_a_worker_that_is_killed_loses_no_job(three: Cluster, workers: ClusterWorkers, tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    folder.mkdir()
    futures = [workers.submit(jobs.once, folder, str(n), 0.15, gpu=False) for n in range(24)]
    while len(list(folder.iterdir())) < 5:
        time.sleep(0.01)
    victim = next(iter(folder.iterdir())).name.split("-")[1]
    three.kill(int(victim))
    assert sorted(int(each.result()) for each in futures) == list(range(24))
    begun = [path.name.split("-")[0] for path in folder.iterdir()]
    assert len(begun) > 24, "what the killed worker had in hand was begun twice"


def test_another_version_is_refused_in_one_line(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    here = identity()
    monkeypatch.setattr(cluster_module, "identity", lambda: Identity(("cutegen 99", *here.parts[1:])))
    with pytest.raises(WorkerError) as caught:
        ClusterWorkers(three.address)
    assert f"found {here.parts[0]}; expected cutegen 99; install the same cutegen" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_worker_of_another_version_that_joins_later_is_refused_too(
    workers: ClusterWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = identity()
    monkeypatch.setattr(cluster_module, "identity", lambda: Identity((*here.parts[:-1], "nvidia-cutlass-dsl==99")))
    with pytest.raises(WorkerError, match=r"expected nvidia-cutlass-dsl==99; install the same cutegen and compiler"):
        workers.submit(jobs.square, 2).result()


def test_no_worker_with_a_gpu_and_no_worker_at_all(tmp_path: Path) -> None:
    with cluster([tmp_path], gpu=False) as one:
        with pytest.raises(DeviceError, match=r"found 1 worker, none with a GPU; start one for each: CUDA_VISIBLE"):
            ClusterWorkers(one.address, gpu=True, connect_s=0.3)
        ClusterWorkers(one.address).close()
    with (
        cluster([]) as none,
        pytest.raises(WorkerError, match=r"found no workers; start some: dask worker tcp://"),
    ):
        ClusterWorkers(none.address, connect_s=0.3)


def test_a_cluster_that_goes_away_is_told(tmp_path: Path) -> None:
    with cluster([tmp_path]) as one:
        workers = ClusterWorkers(one.address)
        future = workers.submit(jobs.sleeping, 60.0)
        time.sleep(0.3)
    error = future.exception(timeout=20)
    assert isinstance(error, WorkerError)
    assert "the connection was lost" in str(error)
    workers.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp://127.0.0.1:9", "not reached within 0.3 s: .*; start one with `dask scheduler`"),
        ("nonsense", "missing port number in address 'nonsense'; expected an address such as tcp://10.0.0.1:8786"),
        ("foo://a:1", "unknown address scheme 'foo'"),
    ],
)
def test_a_scheduler_that_is_not_there(address: str, said: str) -> None:
    begun = time.monotonic()
    with pytest.raises(WorkerError, match=said) as caught:
        ClusterWorkers(address, connect_s=0.3)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < 10


def test_without_the_extra_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(WorkerError, match=r"pip install 'cutegen\[tune\]'"):
        ClusterWorkers("tcp://127.0.0.1:8786")
