"""The way of C to global memory: what the rules choose, by examples worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.algebra import Layout, TiledMma
from cutegen.errors import SpecError
from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA
from cutegen.plan import plan
from cutegen.plan.geometry import held_together
from cutegen.spec import (
    Bias,
    Epilogue,
    Mma,
    SmemLayout,
    Tile,
)
from tests.plan.said import decision, decisions
from tests.plan.specs import gemm

TILE = Tile(cta=(128, 128, 64))


@pytest.mark.parametrize("align", [2, 4, 8, 16])
def test_c_is_stored_as_wide_as_it_is_aligned(align: int) -> None:
    found = plan(gemm(align=(None, None, align), tile=Tile(cta=(128, 128, 32))), "sm_80").epilogue
    assert found.store is not None
    assert found.store.bits == 8 * align


@pytest.mark.parametrize("family", ["sm90", "sm120"])
def test_a_layout_of_c_that_boxes_do_not_write_is_refused_and_not_replaced(family: str) -> None:
    across = Epilogue(smem=SmemLayout(layout="(64,64):(1,64)"))
    with pytest.raises(SpecError, match=r"epilogue.smem: .* expected what a tensor map can write"):
        plan(replace(gemm(tile=Tile(cta=(128, 128, 64)), epilogue=across), family=family), "sm_90")


def test_c_leaves_from_registers_where_the_spec_says_so() -> None:
    found = plan(replace(gemm(epilogue=Epilogue(smem=False)), family="sm120"), "sm_90")
    assert found.epilogue.smem is None
    assert decisions(found)["epilogue.smem"].given


def test_scalars_of_the_epilogue_are_those_it_names() -> None:
    found = plan(gemm(epilogue=Epilogue(ops=("alpha", "beta", "bias_n", "relu"))), "sm_80").epilogue.fusion
    assert found.scalars == ("alpha", "beta")
    assert [tensor.modes for tensor in found.tensors] == [("m", "n"), ("n",)]


@pytest.mark.parametrize(("asked", "chosen"), [("f32", "f32, along n"), (None, "f16, along n")])
def test_a_bias_has_the_type_it_is_given_or_that_of_c(asked: str | None, chosen: str) -> None:
    spec = gemm(tile=TILE, epilogue=Epilogue(ops=("bias_n", "relu")))
    spec = replace(spec, problem=replace(spec.problem, bias=Bias(asked) if asked else None))
    found = plan(spec, "sm_80")
    assert decision(found, "problem.bias").chosen == chosen
    assert "C is not read when beta is 0" not in decision(found, "epilogue.ops").why


def test_c_behind_beta_is_not_always_read() -> None:
    found = plan(gemm(tile=TILE, epilogue=Epilogue(ops=("alpha", "beta"))), "sm_80")
    assert decision(found, "epilogue.ops").why.endswith("C is not read when beta is 0")


@pytest.mark.parametrize(
    ("mma", "major_mode", "neighbors"),
    [("mma", 1, 2), ("mma", 0, 1), ("fma", 1, 1), ("fma", 0, 1)],
)
def test_neighbors_of_c_that_a_thread_holds(mma: str, major_mode: int, neighbors: int) -> None:
    tiled = {
        "mma": TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], Layout((2, 2, 1))),
        "fma": TiledMma(UNIVERSAL_FMA, Layout((16, 16, 1))),
    }[mma]
    assert held_together(tiled, major_mode) == neighbors


@pytest.mark.parametrize(("align", "bits"), [(2, 16), (4, 32), (8, 64), (16, 128), (128, 128)])
@pytest.mark.parametrize("majors", ["kkn", "kkm"])
def test_stores_are_as_wide_as_c_is_aligned(majors: str, align: int, bits: int) -> None:
    found = plan(gemm(majors, align=(16, 16, align)), "sm_80")
    assert found.epilogue.store is not None
    assert found.epilogue.store.bits == bits


@pytest.mark.parametrize(("pad", "bits"), [(8, 128), (4, 64), (1, 16)])
def test_stores_are_as_wide_as_the_layout_of_c_keeps_together(pad: int, bits: int) -> None:
    store = plan(gemm(epilogue=Epilogue(SmemLayout(pad=pad))), "sm_80").epilogue.store
    assert store is not None
    assert store.bits == bits


@pytest.mark.parametrize(("majors", "columns", "staged"), [("kkn", 32, False), ("kkn", 64, True), ("kkm", 32, True)])
def test_four_sums_of_a_row_are_not_staged(majors: str, columns: int, staged: bool) -> None:
    """Of 128 threads each has 16 x 32 / 128 = 4 sums, in pairs along N: apart where C is contiguous along M."""
    found = plan(gemm(majors, tile=Tile((16, columns, 32)), mma=Mma(atom_layout=(1, 4, 1))), "sm_80")
    assert (found.epilogue.smem is not None) == staged


def test_c_goes_straight_from_registers_when_it_does_not_fit() -> None:
    found = plan(gemm(c_dtype="f32", tile=Tile(cta=(256, 128, 32), stages=2)), "sm_86")
    assert found.epilogue.smem is None
    assert "131,072 bytes" in next(row.why for row in found.decisions if row.key == "epilogue.smem")
