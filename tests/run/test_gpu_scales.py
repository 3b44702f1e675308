"""Scales and both biases on a real GPU, in every family, against float64."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import cutegen
from cutegen.run import Kernel
from tests.run.against_float64 import check
from tests.run.on_gpu import ON_A_GPU, made
from tests.run.scales import CASES

torch = pytest.importorskip("torch")
pytestmark = ON_A_GPU


@cache
def compiled(name: str) -> Kernel:
    return cutegen.compile(CASES[name])


def as_one(extras: dict[str, Any]) -> dict[str, Any]:
    """The first element of each scale, as a tensor of no extent."""
    return {**extras, **{name: value[0] for name, value in extras.items() if name.startswith("scale")}}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 127, 33), (257, 1000, 80), (512, 2048, 1040)])
def test_right_against_float64(name: str, m: int, n: int, k: int) -> None:
    kernel = compiled(name)
    a, b, out, extras = made(kernel, m, n, k)
    check(kernel, a, b, out, extras)
    check(kernel, a, b, out, as_one(extras))


def test_a_captured_call_reads_a_scale_anew() -> None:
    """A scale is memory of the device: what is written there later counts, without the host."""
    kernel = compiled("sm90_e4m3")
    a, b, out, extras = made(kernel, 128, 256, 128)
    extras = as_one(extras)
    kernel(a, b, out=out, **extras)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out=out, **extras)
    extras["scale_m"].fill_(3.0)
    out.zero_()
    graph.replay()
    replayed = out.clone()
    check(kernel, a, b, out, extras)
    assert torch.equal(out, replayed)
