"""Two GPUs in one process: tensors decide where a call runs, whichever GPU is the current one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
from cutegen.errors import OperandError  # noqa: E402
from tests.torch_ops.cases import check_gradients  # noqa: E402
from tests.torch_ops.exact import Exact, close  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
HALF = torch.float16
GPUS = ("cuda:0", "cuda:1")
SHAPES = ((64, 256, 128), (16, 512, 4096))
"""M, N, K; of the second K is split, with a workspace for each GPU."""


@pytest.fixture(autouse=True, params=[0, 1], ids=["current 0", "current 1"])
def current(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.cuda.device(request.param):
        yield
        assert torch.cuda.current_device() == request.param


def operands(gpu: str, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    a, w = torch.randn(m, k, dtype=HALF, device=gpu), torch.randn(n, k, dtype=HALF, device=gpu)
    return a, w, torch.randn(n, dtype=HALF, device=gpu)


def test_calls_run_where_their_tensors_are() -> None:
    for shape in SHAPES:
        for turn in range(6):  # in turns, so that what is remembered for one GPU meets the other
            gpu = GPUS[turn % 2]
            a, w, bias = operands(gpu, *shape)
            out = cutegen.matmul(a, w.T, bias=bias, activation="gelu")
            assert str(out.device) == gpu
            close(out, Exact(a, w.T, bias, "gelu"), f"{gpu}, {shape}, {turn}")
            given = torch.full_like(out, float("nan"))
            assert cutegen.matmul(a, w.T, bias=bias, activation="gelu", out=given) is given
            assert torch.equal(given, out)
            close(cutegen.matmul(a, w.T, alpha=0.5), Exact(a, w.T, alpha=0.5), "alpha")


def test_a_layer_and_its_copy_give_the_same_bits_on_each_gpu() -> None:
    with torch.no_grad():
        layer = cutegen.Linear(256, 128, activation="silu", dtype=HALF, device=GPUS[0])
        other = copy.deepcopy(layer).to(GPUS[1])
        for _ in range(3):
            x = torch.randn(5, 7, 256, dtype=HALF, device=GPUS[0])
            found, elsewhere = layer(x), other(x.to(GPUS[1]))
            assert (str(found.device), str(elsewhere.device)) == GPUS
            assert torch.equal(found, elsewhere.to(GPUS[0]))


@pytest.mark.parametrize("gpu", GPUS)
def test_gradients_on_each(gpu: str) -> None:
    check_gradients(gpu, "tn", "gelu", bias=True, shape=(64, 128, 96))


@pytest.mark.parametrize("gpu", GPUS)
def test_a_kernel_of_compile_serves_both(gpu: str) -> None:
    kernel = cutegen.compile("sm80_hgemm_tn")
    a, w, _ = operands(gpu, 64, 128, 96)
    for _ in range(2):
        close(kernel(a, w.T), Exact(a, w.T), gpu)


@pytest.mark.parametrize("gpu", GPUS)
def test_a_stream_of_the_tensors_gpu_orders_a_call(gpu: str) -> None:
    a, b = torch.zeros(256, 256, dtype=HALF, device=gpu), torch.eye(256, dtype=HALF, device=gpu)
    cutegen.matmul(a, b)
    side = torch.cuda.Stream(gpu)
    side.wait_stream(torch.cuda.current_stream(gpu))
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        a.fill_(3.0)
        out = cutegen.matmul(a, b)
    side.synchronize()
    assert (out == 3).all()


@pytest.mark.parametrize("gpu", GPUS)
def test_a_graph_is_captured_and_replayed_on_each(gpu: str) -> None:
    with torch.cuda.device(gpu):  # torch captures on the current GPU
        a, w, bias = operands(gpu, *SHAPES[1])
        cutegen.matmul(a, w.T, bias=bias, activation="gelu")
        graph = torch.cuda.CUDAGraph()
        # Its own stream: the one that torch makes for all captures belongs to the GPU of the first.
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(gpu)):
            out = cutegen.matmul(a, w.T, bias=bias, activation="gelu")
        a.copy_(torch.randn_like(a))
        graph.replay()
        torch.cuda.synchronize()
        close(out, Exact(a, w.T, bias, "gelu"), gpu)


def test_operands_on_two_gpus_are_refused_each_time() -> None:
    a, w, bias = operands(GPUS[0], *SHAPES[0])
    cutegen.matmul(a, w.T, bias=bias)
    for _ in range(2):
        with pytest.raises(OperandError, match=r"operand b: found device cuda:1; expected cuda:0.*`b\.to"):
            cutegen.matmul(a, w.T.to(GPUS[1]), bias=bias)
        with pytest.raises(OperandError, match=r"operand bias: found device cuda:1"):
            cutegen.matmul(a, w.T, bias=bias.to(GPUS[1]))
        with pytest.raises(OperandError, match=r"operand out: found device cuda:1"):
            cutegen.matmul(a, w.T, out=torch.empty(64, 256, dtype=HALF, device=GPUS[1]))


def test_a_thread_for_each_gpu() -> None:
    wrong: list[str] = []

    def work(gpu: str) -> None:
        for turn in range(50):
            a, w, bias = operands(gpu, *SHAPES[turn % 2])
            worst = (cutegen.matmul(a, w.T, bias=bias).double() - (a.double() @ w.double().T + bias)).abs().max()
            if not worst < 0.5:
                wrong.append(f"{gpu}, {turn}: {worst}")

    threads = [threading.Thread(target=work, args=(gpu,)) for gpu in GPUS * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
