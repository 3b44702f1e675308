"""Real kernels on a real GPU: numbers against float64, streams, graphs, threads, other protocols, failures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

import cutegen
from cutegen.errors import DeviceError, OperandError
from cutegen.run import Kernel
from cutegen.run.call.storage import call_tensors
from cutegen.run.driver import load_driver
from cutegen.run.gpu.launch import GpuKernel
from cutegen.spec import GemmSpec, Operand, Problem
from cutegen.verify import Comparison, compare, float64_reference, random_operands
from tests.run.on_gpu import ON_A_GPU, in_threads

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU

MAJORS = [f"{a}{b}{c}" for a in "mk" for b in "nk" for c in "mn"]


@cache
def compiled(majors: str = "kkn", dtype: str = "f16", accumulator: str = "f32", align: int | None = None) -> Kernel:
    """A kernel whose spec leaves everything but the problem out."""
    a, b, c = (Operand(dtype, major, align) for major in majors)
    return cutegen.compile(GemmSpec(family="sm80", problem=Problem(a=a, b=b, c=c, accumulator=accumulator)))


def operands(kernel: Kernel, m: int, n: int, k: int, seed: int = 0, device: str = "cuda") -> tuple[Any, Any, Any]:
    return random_operands(kernel.contract, m, n, k, seed=seed, framework="torch", device=device)


def compared(kernel: Kernel, a: Any, b: Any, out: Any, accumulator: str = "f32") -> Comparison:
    return compare(out, float64_reference(a, b), dtype=kernel.contract.tensor("c").dtype, accumulator=accumulator)


@pytest.fixture
def slow_stream() -> Iterator[Any]:
    """A stream that is busy for some milliseconds: what is ordered after it wrongly comes before it."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
    yield stream
    torch.cuda.synchronize()


@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize(("dtype", "accumulator"), [("f16", "f32"), ("bf16", "f32"), ("f16", "f16")])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 1), (7, 8, 64), (64, 127, 257), (257, 1000, 7), (1000, 64, 1000), (127, 257, 4096), (4096, 1, 8)],
)
def test_right_against_float64(majors: str, dtype: str, accumulator: str, m: int, n: int, k: int) -> None:
    kernel = compiled(majors, dtype, accumulator)
    a, b, out = operands(kernel, m, n, k, seed=m * n + k)
    storage = call_tensors(kernel.contract)["c"].storage((m, n))
    whole = torch.as_strided(out, (storage.rows, storage.stride), (storage.stride, 1))
    assert kernel(a, b, out=out) is out
    comparison = compared(kernel, a, b, out, accumulator)
    assert comparison.ok, comparison
    assert bool(whole[:, storage.columns :].isnan().all()), "the padding of the result was written"


def test_fresh_result_has_padded_rows_where_it_must() -> None:
    kernel = compiled()
    a, b, _ = operands(kernel, 100, 33, 64)
    out = kernel(a, b)
    assert (out.shape, out.stride(), out.dtype, out.device) == ((100, 33), (40, 1), torch.float16, a.device)
    assert compared(kernel, a, b, out).ok


def test_strided_operands_of_a_larger_buffer() -> None:
    kernel = compiled()
    buffer = torch.randn(512, 1024, device="cuda").half()
    a, b, out = buffer[:300, 8:264], buffer[100:340, 512:768].t(), buffer[:300, 264:504]
    expected, untouched = float64_reference(a, b), buffer.clone()
    kernel(a, b, out=out)
    assert compare(out, expected, dtype="f16").ok
    untouched[:300, 264:504] = out
    assert torch.equal(buffer, untouched)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 8), (8, 0, 8), (5, 6, 0)])
def test_empty_problems(m: int, n: int, k: int) -> None:
    kernel = compiled()
    a, b, out = operands(kernel, m, n, k)
    kernel(a, b, out=out)
    assert out.tolist() == torch.zeros(m, n).tolist()


def test_current_stream_is_used(slow_stream: Any) -> None:
    kernel = compiled()
    a, b, out = operands(kernel, 256, 256, 256)
    fresh = torch.randn(256, 256, device="cuda").half()
    torch.cuda._sleep(1000)
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(slow_stream):
        a.copy_(fresh)
        kernel(a, b, out=out)
    slow_stream.synchronize()
    assert compared(kernel, fresh, b, out).ok


@pytest.mark.parametrize("spell", [lambda s: s, lambda s: s.cuda_stream, lambda s: SimpleNamespace(ptr=s.cuda_stream)])
def test_stream_of_the_caller(slow_stream: Any, spell: Any) -> None:
    kernel = compiled()
    a, b, _ = operands(kernel, 256, 256, 256)
    fresh = torch.randn(256, 256, device="cuda").half()
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(slow_stream):
        a.copy_(fresh)
    out = kernel(a, b, stream=spell(slow_stream))
    slow_stream.synchronize()
    assert compared(kernel, fresh, b, out).ok


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("given_out", [True, False])
def test_graph_capture_and_replay(warm: bool, given_out: bool) -> None:
    """Not warm: the very first call of a freshly opened kernel happens while a graph is captured."""
    kernel = Kernel.open(compiled().artifact.path)
    a, b, out = operands(kernel, 300, 200, 136, seed=1)
    if warm:
        kernel(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = kernel(a, b, out=out if given_out else None)
    for seed in (2, 3):
        new_a, new_b, _ = operands(kernel, 300, 200, 136, seed=seed)
        a.copy_(new_a)
        b.copy_(new_b)
        result.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert compared(kernel, new_a, new_b, result).ok


def test_graph_with_k_zero() -> None:
    kernel = compiled()
    a, b, out = operands(kernel, 24, 40, 0)
    kernel(a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out)
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    assert not bool(out.any())


def test_a_graph_outlives_the_kernel() -> None:
    kernel = Kernel.open(compiled().artifact.path)
    a, b, out = operands(kernel, 128, 128, 128)
    kernel(a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out)
    del kernel
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    assert compared(compiled(), a, b, out).ok


def test_threads_that_never_used_cuda() -> None:
    kernel = compiled()
    sets = [operands(kernel, 200 + 8 * index, 136, 64, seed=index) for index in range(8)]
    torch.cuda.synchronize()
    in_threads(kernel, sets)
    assert all(compared(kernel, a, b, out).ok for a, b, out in sets)


class CudaArray:
    """Speaks the CUDA array interface only; not even the device is named."""

    def __init__(self, tensor: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class DlpackArray:
    """Speaks DLPack only."""

    def __init__(self, tensor: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@pytest.mark.parametrize("protocol", [CudaArray, DlpackArray])
def test_other_protocols(protocol: Any) -> None:
    kernel = compiled()
    a, b, out = operands(kernel, 200, 136, 72)
    torch.cuda.synchronize()
    kernel(protocol(a), protocol(b), out=protocol(out))
    torch.cuda.synchronize()
    assert compared(kernel, a, b, out).ok
    with pytest.raises(OperandError, match="operand out: found no array, with operands of"):
        kernel(protocol(a), protocol(b))


def test_bf16_through_dlpack() -> None:
    kernel = compiled("mnm", "bf16")
    a, b, out = operands(kernel, 200, 136, 72)
    torch.cuda.synchronize()
    kernel(DlpackArray(a), DlpackArray(b), out=DlpackArray(out))
    torch.cuda.synchronize()
    assert compared(kernel, a, b, out).ok


def test_operands_on_cpu_and_gpu() -> None:
    kernel = compiled()
    a, b, out = operands(kernel, 64, 64, 64)
    with pytest.raises(OperandError, match=r"operand b: found device cpu; expected cuda:0.*`b.to\(.cuda:0.\)`"):
        kernel(a, b.cpu(), out=out)


def test_cpu_and_gpu_agree() -> None:
    kernel = compiled()
    a, b, out = operands(kernel, 130, 66, 40)
    kernel(a, b, out=out)
    a_host, b_host, out_host = operands(kernel, 130, 66, 40, device="cpu")
    a_host.copy_(a)
    b_host.copy_(b)
    kernel(a_host, b_host, out=out_host)
    assert compare(out_host, float64_reference(a_host, b_host), dtype="f16").ok
    assert compared(kernel, a, b, out).ok


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_a_gpu_that_is_not_the_current_one() -> None:
    kernel = compiled()
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        a, b, out = operands(kernel, 200, 136, 72, device=device)
        torch.cuda.synchronize(device)
        kernel(a, b, out=out)
        torch.cuda.synchronize(device)
        assert compared(kernel, a, b, out).ok
        assert torch.cuda.current_device() == 0


def test_a_damaged_cubin_is_the_drivers_error() -> None:
    kernel = compiled()
    a, b, out = operands(kernel, 64, 64, 64)
    major, minor = torch.cuda.get_device_capability()
    broken = Kernel(kernel.artifact)
    broken._gpu = GpuKernel(kernel.contract, b"\x7fELF" + bytes(256), f"sm_{major}{minor}", load_driver)
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_\w+ \("):
        broken(a, b, out=out)
    kernel(a, b, out=out)
    assert compared(kernel, a, b, out).ok
