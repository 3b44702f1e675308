"""Swizzles that the DSL cannot address, because a thread's own accesses differ in bits that swizzle one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cutegen.algebra import parse_layout
from cutegen.errors import CompileError, SpecError
from cutegen.plan import plan
from cutegen.plan.operands.shared_memory import Access
from cutegen.run import Kernel
from cutegen.spec import Epilogue, G2s, G2sCopy, GemmSpec, Mma, Smem, SmemLayout, Tile
from cutegen.verify import compare, float64_reference, random_operands
from tests.plan.kernels import Build
from tests.plan.specs import gemm

ONE_WARP = Mma(atom_layout=(1, 1, 1))
TORN_BY_ITSELF = [
    ("epilogue.smem", "kkn", (32, 32, 32), "Sw<1,3,1> o (8,32):(32,1)"),  # where accumulators are written
    ("epilogue.smem", "mnm", (32, 32, 32), "Sw<1,3,1> o (32,8):(1,32)"),
    ("epilogue.smem", "mnm", (16, 8, 32), "Sw<1,3,1> o (16,8):(1,16)"),
    ("epilogue.smem", "kkn", (64, 64, 64), "Sw<1,7,1> o (32,32):(32,1)"),  # where they are read again
    ("smem.a", "kkn", (32, 32, 32), "Sw<1,3,1> o (32,8):(1,32)"),  # where plain copies write A
]
"""Layouts in whose swizzled and swizzling bits all lanes of the one warp are alike."""


def staged(key: str, majors: str, cta: tuple[int, int, int], layout: str) -> GemmSpec:
    given = SmemLayout(layout=layout)
    parts = {"smem": Smem(a=given)} if key == "smem.a" else {"epilogue": Epilogue(smem=given)}
    return gemm(majors, tile=Tile(cta=cta, stages=2), mma=ONE_WARP, **parts)


@pytest.mark.parametrize(("key", "majors", "cta", "layout"), TORN_BY_ITSELF)
def test_a_copy_that_makes_all_accesses_must_not_swizzle_them(
    key: str, majors: str, cta: tuple[int, int, int], layout: str
) -> None:
    with pytest.raises(SpecError, match=rf"{key}.*the swizzle XORs bits in which a thread's own accesses"):
        plan(staged(key, majors, cta, layout), "sm_80")


def test_copies_that_have_an_address_each_may_be_swizzled_apart() -> None:
    """A thread's vectors differ in the bits that swizzle and in those swizzled: `cp.async` takes them one by one."""
    layout = SmemLayout(layout="Sw<3,4,3> o (128,8):(8,1)")
    asked = gemm(tile=Tile((128, 128, 128), 2), mma=Mma(atom_layout=(2, 2, 1)), smem=Smem(a=layout))
    assert plan(asked, "sm_80").a.smem.chosen.name == "Swizzle<3,4,3> on 128x8"
    with pytest.raises(SpecError, match=r"smem\.a.*the swizzle XORs bits in which a thread's own accesses"):
        plan(replace(asked, g2s=G2s(a=G2sCopy(op="universal"))), "sm_80")


@pytest.mark.dsl
@pytest.mark.parametrize(("key", "majors", "cta", "layout"), [TORN_BY_ITSELF[i] for i in (0, 3, 4)])
def test_the_dsl_does_not_compile_such_a_copy(
    key: str, majors: str, cta: tuple[int, int, int], layout: str, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why it is refused: without the rule the compiler is what finds out."""
    monkeypatch.setattr(Access, "tears", lambda *_, **__: False)
    with pytest.raises(CompileError, match=r"(?i)composed_?layout"):
        built(staged(key, majors, cta, layout), "sm_80")


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("cta", "majors", "layout"),
    [
        ((16, 64, 16), "mkn", "Sw<3,4,3> o (16,(4,4)):(16,(1,4))"),
        ((16, 16, 16), "knn", "Sw<3,3,5> o (8,(4,4)):(16,(1,4))"),
    ],
)
def test_stages_that_swizzle_what_threads_share_out_go_astray(
    cta: tuple[int, int, int], majors: str, layout: str, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why it is refused: without the rule a result is wrong, in silence."""
    smem = Smem(a=SmemLayout(layout=layout))
    spec = replace(gemm(majors, "f32", tile=Tile(cta=cta), smem=smem), family="simt")
    with pytest.raises(SpecError, match=r"smem\.a.*own accesses, or stages, differ"):
        plan(spec, "sm_80")
    monkeypatch.setattr(Access, "tears", lambda *_, **__: False)
    kernel = Kernel(built(spec, "sm_80"))
    a, b, out = random_operands(kernel.contract, *cta, seed=3)
    kernel(a, b, out=out)
    assert not compare(out, float64_reference(a, b), dtype="f32").ok


def own(elements: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """One thread's accesses, coordinates[instruction, warp, lane] of lanes that are alike in all but the lowest bit."""
    return np.array(elements)[:, None, None] + np.arange(2)


@pytest.mark.parametrize(
    ("elements", "layout", "at_once", "torn"),
    [
        # Sw<1,1,2> flips bit 1 where bit 3 is set: lanes differ in bit 0 alone.
        ([0, 2, 8, 10], "Sw<1,1,2> o 16:1", 4, True),
        ([0, 2, 8, 10], "Sw<1,1,2> o 16:1", 2, False),  # one copy makes two of them, which differ in one bit alone
        ([0, 2, 8, 10], "Sw<1,1,2> o 16:1", 0, False),
        ([0, 2], "Sw<1,1,2> o 16:1", 2, False),  # accesses differ in the bit that is flipped, not in the other
        ([0, 8], "Sw<1,1,2> o 16:1", 2, False),
        ([0, 2, 8, 10], "16:1", 4, False),
        # Sw<1,0,3> flips bit 0, in which lanes do differ.
        ([0, 9], "Sw<1,0,3> o 16:1", 0, True),
    ],
)
def test_bits_that_swizzle_and_are_swizzled(elements: list[int], layout: str, at_once: int, torn: bool) -> None:
    access = Access(own(elements) % 16, 2, at_once=at_once)
    assert access.tears(parse_layout(layout), staged=False) == torn
