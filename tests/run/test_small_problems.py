"""Small problems, executed: K shorter than the stages, tiles at C's edge, one row or column of tiles and more."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Mma, Operand, Problem, Tile
from cutegen.verify import compare, float64_reference, random_operands

pytestmark = pytest.mark.dsl
ROW = Operand("f16", "k")
POISON = 0x7E00


def kernel_of(tile: tuple[int, int, int], warps: tuple[int, int, int], stages: int, kernels: Cache) -> Kernel:
    problem = Problem(a=ROW, b=ROW, c=Operand("f16", "n"), accumulator="f32")
    spec = GemmSpec(family="sm80", problem=problem, tile=Tile(tile, stages), mma=Mma(atom_layout=warps))
    return Kernel.open(build(build_request(replace(spec, name="small"), "sm_80"), kernels).path)


@pytest.mark.parametrize("shape", [(24, 24, 56), (40, 40, 24), (8, 72, 130), (33, 21, 300), (16, 32, 8)], ids=str)
@pytest.mark.parametrize(
    ("tile", "warps", "stages"),
    [((16, 32, 64), (1, 4, 1), 6), ((16, 32, 64), (1, 4, 1), 1), ((32, 64, 32), (2, 2, 1), 4)],
    ids=["C from registers", "one stage", "C through shared memory"],
)
def test_k_tiles_and_edges_that_are_not_whole(
    shape: tuple[int, int, int], tile: tuple[int, int, int], warps: tuple[int, int, int], stages: int, kernels: Cache
) -> None:
    """Nothing undefined is read, which the executor refuses, and nothing is written beside C."""
    kernel, (m, n, k) = kernel_of(tile, warps, stages, kernels), shape
    a, b, _ = random_operands(kernel.contract, m, n, k, seed=random.getrandbits(31))
    padded = np.full((m + 1, (n + 15) // 8 * 8), POISON, np.uint16).view(np.float16)
    out = padded[:m, :n]
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype="f16").ok
    beside = padded.view(np.uint16).copy()
    beside[:m, :n] = POISON
    assert (beside == POISON).all()


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_few_rows_are_multiplied_by_what_was_chosen_for_them(element: str, kernels: Cache) -> None:
    """Parts of C of 8 columns. A chosen kernel is refused where the assembler waits for each wgmma: bf16's once was."""
    row, (m, n, k) = Operand(element, "k"), (184, 32, 760)
    problem = Problem(a=row, b=row, c=Operand(element, "n"), accumulator="f32")
    request = build_request(GemmSpec(family="sm90", problem=problem, name="few"), "sm_90", problem=(m, n, k))
    assert "CTA_M, CTA_N, CTA_K = 64, 8, 256" in request.source.text
    kernel = Kernel.open(build(request, kernels).path)
    a, b, out = random_operands(kernel.contract, m, n, k, seed=random.getrandbits(31))
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype=element).ok
