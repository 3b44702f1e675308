"""Kernels whose K is split, on a real GPU: numbers, bits from run to run, streams, threads, graphs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import cutegen
from cutegen.run import Kernel
from cutegen.spec import Tile
from cutegen.verify import random_extras, random_operands
from tests.run import wgmma
from tests.run.against_float64 import expected, hold
from tests.run.epilogues import spec
from tests.run.on_gpu import ON_A_GPU, in_threads
from tests.run.split_k import CASES, split

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU

PLAIN = "plain_split_3"
LARGE = {
    "large": split(spec("large", tile=Tile(cta=(128, 128, 64), stages=3)), 8),
    "shared": wgmma.spec("shared", cta=(128, 128, 64), stages=4, split_k=8),
    "cluster": wgmma.spec("cluster", cta=(128, 128, 64), stages=4, split_k=8, cluster=(2, 1, 2)),
}
"""One whose last CTA adds a tile's slices, and two whose CTAs share that."""
large = pytest.mark.parametrize("name", LARGE)


@cache
def compiled(name: str) -> Kernel:
    if name in LARGE and LARGE[name].family == "sm90" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("no wgmma")
    return cutegen.compile(LARGE.get(name) or CASES[name])


def operands(kernel: Kernel, m: int, n: int, k: int, seed: int = 0, batch: int | None = None) -> tuple[Any, Any, Any]:
    return random_operands(kernel.contract, m, n, k, seed=seed, batch=batch, framework="torch", device="cuda")


def check(kernel: Kernel, a: Any, b: Any, out: Any, extras: dict[str, Any] | None = None) -> None:
    """Hold what was written against float64, as soon as it is there."""
    torch.cuda.synchronize()
    hold(kernel, out, extras or {}, expected(kernel, a, b, extras or {}))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(33, 40, 200), (1, 1, 1), (5, 9, 0), (64, 257, 4097), (1000, 1016, 520)])
def test_right_against_float64(name: str, m: int, n: int, k: int, batch: int | None) -> None:
    kernel = compiled(name)
    a, b, out = operands(kernel, m, n, k, seed=m + n + k, batch=batch)
    extras = random_extras(kernel.contract, m, n, seed=1, batch=batch, framework="torch", device="cuda")
    kernel(a, b, out=out, **extras)
    check(kernel, a, b, out, extras)


@large
def test_every_run_has_the_same_bits(name: str) -> None:
    kernel = compiled(name)
    a, b, first = operands(kernel, 512, 640, 16384)
    kernel(a, b, out=first)
    check(kernel, a, b, first)
    for _ in range(200):
        assert torch.equal(kernel(a, b), first)


@large
def test_one_workspace_serves_problems_of_every_size_in_turn(name: str) -> None:
    kernel = compiled(name)
    sets = [operands(kernel, m, n, 2048, seed=m) for m, n in ((128, 128), (1024, 1024), (40, 24), (512, 2048))]
    for _ in range(5):
        for a, b, out in sets:
            out.fill_(torch.nan)
            kernel(a, b, out=out)
    for a, b, out in sets:
        check(kernel, a, b, out)


@large
def test_streams_at_once(name: str) -> None:
    """Launches that want more CTAs than the GPU holds: some begin when others of their tile have gone."""
    kernel = compiled(name)
    streams = [torch.cuda.Stream() for _ in range(8)]
    sets = [operands(kernel, 256, 256, 4096, seed=index) for index in range(8)]
    torch.cuda.synchronize()
    for _ in range(50):
        for stream, (a, b, out) in zip(streams, sets, strict=True):
            kernel(a, b, out=out, stream=stream)
    for a, b, out in sets:
        check(kernel, a, b, out)


@large
def test_threads_at_once(name: str) -> None:
    """All on the default stream, with sizes that outgrow each other's workspace."""
    kernel = compiled(name)
    sets = [operands(kernel, 128 * (index + 1), 256, 1024, seed=index) for index in range(8)]
    torch.cuda.synchronize()
    in_threads(kernel, sets)
    for a, b, out in sets:
        check(kernel, a, b, out)


@large
@pytest.mark.parametrize("warm", [True, False])
def test_a_graph_has_a_workspace_of_its_own(name: str, warm: bool) -> None:
    """Replayed on one stream while the kernel is called on another."""
    kernel = Kernel.open(compiled(name).artifact.path)
    a, b, out = operands(kernel, 512, 512, 2048, seed=1)
    other_a, other_b, other = operands(kernel, 512, 512, 2048, seed=2)
    if warm:
        kernel(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out)
        kernel(a, b, out=out)
    out.fill_(torch.nan)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(50):
        graph.replay()
        kernel(other_a, other_b, out=other, stream=side)
    check(kernel, a, b, out)
    check(kernel, other_a, other_b, other)


def test_more_streams_than_are_remembered() -> None:
    kernel = compiled(PLAIN)
    a, b, out = operands(kernel, 64, 64, 512)
    for _ in range(80):
        out.fill_(torch.nan)
        stream = torch.cuda.ExternalStream(_new_stream())
        stream.wait_stream(torch.cuda.current_stream())
        kernel(a, b, out=out, stream=stream)
        stream.synchronize()
        check(kernel, a, b, out)


def _new_stream() -> int:
    """Torch hands out 32 streams in turn; the driver makes new ones."""
    from cutegen.run.driver import load_driver

    return int(load_driver().call("cuStreamCreate", 1))


@large
def test_a_quick_call_uses_the_workspace_too(name: str) -> None:
    kernel = compiled(name)
    a, b, out = operands(kernel, 256, 256, 2048)
    for _ in range(3):
        out.fill_(torch.nan)
        kernel(a, b, out=out)
        check(kernel, a, b, out)


def test_atomics_add_to_zeros() -> None:
    kernel = compiled("added_split_3")
    a, b, _ = operands(kernel, 200, 104, 4096, batch=2)
    buffer = torch.full((2, 203, 112), torch.nan, device="cuda")
    for _ in range(3):
        kernel(a, b, out=buffer[:, :200, :104])
        check(kernel, a, b, buffer[:, :200, :104])
    assert bool(buffer[:, 200:].isnan().all())
    assert bool(buffer[:, :, 104:].isnan().all())
