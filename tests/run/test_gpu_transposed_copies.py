"""Transposed copies of B on a GPU: streams, graphs, memory. Results against float64."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import cutegen
from cutegen.errors import OperandError
from cutegen.run import Kernel, kept_copies
from cutegen.verify import compare, float64_reference, random_operands
from tests.run.on_gpu import ON_A_GPU

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU


@cache
def compiled() -> Kernel:
    return cutegen.compile(cutegen.load_spec("double_buffer_128x128x32"))


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    kept_copies.clear()
    yield
    torch.cuda.synchronize()
    kept_copies.clear()


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[Any, Any, Any]:
    return random_operands(compiled().contract, m, n, k, seed=seed, framework="torch", device="cuda")


def right(a: Any, b: Any, out: Any) -> bool:
    return bool(compare(out, float64_reference(a, b), dtype="f16").ok)


@pytest.mark.parametrize("problem", [(1, 1, 1), (257, 129, 97), (1000, 1016, 520), (4096, 64, 8)], ids=str)
def test_right_before_and_after_a_change(problem: tuple[int, int, int]) -> None:
    a, b, out = operands(*problem)
    for _ in range(3):
        compiled()(a, b, out=out)
        compiled()(a, b, out=out)
        assert right(a, b, out)
        b.mul_(-1.5)
    assert len(kept_copies.entries) == 1


def test_another_stream_waits_for_the_copy() -> None:
    a, b, out = operands(512, 2048, 2048)
    torch.cuda.synchronize()
    slow, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(slow):
        torch.cuda._sleep(50_000_000)
        compiled()(a, b, out=torch.empty_like(out))
    with torch.cuda.stream(other):
        compiled()(a, b, out=out)
    torch.cuda.synchronize()
    assert right(a, b, out)


def test_a_stream_by_its_handle() -> None:
    a, b, out = operands(256, 512, 256)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for _ in range(2):
        compiled()(a, b, out=out, stream=stream.cuda_stream)
    stream.synchronize()
    assert right(a, b, out)


def test_memory_of_a_copy_is_not_reused_while_another_stream_reads_it() -> None:
    a, b, out = operands(256, 4096, 4096)
    compiled()(a, b, out=torch.empty_like(out))
    torch.cuda.synchronize()
    expected, other = float64_reference(a, b), torch.cuda.Stream()
    with torch.cuda.stream(other):
        torch.cuda._sleep(50_000_000)
        compiled()(a, b, out=out)
    size = kept_copies.held_bytes
    kept_copies.clear()
    junk = [torch.full((size // 2,), 7.0, dtype=torch.float16, device="cuda") for _ in range(4)]
    torch.cuda.synchronize()
    assert compare(out, expected, dtype="f16").ok
    assert len(junk) == 4


@pytest.mark.parametrize("warm", [True, False])
def test_a_captured_graph_sees_what_b_holds_at_each_replay(warm: bool) -> None:
    a, b, out = operands(300, 200, 136)
    compiled()(a, operands(300, 200, 136)[1], out=out)
    if warm:
        compiled()(a, b, out=out)
    torch.cuda.synchronize()
    kept = len(kept_copies.entries)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compiled()(a, b, out=out)
    assert len(kept_copies.entries) == kept
    kept_copies.clear()
    for seed in (2, 3):
        _, fresh, _ = operands(300, 200, 136, seed=seed)
        b.copy_(fresh)
        out.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert right(a, fresh, out)


def test_a_copy_is_released_with_its_tensor() -> None:
    a, b, out = operands(128, 2048, 2048)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    compiled()(a, b, out=out)
    assert torch.cuda.memory_allocated() == before + kept_copies.held_bytes
    held = b.untyped_storage().nbytes()
    del b
    gc.collect()
    assert len(kept_copies.entries) == 0
    assert torch.cuda.memory_allocated() <= before - held


def test_a_result_that_becomes_b() -> None:
    """Written by a kernel, which torch does not see: by a first call, and by one that is known from before."""
    a, b, _ = operands(256, 256, 256)
    middle, out = torch.empty_like(b), torch.empty(256, 256, dtype=torch.float16, device="cuda").t()
    to_n_major = cutegen.compile(cutegen.load_spec("sm80_hgemm_tn"))
    left, right_operand = a.t().contiguous(), b.t().contiguous().t()
    for _ in range(3):
        to_n_major(left, right_operand, out=middle)
        compiled()(a, middle, out=out)
        torch.cuda.synchronize()
        assert right(a, middle, out)
        left.mul_(-0.5)


def test_another_librarys_array_is_refused() -> None:
    a, b, out = operands(64, 64, 64)

    class CudaArray:
        __cuda_array_interface__ = b.__cuda_array_interface__

    with pytest.raises(OperandError, match="does not report changes"):
        compiled()(a, CudaArray(), out=out)
