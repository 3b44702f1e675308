"""Calls in programs of Inductor: into its memory, without the dispatcher, and what they compute and show stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._inductor.utils import fresh_cache, run_and_get_code  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.torch_ops import compiled, eager  # noqa: E402
from cutegen.torch_ops.compiled import plain, with_bias, with_terms  # noqa: E402
from tests.torch_ops.cases import half  # noqa: E402
from tests.torch_ops.exact import Exact, close  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
HALF = torch.float16
needs_a_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler for the CPU")


@pytest.fixture
def _executed(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        yield


@pytest.fixture
def _empty() -> Iterator[None]:
    torch._dynamo.reset()
    with fresh_cache():  # a program of an earlier run would be found
        yield
    torch._dynamo.reset()


W, BIAS, C = half(32, 64).T, half(32), half(16, 32)
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda a, out: (plain(a, W, "relu", out=out), Exact(a, W, activation="relu"))[1],
    "bias": lambda a, out: (with_bias(a, W, BIAS, None, out=out), Exact(a, W, BIAS))[1],
    "terms": lambda a, out: (
        with_terms(a, W, BIAS, C, ("bias", "c"), None, 0.5, 2.0, None, out=out),
        Exact(a, W, BIAS, c=C, alpha=0.5, beta=2.0),
    )[1],
}


@pytest.mark.dsl
@pytest.mark.usefixtures("_executed")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("graded", [False, True])
def test_each_function_writes_its_call_and_looks_it_up_from_the_second_on(
    name: str, graded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.set_grad_enabled(graded):
        for attempt in ("first", "again"):
            out = torch.full((16, 32), torch.nan, dtype=HALF)
            close(out, CALLS[name](half(16, 64), out), attempt)
            monkeypatch.setattr(eager, "resolved_tensors", None)  # nothing is resolved twice


@pytest.mark.dsl
@pytest.mark.usefixtures("_executed")
def test_an_address_that_the_known_kernel_cannot_take_is_computed_all_the_same() -> None:
    for begin in (0, 1):
        memory = half(16 * 64 + 1)
        a, out = memory[begin : begin + 16 * 64].view(16, 64), torch.full((16, 32), torch.nan, dtype=HALF)
        plain(a, W, None, out=out)
        close(out, Exact(a, W), f"from element {begin}")


def test_what_watches_the_dispatcher_sees_the_call() -> None:
    out = torch.empty(16, 32, dtype=HALF)
    with FlopCounterMode(display=False) as flops:
        plain(half(16, 64), W, None, out=out)
    assert flops.get_total_flops() == 2 * 16 * 32 * 64


COUNTED = """
import torch
from cutegen.torch_ops.compiled import plain
from torch.utils.flop_counter import FlopCounterMode  # after the ops, which cannot have registered with it
with FlopCounterMode(display=False) as flops:
    plain(torch.ones(16, 64), torch.ones(64, 32), None, out=torch.empty(16, 32))
print(flops.get_total_flops())
"""


def test_a_counter_that_is_imported_later_sees_the_call() -> None:
    found = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    assert int(found.stdout) == 2 * 16 * 32 * 64


def test_a_shared_address_is_refused() -> None:
    both = half(32, 32)
    with pytest.raises(cutegen.CutegenError, match="memory shared with a"):
        plain(both, half(32, 32), None, out=both)


def steps(x: Any, w: Any, bias: Any) -> Any:
    """Every function once, and an operand whose columns are contiguous although Inductor computes it."""
    x = cutegen.matmul(x, w.T, bias=bias, activation="gelu")
    y = cutegen.matmul((x.T * 2).T, w.T)
    return cutegen.matmul(y.sin(), w, residual=x, alpha=0.5, out_dtype=torch.float32)


@needs_a_compiler
@pytest.mark.slow
@pytest.mark.usefixtures("_empty")
@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_calls_the_functions_with_memory_of_its_own(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, bias = (
        torch.randn(*shape, generator=torch.Generator().manual_seed(1)) for shape in ((24, 16), (16, 16), (16,))
    )
    seen: list[Any] = []
    real = compiled.plain
    monkeypatch.setattr(compiled, "plain", lambda a, *b, out: (seen.append(a.stride()), real(a, *b, out=out)))
    program = torch.compile(steps, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        found, (code,) = run_and_get_code(program, x, w, bias)
        torch.testing.assert_close(found, steps(x, w, bias), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(program(x[:9], w, bias), steps(x[:9], w, bias), rtol=1e-4, atol=1e-4)
    assert [code.count(f"cutegen_compiled.{each.__name__}(") for each in (plain, with_bias, with_terms)] == [1, 1, 1]
    assert "torch.ops.cutegen" not in code
    assert seen == [(16, 1)] * 2  # (x.T * 2).T, as eager


@needs_a_compiler
@pytest.mark.slow
@pytest.mark.usefixtures("_empty")
def test_a_layers_training_calls_them_both_ways() -> None:
    layer = cutegen.Linear(16, 8)
    x = torch.randn(4, 16, requires_grad=True)
    found, codes = run_and_get_code(lambda: torch.compile(layer, fullgraph=True)(x).square().sum().backward())
    assert found is None
    assert sum("cutegen_compiled." in each for each in codes) == 2
    mine = [x.grad.clone(), *(each.grad.clone() for each in layer.parameters())]
    x.grad = None
    layer.zero_grad()
    layer(x).square().sum().backward()
    torch.testing.assert_close(mine, [x.grad, *(each.grad for each in layer.parameters())], rtol=1e-4, atol=1e-4)


@needs_a_compiler
@pytest.mark.slow
@pytest.mark.usefixtures("_empty")
def test_a_program_in_cpp_calls_the_op() -> None:
    x, w = torch.randn(4, 16), torch.randn(16, 8)
    with torch._inductor.config.patch(cpp_wrapper=True), torch.no_grad():
        program = torch.compile(lambda x: cutegen.matmul(x, w) + 1, fullgraph=True)
        found, codes = run_and_get_code(program, x)
    torch.testing.assert_close(found, x @ w + 1, rtol=1e-4, atol=1e-4)
    assert not any("cutegen_compiled" in each for each in codes)


SCRIPT = """
import torch, cutegen
layer = cutegen.Linear(16, 8).requires_grad_(False)
x = torch.ones(4, 16)
torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x))
from torch._dynamo.utils import counters
print(counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"] > 0)
"""


@needs_a_compiler
@pytest.mark.slow
def test_a_program_that_torch_kept_runs_in_another_process(tmp_path: Any) -> None:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    for hit in (False, True):
        found = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300
        )
        assert found.stdout == f"{hit}\n", found.stderr[-3000:]


ONCE = """
import torch, cutegen
from torch._dynamo.utils import counters
a, b, ends = torch.ones(4, 8), torch.ones(1, 8, 8), torch.tensor([4], dtype=torch.int32)
product = torch.compile(lambda a, b: cutegen.matmul(a, b), backend="eager", fullgraph=True)
groups = torch.compile(lambda a, b, offs: cutegen.grouped_mm(a, b, offs=offs), backend="eager", fullgraph=True)
for _ in range(2):
    product(a, b[0])
    groups(a, b, ends)
print(counters["stats"]["unique_graphs"])
"""


@pytest.mark.slow
def test_the_first_programs_of_a_process_are_compiled_once() -> None:
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", ONCE], capture_output=True, text=True, timeout=300)
    assert found.stdout == "2\n", found.stderr[-3000:]


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # torch's own, of its compilers and of a CUDA graph that it records empty
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_on_a_gpu_a_compiled_block_is_right_called_and_in_cuda_graphs(mode: str) -> None:
    model = torch.nn.Sequential(cutegen.Linear(256, 512, activation="silu"), cutegen.Linear(512, 256)).cuda().half()
    x = torch.randn(64, 256, device="cuda", dtype=HALF)
    program = torch.compile(model, mode=mode, fullgraph=True)
    with torch.no_grad():
        for rows in (64, 64, 64, 33):
            torch.testing.assert_close(program(x[:rows]).clone(), model(x[:rows]), rtol=0, atol=0)
