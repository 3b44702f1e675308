"""Family sm120 on a real GPU, against float64: edges, batches, broadcast, streams of tiles, graph capture."""

from __future__ import annotations

from functools import cache

import pytest

import cutegen
from cutegen.run import Kernel
from cutegen.spec import Operand, Tile, load_spec
from cutegen.verify import compare, expected_outcome
from tests.run.against_float64 import check
from tests.run.bulk import CASES, spec
from tests.run.on_gpu import ON_A_GPU, made

torch = pytest.importorskip("torch")
pytestmark = [
    *ON_A_GPU,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="no bulk tensor copies"
    ),
]
SHIPPED = ("sm120_hgemm_tn",)
EDGES = [(1, 1, 1), (7, 127, 33), (127, 7, 8), (64, 64, 32), (257, 1000, 0), (1000, 257, 1000), (4096, 2048, 520)]


@cache
def compiled(name: str) -> Kernel:
    return cutegen.compile(CASES[name] if name in CASES else load_spec(name))


@pytest.mark.parametrize("name", [*CASES, *SHIPPED])
@pytest.mark.parametrize(("m", "n", "k"), EDGES)
def test_right_against_float64(name: str, m: int, n: int, k: int) -> None:
    kernel = compiled(name)
    check(kernel, *made(kernel, m, n, k))


@pytest.mark.parametrize("name", ["tn", "tt", "c_from_registers", "blas", *SHIPPED])
@pytest.mark.parametrize("batch", [1, 5, 300])
def test_batches(name: str, batch: int) -> None:
    """Matrices side by side; A or B the same for all of them, a stride of 0 in its tensor map."""
    kernel = compiled(name)
    a, b, out, extras = made(kernel, 72, 80, 40, batch)
    check(kernel, a, b, out, extras)
    check(kernel, a[0], b, out, extras)
    check(kernel, a, b[0], out, extras)


@pytest.mark.parametrize("name", ["tn", *SHIPPED])
def test_nothing_is_written_outside_of_c(name: str) -> None:
    kernel = compiled(name)
    a, b, _, _ = made(kernel, 200, 136, 72)
    around = torch.full((202, 160), 7.0, dtype=torch.float16, device="cuda")
    check(kernel, a, b, around[1:201, 8:144], {})
    outside = torch.ones_like(around, dtype=torch.bool)
    outside[1:201, 8:144] = False
    assert (around[outside] == 7).all()


@pytest.mark.parametrize("name", ["tn", *SHIPPED])
def test_a_call_again_and_in_a_graph(name: str) -> None:
    """Maps are made for addresses: another operand needs another, the same one the same, and a graph keeps its own."""
    kernel = compiled(name)
    operands = [made(kernel, 640, 768, 256)[:3] for _ in range(3)]
    for _ in range(2):
        for a, b, out in operands:
            out.fill_(torch.nan)
            check(kernel, a, b, out, {})
    a, b, out = operands[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out)
    for other in operands[1:]:
        kernel(other[0], other[1], out=other[2])
    a.copy_(torch.randn_like(a))
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    expected = expected_outcome(kernel.contract, a, b, {}, accumulator="f32")
    assert compare(out, expected.result, dtype="f16").ok


def test_many_tiles_for_each_cta() -> None:
    """More rounds of the pipeline than a barrier's phase can be mistaken for."""
    kernel = compiled("tn")
    check(kernel, *made(kernel, 6400, 6400, 96))


@pytest.mark.parametrize(("tile", "stages"), [((128, 256, 64), 4), ((128, 128, 64), 3), ((64, 64, 64), 3)])
@pytest.mark.parametrize("k", [640, 4096])
def test_copies_do_not_overtake_loads_that_queue_behind_stores(tile: tuple[int, int, int], stages: int, k: int) -> None:
    """C leaves one element a store. Such kernels without the fence were wrong, in up to every launch (docs/ptx.md)."""
    kernel = cutegen.compile(spec("scalars", "knn", c=Operand("f32", "n", 4), tile=Tile(tile, stages)))
    a, b, out, extras = made(kernel, 2048, 5120, k)
    check(kernel, a, b, out, extras)
    right = out.clone()
    for _ in range(20):
        out.fill_(torch.nan)
        kernel(a, b, out=out)
        assert torch.equal(out, right)
