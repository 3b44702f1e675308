"""Swizzles that the DSL cannot address, because a thread's own accesses differ in bits that swizzle one another."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.algebra import parse_layout
from cutegen.errors import CompileError, SpecError
from cutegen.plan import plan
from cutegen.plan.smem import Access
from cutegen.spec import Epilogue, GemmSpec, Mma, SmemLayout, Tile
from tests.plan.kernels import Build
from tests.plan.specs import gemm

ONE_WARP = Mma(atom_layout=(1, 1, 1))
TORN_BY_ITSELF = [
    ("kkn", (32, 32, 32), "Sw<1,3,1> o (8,32):(32,1)"),
    ("mnm", (32, 32, 32), "Sw<1,3,1> o (32,8):(1,32)"),
    ("mnm", (16, 8, 32), "Sw<1,3,1> o (16,8):(1,16)"),
]
"""C's tile in shared memory, written by one warp whose 32 lanes are alike in the bits that are swizzled and swizzle."""


def staged(majors: str, cta: tuple[int, int, int], layout: str) -> GemmSpec:
    epilogue = Epilogue(smem=SmemLayout(layout=layout))
    return gemm(majors, tile=Tile(cta=cta, stages=2), mma=ONE_WARP, epilogue=epilogue)


@pytest.mark.parametrize(("majors", "cta", "layout"), TORN_BY_ITSELF)
def test_a_copy_that_makes_all_accesses_must_not_swizzle_them(
    majors: str, cta: tuple[int, int, int], layout: str
) -> None:
    with pytest.raises(SpecError, match=r"epilogue.smem.*a thread's own accesses swizzle one another"):
        plan(staged(majors, cta, layout), "sm_80")


@pytest.mark.dsl
def test_the_dsl_does_not_compile_such_a_copy(built: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why it is refused: without the rule the compiler is what finds out."""
    monkeypatch.setattr(Access, "tears", lambda *_: False)
    with pytest.raises(CompileError, match="_ComposedLayout"):
        built(staged(*TORN_BY_ITSELF[0]), "sm_80")


def own(elements: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """One thread's accesses, coordinates[instruction, warp, lane] of lanes that are alike in all but the lowest bit."""
    return np.array(elements)[:, None, None] + np.arange(2)


@pytest.mark.parametrize(
    ("elements", "layout", "at_once", "torn"),
    [
        # Sw<1,1,2> flips bit 1 where bit 3 is set: lanes differ in bit 0 alone.
        ([0, 2, 8, 10], "Sw<1,1,2> o 16:1", True, True),
        ([0, 2, 8, 10], "Sw<1,1,2> o 16:1", False, False),
        ([0, 2], "Sw<1,1,2> o 16:1", True, False),  # accesses differ in the bit that is flipped, not in the other
        ([0, 8], "Sw<1,1,2> o 16:1", True, False),
        ([0, 2, 8, 10], "16:1", True, False),
        # Sw<1,0,3> flips bit 0, in which lanes do differ.
        ([0, 9], "Sw<1,0,3> o 16:1", False, True),
    ],
)
def test_bits_that_swizzle_and_are_swizzled(elements: list[int], layout: str, at_once: bool, torn: bool) -> None:
    access = Access(own(elements) % 16, 2, at_once=at_once)
    assert access.tears(parse_layout(layout)) == torn
