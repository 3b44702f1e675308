"""The proof can fail: each way to spoil a right plan is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import ComposedLayout, Layout, Swizzle, TiledMma, tile_to_shape
from cutegen.errors import ProofError
from cutegen.hardware import ldmatrix_atom, universal_atom
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.scheduler import Grid, TileOrder, Tiles
from cutegen.plan.prove import prove
from cutegen.plan.values.copies import vector_copy
from cutegen.spec import S2r, S2rCopy, Smem, SmemLayout, Tile, load_spec
from tests.plan.changed import moved, with_path, with_region
from tests.plan.specs import gemm

TILE = Tile(cta=(128, 128, 64), stages=3)


def right() -> GemmPlan:
    return plan(gemm("kkn", tile=TILE), "sm_80")


def with_a(found: GemmPlan, **fields: Any) -> GemmPlan:
    return with_path(found, "a", **fields)


def smem_layout(layout: Any, stages: int = 3) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        return with_a(found, smem=replace(found.a.smem, layout=tile_to_shape(layout, (128, 64, stages))))

    return spoil


def smem_of_c(layout: Any) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        assert found.epilogue.smem is not None
        return replace(found, epilogue=replace(found.epilogue, smem=replace(found.epilogue.smem, layout=layout)))

    return spoil


def threads(shape: tuple[int, int], stride: tuple[int, int], bits: int = 128) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        return with_a(found, g2s=vector_copy(found.a.g2s.atom, bits, Layout(shape, stride), 1, 16))

    return spoil


def ldmatrix(matrices: int, *, transpose: bool) -> Callable[[GemmPlan], GemmPlan]:
    def spoil(found: GemmPlan) -> GemmPlan:
        return with_a(found, s2r=replace(found.a.s2r, atom=ldmatrix_atom(matrices, transpose=transpose)))

    return spoil


class Twice(TileOrder):
    """An order that has every tile, and the first one once more."""

    def tiles(self, grid: Grid, numbers: Tiles | None = None) -> tuple[Tiles, Tiles]:
        tile_m, tile_n = super().tiles(grid, numbers)
        return np.append(tile_m, tile_m[:1]), np.append(tile_n, tile_n[:1])


SPOILED: dict[str, tuple[Callable[[GemmPlan], GemmPlan], str]] = {
    "padded past its bytes": (smem_layout(Layout((128, 64), (72, 1))), "reaches past"),
    "two elements at one offset": (smem_layout(Layout((128, 64), (56, 1))), "two elements"),
    "one stage too few": (smem_layout(Layout((8, 64), (64, 1)), stages=2), "does not hold"),
    "contiguous along m": (smem_layout(Layout((64, 8), (1, 64))), "not contiguous"),
    "rows of 8 bytes": (smem_layout(ComposedLayout(Swizzle(3, 2, 3), Layout((8, 64), (64, 1)))), "not contiguous"),
    "fewer threads": (threads((8, 8), (8, 1)), "uses 64 of 128 threads"),
    "threads past the tile": (threads((8, 16), (16, 1)), "exactly once"),
    "narrower than it says": (lambda p: with_a(p, g2s=replace(p.a.g2s, bits=64)), "claims 64 bits"),
    "a vector across k": (
        lambda p: with_a(p, g2s=replace(p.a.g2s, values=Layout((8, 1)), threads=Layout((2, 64), (1, 2)))),
        "along the contiguous mode",
    ),
    "less aligned": (lambda p: with_a(p, align_bytes=8), "aligned"),
    "another tile": (lambda p: with_a(p, tile=(64, 64)), "does not match the CTA tile"),
    "transposed": (ldmatrix(4, transpose=True), "lies 64 elements apart|contiguous"),
    "a permutation that does not divide the tile": (
        lambda p: replace(p, mma=replace(p.mma, tiled_mma=TiledMma(p.atom, Layout((2, 2, 1)), (96, 32, 16)))),
        "leaves out|every element",
    ),
    "B begins within A": (
        lambda p: moved(p, b=-128),
        "of a overlaps that of b",
    ),
    "B unaligned": (
        lambda p: moved(p, b=8),
        "of b does not begin at a multiple of 16 bytes",
    ),
    "too few bytes": (lambda p: with_region(p, "b", bytes=p.b.smem.bytes - 1), "of b are too few"),
    "a launch with fewer bytes": (
        lambda p: replace(p, launch=replace(p.launch, dynamic_smem_bytes=p.smem_bytes - 128)),
        "a launch would differ",
    ),
    "a launch with fewer threads": (
        lambda p: replace(p, launch=replace(p.launch, threads=64)),
        "a launch would differ",
    ),
    "a smaller target": (
        lambda p: replace(p, target=replace(p.target, smem_per_cta_bytes=p.smem_bytes - 1)),
        "does not fit the target",
    ),
    "A read by descriptor": (
        lambda p: with_a(p, s2r=plan(load_spec("sm90_hgemm_tn"), "sm_90").a.s2r),
        "a is in shared memory, and the MMA reads registers",
    ),
    "C at one offset": (smem_of_c(Layout((128, 128), (64, 1))), "two elements"),
    "C past its bytes": (smem_of_c(Layout((128, 128), (136, 1))), "reaches past"),
    "C column-major": (smem_of_c(Layout((128, 128))), "not contiguous"),
    "C stored wider than aligned": (
        lambda p: replace(p, epilogue=replace(p.epilogue, align_bytes=8)),
        "copies more bytes than are aligned",
    ),
    "a role of more threads than its tiled MMA": (
        lambda p: replace(p, mma=replace(p.mma, role=replace(p.mma.role, threads=2 * p.mma.role.threads))),
        "128 threads multiply, mma has 256 and the tiled MMA 128",
    ),
    "a tile that comes twice": (
        lambda p: replace(p, scheduler=replace(p.scheduler, order=Twice("n", 8, False))),
        "the order of tiles leaves one out, or has one twice",
    ),
    "C staged and never stored": (lambda p: replace(p, epilogue=replace(p.epilogue, store=None)), "without stores"),
}


def test_the_plan_as_it_is() -> None:
    prove(right())


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_plan_is_noticed(name: str) -> None:
    spoil, reason = SPOILED[name]
    spoiled = spoil(right())
    with pytest.raises(ProofError, match=reason):
        prove(spoiled)


def test_more_matrices_than_values_are_noticed() -> None:
    found = plan(gemm(tile=TILE, s2r=S2r(b=S2rCopy("SM75_U32x1_LDSM_N"))), "sm_80")
    mma = replace(found.mma, tiled_mma=TiledMma(found.atom, Layout((2, 2, 1)), (32, 16, 16)))  # V = 4 for B
    four = replace(found.b.s2r, atom=ldmatrix_atom(4, transpose=False))
    spoiled = with_path(replace(found, mma=mma), "b", s2r=four)
    with pytest.raises(ProofError, match="4 values do not fill"):
        prove(spoiled)


def test_plain_loads_are_proved_too() -> None:
    found = plan(gemm(tile=TILE, smem=Smem(a=SmemLayout(pad=4))), "sm_80")
    assert found.a.s2r.bits == 32
    wide = replace(found.a.s2r, atom=universal_atom(64), bits=64)
    with pytest.raises(ProofError, match="loads that are not contiguous"):
        prove(with_a(found, s2r=wide))
