"""What a cluster is refused for once its workers have answered, or have lost what a job needs; without Dask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cutegen.build import Cache
from cutegen.errors import DeviceError, WorkerError
from cutegen.executors import cluster
from cutegen.executors.remote_job import ANSWERED, Lacking, identity, pack

ADDRESS = "tcp://127.0.0.1:1"
Connect = Callable[..., cluster.ClusterWorkers]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connect:
    """Workers that each have a GPU of the named products, and whose jobs all lack an artifact."""

    def connected(*products: str) -> cluster.ClusterWorkers:
        said = {f"worker {i}": (identity().parts, (name, "sm_90")) for i, name in enumerate(products)}
        client = SimpleNamespace(
            scheduler_info=lambda **_: {"workers": {name: {"resources": {"GPU": 1}, "nthreads": 1} for name in said}},
            run=lambda *_, **__: said,
            submit=lambda *_, **__: SimpleNamespace(result=lambda timeout: (ANSWERED, pack(Lacking(("gone",))))),
            close=lambda **_: None,
        )
        monkeypatch.setattr(cluster, "_client", lambda *_: client)
        return cluster.ClusterWorkers(ADDRESS, cache=Cache(tmp_path), gpu=True)

    return connected


def test_gpus_of_one_product_are_expected(connect: Connect) -> None:
    workers = connect("NVIDIA H200", "NVIDIA H200")
    assert (workers.product, workers.target, workers.gpus) == ("NVIDIA H200", "sm_90", 2)
    workers.close()
    with pytest.raises(DeviceError, match="found different GPUs, NVIDIA H200 at worker 0, NVIDIA H100 at worker 1"):
        connect("NVIDIA H200", "NVIDIA H100")


def test_an_artifact_that_neither_side_has_is_named_as_gone(connect: Connect) -> None:
    pytest.importorskip("distributed")
    workers = connect("NVIDIA H200")
    job: Any = workers.submit(len, (), needs=("gone",))
    with pytest.raises(WorkerError, match="an artifact that a job needs is gone"):
        job.result(timeout=30)
    workers.close()
