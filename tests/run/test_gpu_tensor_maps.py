"""Tensor maps and persistent CTAs on a real GPU: what the driver encodes, and what a kernel reads and writes by it.

The kernel is PTX, which the driver compiles: neither the DSL nor a toolkit is needed.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from cutegen.contract.launch import LaunchContract
from cutegen.errors import DeviceError
from cutegen.run import Kernel
from cutegen.run.driver import load_driver
from cutegen.run.gpu import launch
from tests.run.sum_by_maps import CONTRACT, PTX, expected

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9,
        reason="no GPU of compute capability 9.0 or later",
    ),
]


def opened(artifact: Any, contract: LaunchContract = CONTRACT) -> Kernel:
    major, minor = torch.cuda.get_device_capability()
    made = artifact(contract, gpu_arch=f"sm_{major}{minor}", ptx=PTX)
    made.cubin = PTX.encode() + b"\0"  # cuLibraryLoadData takes either
    return Kernel(made)


@pytest.fixture
def kernel(artifact: Any) -> Kernel:
    return opened(artifact)


def operands(extent: int, batch: int | None = None, seed: int = 0) -> tuple[Any, Any, Any]:
    """Compact matrices, C poisoned."""
    generator = torch.Generator("cuda").manual_seed(seed)
    shape = (extent, extent) if batch is None else (batch, extent, extent)
    a, b = (torch.randn(shape, generator=generator, device="cuda").half() for _ in range(2))
    return a, b.transpose(-1, -2), torch.full(shape, torch.nan, dtype=torch.float16, device="cuda")


@pytest.mark.parametrize("extent", [8, 64, 72, 136, 1000, 2048])
@pytest.mark.parametrize("batch", [None, 1, 3])
def test_every_element_is_written_edges_included(kernel: Kernel, extent: int, batch: int | None) -> None:
    """2048 is 1024 tiles, more than any GPU has multiprocessors."""
    a, b, out = operands(extent, batch)
    kernel(a, b, out=out)
    assert torch.equal(out, expected(a, b))


@pytest.mark.parametrize("how", ["one matrix", "expanded"])
def test_a_shared_operand_has_the_batch_stride_0(kernel: Kernel, how: str) -> None:
    """The Driver API asks for multiples of 16 only; whether the driver takes 0 for an extent of 5 is seen here."""
    a, b, out = operands(136, 5)
    shared = b[0] if how == "one matrix" else b[:1].expand(5, -1, -1)
    kernel(a, shared, out=out)
    assert torch.equal(out, expected(a, b[:1]))


def test_matrices_that_lie_row_by_row_between_each_other(kernel: Kernel) -> None:
    """The stride between matrices is less than that between rows."""
    a, b, _ = operands(72, 3)
    rows, out = a.transpose(0, 1).contiguous().transpose(0, 1), torch.empty_like(a)
    assert rows.stride() == (72, 3 * 72, 1)
    kernel(rows, b, out=out)
    assert torch.equal(out, expected(a, b))


def test_padding_and_neighbors_are_not_written(kernel: Kernel) -> None:
    a, b, _ = operands(72)
    wide, padded = torch.full((80, 96), torch.nan, device="cuda").half(), torch.zeros(80, 88, device="cuda").half()
    wide[8:, 16:88] = a
    kernel(wide[8:, 16:88], b, out=padded[4:76, 8:80])
    assert torch.equal(padded[4:76, 8:80], expected(a, b))
    padded[4:76, 8:80] = 0
    assert not padded.any()


def test_k_zero(kernel: Kernel) -> None:
    out = torch.full((64, 64), torch.nan, device="cuda").half()
    a, b = torch.empty(64, 0, device="cuda").half(), torch.empty(0, 64, device="cuda").half()
    assert a.data_ptr() == 0
    kernel(a, b, out=out)  # any one element of the result may be read in place of an empty matrix's
    torch.cuda.synchronize()
    assert not out[1:, 1:].any()


def test_more_addresses_than_are_kept(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_REMEMBERED_ADDRESSES", 3)
    calls = [operands(72, seed=seed) for seed in range(8)]
    for _ in range(3):
        for a, b, out in calls:
            kernel(a, b, out=out)
    for a, b, out in calls:
        assert torch.equal(out, expected(a, b))


def test_a_thread_that_never_used_cuda(kernel: Kernel) -> None:
    """It has no current context, and the driver makes no tensor map without one."""
    a, b, out = operands(136)
    stream = torch.cuda.current_stream().cuda_stream
    thread = threading.Thread(target=kernel, args=(a, b), kwargs={"out": out, "stream": stream})
    thread.start()
    thread.join()
    assert torch.equal(out, expected(a, b))


def test_a_graph_keeps_its_maps(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_REMEMBERED_ADDRESSES", 1)
    a, b, out = operands(136)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out)
    other_a, other_b, other_out = operands(136, seed=1)
    kernel(other_a, other_b, out=other_out)
    a.copy_(other_a)
    out.fill_(torch.nan)
    graph.replay()
    assert torch.equal(out, expected(other_a, b))
    assert torch.equal(other_out, expected(other_a, other_b))


def test_a_refused_map_names_operand_and_fields(artifact: Any) -> None:
    """A row of the box is wider than the swizzle: the Driver API forbids it."""
    wide = replace(CONTRACT, maps=(CONTRACT.maps[0], replace(CONTRACT.maps[1], box=(128, 64)), CONTRACT.maps[2]))
    a, b, out = operands(136)
    found = f"cuTensorMapEncodeTiled for operand b at {b.data_ptr():#x} with TensorMapFields(dtype='f16', extents=(136,"
    with pytest.raises(DeviceError, match=re.escape(found) + ".*CUDA_ERROR_INVALID_VALUE"):
        opened(artifact, wide)(a, b, out=out)


def test_the_driver_knows_its_multiprocessors() -> None:
    found = load_driver().attribute("MULTIPROCESSOR_COUNT", 0)
    assert found == torch.cuda.get_device_properties(0).multi_processor_count
