"""Which kernel of cutegen's multiplies a problem: chosen from M and N alone, before anything is measured."""

from __future__ import annotations

from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Operand, Problem, Tile
from cutegen.straight_line import compile as compile_spec
from cutegen.tune.suites import Extents

LEAST_TILES = 128
"""Fewer leave multiprocessors of an H200, which has 132, without work."""

TILES = (
    Tile((128, 256, 64)),
    Tile((128, 64, 64), stages=6),
    Tile((64, 64, 64), stages=8),
    Tile((16, 64, 64), stages=8),
)


def chosen(problem: Extents) -> Kernel:
    """The kernel for `problem`, f16 TN with f32 sums."""
    return compile_spec(spec_for(problem))


def spec_for(problem: Extents) -> GemmSpec:
    """The largest tile that C half fills at least and of which it has enough; the smallest, where there is none.

    >>> spec_for(Extents(1024, 1024, 1024)).tile.cta
    (128, 64, 64)
    """
    tile = next((tile for tile in TILES if _suits(tile, problem)), TILES[-1])
    row = Operand("f16", "k")
    operands = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
    return GemmSpec(family="sm90", problem=operands, tile=tile, name="choice")


def _suits(tile: Tile, problem: Extents) -> bool:
    assert tile.cta is not None
    m, n, _ = tile.cta
    return m < 2 * problem.m and -(-problem.m // m) * -(-problem.n // n) >= LEAST_TILES
