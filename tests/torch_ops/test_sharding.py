"""Two processes, on CPU tensors or on two GPUs: tensor parallel by columns and rows, and FSDP2."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.house.documents import ROOT

torch = pytest.importorskip("torch")


def run_both(device: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "tests.torch_ops.shards"]
    them = [
        subprocess.Popen([*command, str(rank), str(port), device], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [one.communicate(timeout=120)[1] for one in them]  # of both, before either is judged
    for one, errors in zip(them, said, strict=True):
        assert one.returncode == 0, errors


@pytest.mark.slow
def test_sharded_layers_and_calls_compute_what_the_whole_ones_do() -> None:
    run_both("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU for each process")
def test_layers_that_are_sharded_over_two_gpus_compute_what_the_whole_ones_do() -> None:
    run_both("cuda")
