"""`mma.permutation` with layouts of M and N, as CuTe takes them: which warp has what, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from cutegen.algebra import offsets_2d
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan
from cutegen.plan import plan as make_plan
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import Mma, SmemLayout, Tile
from cutegen.spec import Smem as SmemKeys
from tests.plan.kernels import Build
from tests.plan.specs import gemm

TILE = Tile((128, 128, 32), stages=2)
WARPS = (2, 2, 1)


def planned(*permutation: int | str, majors: str = "kkn", dtype: str = "f16", **parts: object) -> GemmPlan:
    mma = Mma(atom_layout=WARPS, permutation=permutation)  # type: ignore[arg-type]
    found = make_plan(gemm(majors, dtype, tile=TILE, mma=mma, **parts), "sm_80")
    assert isinstance(found, GemmPlan)
    return found


def columns_of(found: GemmPlan, warp: int) -> list[int]:
    """The columns of the tile that the threads of a warp hold sums of, by the tiled MMA's own table."""
    m, _ = found.tiled_mma.tile_of("C")
    return sorted(set((offsets_2d(found.tiled_mma.tv_layout("C"))[warp * 32 : warp * 32 + 32] // m).ravel().tolist()))


def test_each_warp_has_the_columns_that_the_plan_names() -> None:
    found = planned(32, "(8,2,2):(1,16,8)", 16)
    (decision,) = [x for x in found.decisions if x.key == "mma.permutation"]
    assert decision.given
    assert decision.why == "given; of 32 columns warp 0 has 0..15, warp 1 has 16..31"
    # Warps 0 and 1 are side by side along M, 2 along N.
    assert [columns_of(found, warp) for warp in (0, 2)] == [[*range(16)], [*range(16, 32)]]
    interleaved = planned(32, 32, 16)
    assert columns_of(interleaved, 0) == [*range(8), *range(16, 24)]


def test_a_layout_that_permutes_nothing_is_its_extent() -> None:
    found = planned(32, "(16,2):(1,16)", 16)
    assert found.tiled_mma == planned(32, 32, 16).tiled_mma
    (why,) = [x.why for x in found.decisions if x.key == "mma.permutation"]
    assert why == 'given; "(16,2):(1,16)" permutes nothing'


def test_any_permutation_of_blocks_is_planned_and_proved() -> None:
    """Of 8 columns each, so that fragments of ldmatrix stay together; the proof runs in the planner."""
    drawn = random.Random(7)
    for strides in drawn.sample([*permutations((8, 16, 32))], 6):
        text = f"(8,2,2,2):(1,{','.join(map(str, strides))})"
        found = planned(32, text, 16)
        held = [columns_of(found, warp) for warp in (0, 2)]
        assert sorted(held[0] + held[1]) == [*range(64)]
        # By definition: place i of the tile is column layout(i), and atoms of 8 places alternate between two warps.
        places = np.array([sum(i // 8 // 2**j % 2 * strides[j] for j in range(3)) + i % 8 for i in range(64)])
        assert held[0] == sorted(places[[i for i in range(64) if i // 8 % 2 == 0]].tolist())


REFUSED = {
    "K": ((32, 32, "(8,2):(2,1)"), "K: k-blocks are consecutive"),
    "a place twice": ((32, "(16,2):(1,8)", 16), "N: each of 0 to 31 must come exactly once"),
    "a swizzle": ((32, "Sw<1,3,3> o 32:1", 16), "N: a swizzle has no meaning here"),
    "no layout": (("x", 32, 16), "M: "),
    "an extent that does not divide": (
        (32, "(8,2,3):(1,24,8)", 16),
        "48 along N; expected a multiple of warps x atom = 16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_mode(name: str) -> None:
    permutation, said = REFUSED[name]
    with pytest.raises(SpecError) as error:
        planned(*permutation)  # type: ignore[arg-type]
    assert error.value.key == "mma.permutation"
    assert said in str(error.value)


def test_columns_that_an_ldmatrix_of_bytes_needs_may_be_given_and_no_others() -> None:
    spec = gemm("knn", "s8", tile=Tile((128, 128, 64)), mma=Mma(atom_layout=WARPS, permutation=(32, 32, 32)))
    chosen = make_plan(spec, "sm_100")
    assert isinstance(chosen, GemmPlan)
    needed = "(8,2,2):(1,16,8)"
    assert chosen.to_json()["mma"]["columns"] == needed
    given = replace(spec, mma=replace(spec.mma, permutation=(32, needed, 32)))
    assert make_plan(given, "sm_100").tiled_mma == chosen.tiled_mma  # type: ignore[union-attr]
    for other in ("(8,2,2):(1,8,16)", "(8,4):(1,8)"):  # the second permutes nothing
        with pytest.raises(SpecError, match="loads a warp's atoms in pairs"):
            make_plan(replace(spec, mma=replace(spec.mma, permutation=(32, other, 32))), "sm_100")


@pytest.mark.dsl
@pytest.mark.slow
def test_the_kernel_multiplies_permuted_rows_and_columns_right(built: Build) -> None:
    mma = Mma(atom_layout=WARPS, permutation=("(16,2,2):(1,32,16)", "(8,2,2):(1,16,8)", 16))
    spec = replace(gemm(tile=TILE, mma=mma), name="permuted")
    text = render(make_plan(spec, "sm_80")).text
    assert "MMA_ROWS = ((16, 2, 2), (1, 32, 16))" in text
    assert "permutation_mnk=(rows, columns, MMA_PERMUTATION[2])" in text
    drawn = np.random.default_rng(3)
    a, b = (drawn.integers(-2, 3, (128, 96)).astype(np.float16) for _ in "ab")
    c = Kernel(built(spec))(a, b.T)
    assert np.array_equal(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64).T)


def test_names_of_cutlass_are_layouts() -> None:
    for name, swizzle in (("Layout_K_SW128_Atom", (3, 3, 3)), ("Layout_K_SW64_Atom", (2, 3, 3))):
        spec = gemm(tile=Tile((128, 128, 64)), smem=SmemKeys(a=SmemLayout(layout=name)))
        found = make_plan(spec, "sm_80").a.smem.swizzle  # type: ignore[union-attr]
        assert found is not None
        assert (found.bits, found.base, found.shift) == swizzle
    warpgroups = replace(gemm("mnn", tile=Tile((128, 128, 64))), family="sm90")
    for name in ("Layout_MN_SW128_Atom", "Layout_MN_SW64_Atom"):
        made = make_plan(replace(warpgroups, smem=SmemKeys(a=SmemLayout(layout=name))), "sm_90")
        assert [x.chosen for x in made.decisions if x.key == "smem.a"] == [name]
    with pytest.raises(SpecError, match='"Layout_K_SW64_Atom" does'):
        make_plan(gemm(tile=TILE, smem=SmemKeys(a=SmemLayout(layout="Layout_K_SW128_Atom"))), "sm_80")
    with pytest.raises(SpecError, match='the nearest is "Layout_K_SW128_Atom"'):
        gemm(smem=SmemKeys(a=SmemLayout(layout="Layout_K_SW12_Atom")))


def test_a_swizzle_that_looks_like_bytes_is_told_in_elements() -> None:
    bytes_ = SmemKeys(b=SmemLayout(swizzle=(3, 4, 3)))
    said = "[3, 3, 3] is it in elements of 2 bytes"
    found = make_plan(gemm(tile=Tile((128, 128, 64)), smem=bytes_), "sm_80")
    assert said in next(x.why for x in found.decisions if x.key == "smem.b")
    with pytest.raises(SpecError, match=r"\[3, 3, 3\] is it in elements of 2 bytes"):
        make_plan(replace(gemm(smem=bytes_), family="sm90"), "sm_90")
    own = make_plan(gemm(tile=Tile((128, 128, 64)), smem=SmemKeys(b=SmemLayout(swizzle=(3, 3, 3)))), "sm_80")
    assert "looks like" not in next(x.why for x in own.decisions if x.key == "smem.b")
