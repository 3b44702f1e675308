"""The generated file in a project of its own, as docs/stages.md shows: its call, its stream, a CUDA graph."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

import cutegen
from cutegen.errors import SpecError
from cutegen.verify import compare, float64_reference
from tests.house.documents import ROOT, fences

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.dsl

FILES = {fence.file: fence.text for fence in fences(ROOT / "docs" / "stages.md") if fence.file}
PERSISTENT = ("sm120_hgemm_tn", "sm90_hgemm_tn")
M, N, K = 328, 200, 136
STREAM = 0x7F12_3456_7890
Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Writes a file, and imports it; the files of a test find each other."""
    monkeypatch.syspath_prepend(tmp_path)
    names = {"gemm", *(Path(file).stem for file in FILES)}

    def write(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for name in names & sys.modules.keys():
        del sys.modules[name]


def test_the_page_calls_launch_with_its_parameters_in_order(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled object binds the page's arguments, and does not launch."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: MagicMock(cuda_stream=STREAM))
    for name in ("CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    load("gemm", cutegen.emit("sm80_hgemm_tn", "sm_80").text)
    own = load("own", FILES["own.py"])
    calls, compiled = [], own.gemm

    def bind(*arguments: Any) -> None:
        assert compiled.generate_execution_args(*arguments)
        calls.append(compiled.execution_args.bound_call_arguments(arguments, {}))

    own.gemm = bind
    page = load("graph", FILES["graph.py"].replace('"cuda"', '"cpu"'))
    assert len(calls) == 2
    for found in calls:
        assert [int(found.pop("stream")), *(found.pop(x)._pointer for x in "abc")] == [
            STREAM,
            *(x.data_ptr() for x in (page.a, page.b, page.c)),
        ]
        strides = {"lda": 512, "ldb": 512, "ldc": 128, "batch_stride_a": 0, "batch_stride_b": 0, "batch_stride_c": 0}
        assert found == {"m": 256, "n": 128, "k": 512, "batches": 1, **strides}


def text_of(name: str) -> str:
    """A shipped spec's kernel for the GPU of this machine."""
    try:
        return cutegen.emit(name).text
    except SpecError as error:
        if error.key != "family":
            raise
        pytest.skip(str(error))


def operands() -> tuple[Any, Any, Any]:
    """A and B that nobody has seen before, and a poisoned C."""
    a, b = (torch.randn(rows, K, device="cuda").to(torch.float16) for rows in (M, N))
    return a, b, torch.full((M, N), torch.nan, device="cuda", dtype=torch.float16)


def check(a: Any, b: Any, c: Any) -> None:
    torch.cuda.synchronize()
    found = compare(c, float64_reference(a, b.T), dtype="f16", accumulator="f32")
    assert found.ok, found


def on_a_slow_stream(call: Callable[[Any, Any, Any], None]) -> None:
    """A call whose inputs come late: a launch on any other stream would read what was there before."""
    new_a, new_b, c = operands()
    a, b = torch.zeros_like(new_a), torch.zeros_like(new_b)
    call(a, b, torch.zeros_like(c))  # loads the kernel
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        a.copy_(new_a)
        b.copy_(new_b)
        call(a, b, c)
        copied = c.clone()
    check(new_a, new_b, copied)


def in_a_graph(call: Callable[[Any, Any, Any], None]) -> None:
    """A captured call: nothing runs before the replays, and each reads what its operands then contain."""
    a, b, c = operands()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(a, b, c)
    torch.cuda.synchronize()
    assert c.isnan().all(), "the capture ran the kernel"
    for _ in range(3):
        for found, fresh in zip((a, b, c), operands(), strict=True):
            found.copy_(fresh)
        graph.replay()
        check(a, b, c)


@pytest.mark.gpu
def test_the_pages_files_run_on_a_side_stream_and_in_a_graph(load: Load) -> None:
    load("gemm", text_of("sm80_hgemm_tn"))
    own = load("own", FILES["own.py"])
    on_a_slow_stream(own.matmul)
    in_a_graph(own.matmul)
    page = load("graph", FILES["graph.py"])
    check(page.a, page.b, page.c)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PERSISTENT)
def test_persistent_kernels_do_too(name: str, load: Load) -> None:
    """Their host side also makes tensor maps."""
    from cuda.bindings import driver

    file = load("gemm", text_of(name))
    major, minor = torch.cuda.get_device_capability()
    compiled = file.compile_kernel(f"sm_{major}{minor}a")
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count

    def call(a: Any, b: Any, c: Any) -> None:
        addresses = file.pointers(a.data_ptr(), b.data_ptr(), c.data_ptr())
        strides = a.stride(0), b.stride(0), c.stride(0), 0, 0, 0
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        compiled(*addresses, M, N, K, *strides, 1, multiprocessors, stream)

    on_a_slow_stream(call)
    in_a_graph(call)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["sm80_hgemm_bias_gelu", "sm80_split_k_tn", "ldmatrix_probe", *PERSISTENT])
def test_a_file_checks_itself_on_a_side_stream(name: str, load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        load("gemm", text_of(name)).main()
    assert capsys.readouterr().out.startswith("thread 0, A: (0,0)" if "probe" in name else "c, 1008 x 1040 x 528")
