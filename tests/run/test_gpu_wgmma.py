"""Family sm90 on a real GPU, against float64: edges, batches, streams of tiles, graph capture."""

from __future__ import annotations

from functools import cache

import pytest

import cutegen
from cutegen.run import Kernel
from cutegen.verify import compare, expected_outcome
from tests.run.against_float64 import check
from tests.run.on_gpu import ON_A_GPU, made
from tests.run.wgmma import CASES

torch = pytest.importorskip("torch")
pytestmark = [
    *ON_A_GPU,
    pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="no wgmma"),
]
EDGES = [(1, 1, 1), (7, 127, 33), (127, 7, 8), (128, 64, 64), (257, 1000, 0), (1000, 257, 1000), (4096, 2048, 520)]


@cache
def compiled(name: str) -> Kernel:
    return cutegen.compile(CASES[name])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("m", "n", "k"), EDGES)
def test_right_against_float64(name: str, m: int, n: int, k: int) -> None:
    kernel = compiled(name)
    check(kernel, *made(kernel, m, n, k))


@pytest.mark.parametrize("name", ["tn", "nt", "c_from_registers", "fused"])
@pytest.mark.parametrize("batch", [1, 5, 300])
def test_batches(name: str, batch: int) -> None:
    """Matrices side by side; A or B the same for all of them, a stride of 0 in its tensor map."""
    kernel = compiled(name)
    a, b, out, extras = made(kernel, 136, 80, 72, batch)
    check(kernel, a, b, out, extras)
    check(kernel, a[0], b, out, extras)
    check(kernel, a, b[0], out, extras)


def test_nothing_is_written_outside_of_c() -> None:
    kernel = compiled("tn")
    a, b, _, _ = made(kernel, 200, 136, 72)
    around = torch.full((202, 160), 7.0, dtype=torch.float16, device="cuda")
    check(kernel, a, b, around[1:201, 8:144], {})
    outside = torch.ones_like(around, dtype=torch.bool)
    outside[1:201, 8:144] = False
    assert (around[outside] == 7).all()


def test_in_a_graph() -> None:
    kernel = compiled("tn")
    a, b, out, _ = made(kernel, 640, 768, 256)
    check(kernel, a, b, out, {})
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out)
    a.copy_(torch.randn_like(a))
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    expected = expected_outcome(kernel.contract, a, b, {}, accumulator="f32")
    assert compare(out, expected.result, dtype="f16").ok


def test_many_tiles_for_each_cta() -> None:
    """More rounds of the pipeline than a barrier's phase can be mistaken for, launched back to back."""
    kernel = compiled("tn")
    a, b, out, extras = made(kernel, 6400, 6400, 96)
    for _ in range(5):
        kernel(a, b, out=out)
    check(kernel, a, b, out, extras)
