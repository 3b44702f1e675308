"""Programmatic launches on a GPU: a chain of kernels, each of which reads what the one before wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutegen.api import compile_gemm
from cutegen.spec import Schedule, Tile
from tests.plan.specs import gemm

LAYERS, REPLAYS = 6, 5


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
@pytest.mark.parametrize(("rows", "width"), [(64, 512), (16, 2048), (1000, 1000)])
def test_each_kernel_of_a_chain_reads_what_the_one_before_wrote(
    cluster: tuple[int, int], rows: int, width: int
) -> None:
    import torch

    spec = replace(
        gemm(), family="sm90", tile=Tile((64, 64, 64)), schedule=Schedule(programmatic=True, cluster=cluster)
    )
    kernel = compile_gemm(spec, "sm_90")
    new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16)  # noqa: E731
    weights = [new(width, width).T / width**0.5 for _ in range(LAYERS)]
    values = [new(rows, width), *(new(rows, width) for _ in range(LAYERS))]

    def chain() -> None:
        for index, weight in enumerate(weights):
            kernel(values[index], weight, out=values[index + 1])

    for index in range(LAYERS):
        kernel(values[index], weights[index], out=values[index + 1])
        torch.cuda.synchronize()
    expected: list[Any] = [each.clone() for each in values]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for each in values[1:]:
            each.fill_(float("nan"))
        for _ in range(3):
            chain()
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(*pair) for pair in zip(values, expected, strict=True))
