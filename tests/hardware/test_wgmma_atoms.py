"""Atoms of wgmma: which there are, what threads hold of C and of A, and that a wrong row cannot be made."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cutegen.algebra import Layout, TiledMma, offsets, offsets_2d
from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA, WGMMA_ATOMS, Instruction, OperandSource, targets_with

SS, RS = WGMMA_ATOMS["SM90_64x96x16_F32BF16BF16_SS"], WGMMA_ATOMS["SM90_64x96x16_F32BF16BF16_RS"]
ONE_N = {name: atom for name, atom in WGMMA_ATOMS.items() if atom.shape_mnk[1] == 24}


def test_every_form_of_every_type_is_there() -> None:
    """PTX ISA, "wgmma.mma_async": N steps by 8 up to 256, for integers by 16 from 32 on; A has two sources."""
    by_types = Counter((atom.c_dtype.name, atom.a_dtype.name, atom.b_dtype.name) for atom in WGMMA_ATOMS.values())
    floats, integers = 2 * 32, 2 * 18
    float8 = {(d, a, b): floats for d in ("f16", "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")}
    sixteen = {("f16", "f16", "f16"): floats, ("f32", "f16", "f16"): floats, ("f32", "bf16", "bf16"): floats}
    assert by_types == sixteen | float8 | {("s32", a, b): integers for a in ("s8", "u8") for b in ("s8", "u8")}
    assert not WGMMA_ATOMS.keys() & MMA_ATOMS.keys()


@pytest.mark.parametrize(
    ("name", "ptx"),
    [
        ("SM90_64x256x16_F32F16F16_SS", "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"),
        ("SM90_64x8x16_F16F16F16_RS", "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"),
        ("SM90_64x136x32_F32E4M3E5M2_SS_TN", "wgmma.mma_async.sync.aligned.m64n136k32.f32.e4m3.e5m2"),
        ("SM90_64x32x32_S32S8U8_SS_TN_SATURATE", "wgmma.mma_async.sync.aligned.m64n32k32.satfinite.s32.s8.u8"),
    ],
)
def test_opcodes(name: str, ptx: str) -> None:
    assert WGMMA_ATOMS[name].ptx == ptx


def test_they_are_an_instruction_of_a_warpgroup_that_one_target_has() -> None:
    assert {atom.instruction for atom in WGMMA_ATOMS.values()} == {Instruction.WGMMA}
    assert {atom.threads for atom in WGMMA_ATOMS.values()} == {128}
    assert targets_with(Instruction.WGMMA) == ("sm_90",)
    assert WGMMA_ATOMS["SM90_64x256x32_S32U8U8_RS_TN_SATURATE"].flops == 2 * 64 * 256 * 32


@pytest.mark.parametrize("name", ONE_N)
def test_where_operands_come_from_and_which_majors_they_may_have(name: str) -> None:
    atom = WGMMA_ATOMS[name]
    from_registers = "_RS" in name
    assert atom.source("A") is (OperandSource.RMEM if from_registers else OperandSource.SMEM)
    assert (atom.source("B"), atom.source("C")) == (OperandSource.SMEM, OperandSource.RMEM)
    turned = atom.a_dtype.bits == 16
    assert atom.majors("A") == (("k", "m") if turned or from_registers else ("k",))
    assert atom.majors("B") == (("k", "n") if turned else ("k",))


def test_other_atoms_take_registers_alone() -> None:
    for atom in (*MMA_ATOMS.values(), UNIVERSAL_FMA):
        assert {atom.source(op) for op in ("A", "B", "C")} == {OperandSource.RMEM}
        assert (atom.majors("A"), atom.majors("B")) == (("k", "m"), ("k", "n"))


def test_registers_are_those_of_the_ptx_isa() -> None:
    """PTX ISA, "Register Fragments and Shared Memory Matrix Layouts", the figures of D and of A in registers.

    A lane has `e` neighbors in a row, then as many in the row 8 below, then 4 e columns further.
    """
    warp, lane = np.divmod(np.arange(128), 32)

    def held(values: int, e: int) -> np.ndarray:
        i = np.arange(values)[:, None]
        row = 16 * warp + lane // 4 + 8 * (i // e % 2)
        return row + 64 * (e * (lane % 4) + i % e + 4 * e * (i // (2 * e)))

    for atom in WGMMA_ATOMS.values():
        _, n, k = atom.shape_mnk
        assert np.array_equal(offsets(atom.c_layout).reshape(-1, 128), held(n // 2, 2)), atom.name
        if atom.source("A") is OperandSource.RMEM:
            in_registers = held(k // 2, 32 // atom.a_dtype.bits)
            assert np.array_equal(offsets(atom.a_layout).reshape(-1, 128), in_registers), atom.name


@pytest.mark.parametrize("atom_layout", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (3, 1, 1), (2, 2, 1)])
def test_warpgroups_share_a_tile_of_c(atom_layout: tuple[int, int, int]) -> None:
    """Thread t is one of warpgroup t / 128, whose block the atom layout gives it; together they hold C once."""
    mma = TiledMma(SS, atom_layout)
    m, n, _ = mma.tile_mnk
    held = offsets_2d(mma.tv_layout("C"))
    assert np.array_equal(np.sort(held, axis=None), np.arange(m * n))
    rows, columns = held % m // 64, held // m // 96
    warpgroup = np.arange(mma.threads) // 128
    assert (rows == (warpgroup % atom_layout[0])[:, None]).all()
    assert (columns == (warpgroup // atom_layout[0])[:, None]).all()


def test_every_thread_of_a_warpgroup_names_the_same_block_of_shared_memory() -> None:
    mma = TiledMma(SS, (2, 1, 1))
    for op, rows in (("A", (0, 64)), ("B", (0, 0))):
        begins = [mma.partition(op, Layout(mma.tile_of(op)), thread).offset for thread in range(mma.threads)]
        assert begins == [rows[0]] * 128 + [rows[1]] * 128


@pytest.mark.parametrize(
    ("atom", "broken", "complaint"),
    [
        (SS, {"c_layout": RS.a_layout}, "does not cover its 6144 elements exactly once"),
        (RS, {"a_layout": SS.a_layout}, "does not cover its 1024 elements exactly once"),
        (SS, {"a_layout": RS.a_layout}, "does not show its 1024 elements to every thread"),
        (SS, {"b_layout": Layout((128, (96, 16)), (0, (1, 95)))}, "does not show its 1536 elements to every thread"),
        (SS, {"b_layout": Layout((128, (96, 16)), (1, (1, 96)))}, "does not show its 1536 elements to every thread"),
        (SS, {"b_layout": Layout((32, (96, 16)), (0, (1, 96)))}, "is not for 128 threads"),
        (SS, {"b_source": OperandSource.RMEM}, "does not cover its 1536 elements exactly once"),
    ],
)
def test_a_wrong_row_cannot_be_made(atom: object, broken: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(atom, **broken)
