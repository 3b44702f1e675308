"""What one thread issues for a copy: opcodes by the PTX ISA's names, counts by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cutegen.algebra import Layout, TiledMma
from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA, cp_async_atom, dtype, target, universal_atom
from cutegen.plan import plan
from cutegen.plan.kernel.program import Action, Check, Step
from cutegen.plan.values.copies import (
    Landing,
    VectorCopy,
    load_global,
    load_shared,
    passing_registers,
    store_joined,
    store_shared,
    vector_copy,
)
from cutegen.spec import Epilogue, SmemLayout
from tests.plan.specs import gemm

TENSOR_CORES = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], Layout((2, 2, 1)))
FMA = TiledMma(UNIVERSAL_FMA, Layout((16, 8, 1)))
BY_THREAD = replace(gemm(dtype="f32", align=(4, 4, 4)), family="simt")
K_MAJOR = Layout((16, 8), (8, 1))
TILE = (64, 64)


def landing(mma: TiledMma, element: str = "f16", arch: str = "sm_80", tile: tuple[int, int] = TILE) -> Landing:
    stage = Layout(tile, (tile[1], 1))
    return Landing(tile=tile, element=dtype(element), stage=stage, tiled_mma=mma, target=target(arch))


def plain(bits: int, element_bits: int = 16) -> VectorCopy:
    """128 threads, 8 of them side by side along K."""
    return vector_copy(universal_atom(bits), bits, K_MAJOR, 1, element_bits)


def asynchronous(op: str, bits: int) -> VectorCopy:
    return vector_copy(cp_async_atom(op, bits), bits, K_MAJOR, 1, 16)


@pytest.mark.parametrize(
    ("bits", "element", "arch", "suffix"),
    [
        (128, "f32", "sm_80", "v4.b32"),
        (128, "f32", "sm_120", "v2.b64"),
        (64, "f32", "sm_80", "v2.b32"),
        (64, "f32", "sm_120", "b64"),
        (32, "f32", "sm_120", "b32"),
        (128, "f16", "sm_120", "v4.b32"),
        (64, "f16", "sm_120", "v2.b32"),
        (32, "f16", "sm_80", "b32"),
        (16, "f16", "sm_80", "b16"),
        (16, "s8", "sm_80", "v2.b8"),
        (8, "s8", "sm_80", "b8"),
        (32, "s8", "sm_80", "b32"),
    ],
)
def test_spelling_of_plain_vectors(bits: int, element: str, arch: str, suffix: str) -> None:
    assert load_global(bits, dtype(element), target(arch)) == f"ld.global.{suffix}"
    assert store_shared(bits, dtype(element), target(arch)) == f"st.shared.{suffix}"


@pytest.mark.parametrize(
    ("bits", "part_bits", "suffix"),
    [
        (16, 16, "b16"),
        (32, 16, "v2.b16"),
        (64, 16, "v4.b16"),
        (128, 16, "v4.b32"),
        (16, 8, "v2.b8"),
        (32, 8, "b32"),
        (64, 32, "v2.b32"),
        (8, 8, "b8"),
    ],
)
def test_spelling_of_elements_that_the_compiler_joins(bits: int, part_bits: int, suffix: str) -> None:
    assert load_shared(bits, part_bits) == f"ld.shared.{suffix}"
    assert store_joined(bits, part_bits) == f"st.shared.{suffix}"


@pytest.mark.parametrize(("op", "bits"), [("cp.async.cg", 128), ("cp.async.ca", 64)])
def test_an_asynchronous_copy_is_one_opcode_and_holds_no_registers(op: str, bits: int) -> None:
    """64 x 64 elements of 16 bits over 128 threads: 512 bits each."""
    copy, at = asynchronous(op, bits), landing(TENSOR_CORES)
    assert (copy.fetch, copy.through_registers, copy.bypasses_l1) == (Action.FETCH, False, op == "cp.async.cg")
    (found,) = copy.opcodes(Step(Action.FETCH), at).items()
    assert found[0].startswith(op)
    assert found[1] == 512 // bits
    assert copy.opcodes(Step(Action.STORE), at) == copy.opcodes(Step(Action.GLOBAL_LOAD), at) == Counter()
    assert copy.passing_registers(TILE, dtype("f16")) == 0
    assert copy.ambiguous(at) == ()
    assert not copy.joins(dtype("f16"), TENSOR_CORES)


def test_a_plain_copy_loads_and_stores_and_keeps_its_share_in_registers() -> None:
    copy, at = plain(64), landing(FMA)
    assert (copy.fetch, copy.through_registers, copy.bypasses_l1) == (Action.GLOBAL_LOAD, True, False)
    assert copy.opcodes(Step(Action.FETCH), at) == Counter()
    assert copy.opcodes(Step(Action.GLOBAL_LOAD), at) == Counter({"ld.global.v2.b32": 8})
    assert copy.passing_registers(TILE, dtype("f16")) == 512 // 32
    checked = copy.opcodes(Step(Action.GLOBAL_LOAD, check=Check.ELEMENT), at)
    assert checked == Counter({"ld.global.b16": 32}), "each element by itself"


@pytest.mark.parametrize(
    ("copy_bits", "registers"), [(8, 64), (16, 32), (32, 16), (64, 16), (128, 16)], ids=lambda x: str(x)
)
def test_registers_of_what_passes_through(copy_bits: int, registers: int) -> None:
    """64 x 64 bytes over 64 threads are 512 bits each; a narrower vector than a register takes one."""
    assert passing_registers(64 * 64, 8, copy_bits, 64) == registers


@pytest.mark.parametrize(
    ("bits", "mma", "joins"), [(16, FMA, True), (32, FMA, False), (16, TENSOR_CORES, True), (64, TENSOR_CORES, True)]
)
def test_which_stores_the_compiler_joins(bits: int, mma: TiledMma, joins: bool) -> None:
    """It joins all vectors of a kernel of tensor cores, and of one of `fma` single elements only."""
    assert plain(bits).joins(dtype("f16"), mma) == joins


def test_stores_of_vectors_that_are_not_joined_are_one_each() -> None:
    assert plain(64).opcodes(Step(Action.STORE), landing(FMA)) == Counter({"st.shared.v2.b32": 8})


@pytest.mark.parametrize(
    ("bits", "tile", "ambiguous"),
    [
        (32, TILE, ("ld.global.b32", "ld.global.v2.b16", "st.shared.b32", "st.shared.v2.b16")),
        (64, TILE, ("ld.global.v2.b32", "ld.global.v4.b16", "st.shared.v2.b32", "st.shared.v4.b16")),
        (128, TILE, ()),
        (16, TILE, ()),
    ],
)
def test_pairs_and_quads_of_16_bits_have_two_spellings_each(
    bits: int, tile: tuple[int, int], ambiguous: tuple[Any, ...]
) -> None:
    """Single elements with 8 threads side by side lie 8 apart, so that none is joined."""
    assert plain(bits).ambiguous(landing(FMA, tile=tile)) == ambiguous


def test_stores_that_are_joined_are_spelled_in_two_ways() -> None:
    """Each of 64 threads has a row, whose elements lie side by side."""
    copy = vector_copy(universal_atom(16), 16, Layout((64, 1), (1, 0)), 0, 16)
    assert copy.ambiguous(landing(FMA)) == ("st.shared.",)


def test_a_thread_of_fma_loads_runs_along_k_at_once() -> None:
    """128 x 128 x 8 by 16 x 16 threads: 8 rows of A in fours along K, and 8 columns of B, 8 deep, one by one."""
    assert plan(BY_THREAD, "sm_80").opcodes(Step(Action.LOAD)) == {"ld.shared.v4.b32": 8 * 2, "ld.shared.b32": 8 * 8}


@pytest.mark.parametrize(
    ("epilogue", "not_predicted"),
    [
        (Epilogue(), set()),
        (Epilogue(ops=("aux",)), {"fma"}),
        (Epilogue(ops=("bias_n",)), {"fma", "ld.global"}),
        (Epilogue(smem=SmemLayout(pad=4)), {"ld.shared", "st.shared"}),
    ],
)
def test_opcodes_that_an_epilogue_has_too_are_not_predicted(epilogue: Epilogue, not_predicted: set[str]) -> None:
    predicted = plan(replace(BY_THREAD, epilogue=epilogue), "sm_80").predictions.instructions
    kinds = {"fma", "ld.global", "ld.shared", "st.shared"}
    assert {kind for kind in kinds if not any(opcode.startswith(kind) for opcode in predicted)} == not_predicted
