"""Swizzles that the DSL cannot share out, because the threads of a copy or of the MMA end within a period of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import ComposedLayout, Layout, TiledCopy, inner_layout, modes, offsets_2d, size, tile_to_shape
from cutegen.errors import CompileError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.values.copies import VectorCopy
from cutegen.spec import GemmSpec, Mma, Smem, SmemLayout, Tile
from tests.plan.kernels import Build
from tests.plan.specs import gemm
from tests.plan.test_executed import check_result

WARPS = {(3, 1, 1): (96, 96, 64), (1, 3, 1): (96, 96, 32), (5, 1, 1): (160, 80, 64), (7, 1, 1): (112, 112, 32)}


def odd(majors: str, dtype: str, warps: tuple[int, int, int], **parts: Any) -> GemmSpec:
    return gemm(majors, dtype, tile=Tile(cta=WARPS[warps], stages=2), mma=Mma(atom_layout=warps), **parts)


NOT_BUILT = {
    "rows of three warps": odd("kkn", "f16", (3, 1, 1)),
    "rows of four bytes": odd("kkm", "tf32", (7, 1, 1)),
    "C of f32, sums of f16": gemm(
        "mkm",
        "f16",
        "f16",
        c_dtype="f32",
        align=(4, 8, 4),
        tile=Tile(cta=(192, 96, 64)),
        mma=Mma(atom_layout=(3, 1, 1)),
    ),
}
"""Kernels that the compiler ended in, or aborted in, when only the tiled MMA was asked about the swizzle."""


@pytest.mark.dsl
@pytest.mark.parametrize("name", NOT_BUILT)
def test_kernels_of_an_odd_number_of_warps_are_built_and_right(name: str, built: Build) -> None:
    m, n, k = planned(NOT_BUILT[name]).cta_tile
    check_result(NOT_BUILT[name], built, "cpu", m + 8, n - 8, k + 8)


@pytest.mark.dsl
@pytest.mark.slow
def test_without_the_rule_the_compiler_finds_out(built: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TiledCopy, "shared_out", lambda *_: Layout(1))
    spec = odd("kkn", "f16", (5, 1, 1))
    assert [*swizzled(planned(spec))]
    with pytest.raises(CompileError):
        built(spec)


def planned(spec: GemmSpec) -> GemmPlan:
    found = plan(spec, "sm_90")
    assert isinstance(found, GemmPlan)
    return found


def swizzled(found: GemmPlan) -> Iterator[tuple[ComposedLayout, VectorCopy]]:
    """The swizzled tiles, each with the copy between it and global memory."""
    c = found.epilogue.smem, found.epilogue.store, found.cta_tile[:2]
    for smem, copy, extents in (*((x.smem, x.g2s, x.tile) for x in found.operands), c):
        tile = tile_to_shape(smem.chosen.atom, extents) if smem is not None else None
        if isinstance(tile, ComposedLayout):
            assert isinstance(copy, VectorCopy)
            yield tile, copy


@pytest.mark.parametrize(("majors", "dtype"), [*product(["kkn", "mnn", "mkm", "knn"], ["f16", "tf32", "s8"])])
@pytest.mark.parametrize("warps", WARPS)
def test_what_threads_copy_at_once_is_whole_periods_or_divides_one(
    majors: str, dtype: str, warps: tuple[int, int, int]
) -> None:
    """By the offsets themselves: from a grid's first element to the next one's, along modes where these are alike."""
    for tile, copy in swizzled(planned(odd(majors, dtype, warps))):
        period = 1 << (tile.outer.bits + tile.outer.base + tile.outer.shift)
        offsets = offsets_2d(inner_layout(tile))
        grid = [size(part) * size(value) for part, value in zip(modes(copy.threads), modes(copy.values), strict=True)]
        for mode, step in enumerate(grid):
            firsts = np.take(offsets, range(0, offsets.shape[mode], step), axis=mode)
            apart = np.unique(np.diff(firsts, axis=mode))
            assert len(apart) != 1 or apart[0] % period == 0 or period % apart[0] == 0, (tile, copy.threads)


def test_a_swizzle_that_is_asked_for_is_refused_with_a_way_out() -> None:
    asked = odd("kkn", "f16", (3, 1, 1), smem=Smem(b=SmemLayout(swizzle=(3, 3, 3))))
    with pytest.raises(
        SpecError, match=r"smem.b.*the threads of the copy do not cover a multiple.*a pad is always possible"
    ):
        plan(asked, "sm_80")
    padded = planned(replace(asked, smem=Smem(b=SmemLayout(pad=8))))
    assert padded.b.smem.chosen.name == "pad 8"
