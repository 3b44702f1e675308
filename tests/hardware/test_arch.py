"""The hardware tables: what they hold, and that a wrong row cannot be made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cutegen import hardware
from cutegen.algebra import Layout, offsets, offsets_2d, size
from cutegen.algebra.layout import upcast
from cutegen.errors import RequestError
from cutegen.hardware import (
    CP_ASYNC_ATOMS,
    DTYPES,
    LDMATRIX_ATOMS,
    MMA_ATOMS,
    TARGETS,
    Instruction,
    cp_async_atom,
    dtype,
    ldmatrix_atom,
    target,
    targets_with,
    universal_atom,
)

KIB = 1024


def test_mma_atoms_are_all_of_the_family() -> None:
    sixteen_bit = {
        f"SM80_16x8x{k}_{types}_TN" for k in (8, 16) for types in ("F16F16F16F16", "F32F16F16F32", "F32BF16BF16F32")
    }
    tf32 = {f"SM80_16x8x{k}_F32TF32TF32F32_TN" for k in (4, 8)}
    signs = ("S8", "U8")
    integer = {f"SM80_16x8x{k}_S32{a}{b}S32_TN_SATURATE" for k in (16, 32) for a in signs for b in signs}
    float8 = ("E4M3", "E5M2")
    eight_bit = {f"SM89_16x8x32_{c}{a}{b}{c}_TN" for c in ("F16", "F32") for a in float8 for b in float8}
    assert set(MMA_ATOMS) == sixteen_bit | tf32 | integer | eight_bit


@pytest.mark.parametrize("name", MMA_ATOMS)
def test_an_mma_atoms_name_opcode_shape_and_types_agree(name: str) -> None:
    atom = MMA_ATOMS[name]
    m, n, k = atom.shape_mnk
    d, a, b, c = atom.c_dtype.name, atom.a_dtype.name, atom.b_dtype.name, atom.c_dtype.name
    first = targets_with(atom.instruction, *atom.a_dtype.needs, *atom.b_dtype.needs)[0].replace("sm_", "SM")
    integer = d == "s32"
    assert atom.name == name == f"{first}_{m}x{n}x{k}_{(d + a + b + c).upper()}_TN" + ("_SATURATE" if integer else "")
    saturating = "satfinite." if integer else ""
    assert atom.ptx == f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{saturating}{d}.{a}.{b}.{c}"
    assert atom.flops == 2 * m * n * k


@pytest.mark.parametrize("name", MMA_ATOMS)
def test_fragments_are_those_of_the_ptx_isa(name: str) -> None:
    """PTX ISA, "Matrix fragments for mma.m16n8k4" to "mma.m16n8k32": groupID is lane / 4, e elements fill a register.

    Their formulas for 8, 16 and 32 bits are one: A's registers take rows groupID and groupID + 8 in turn, then 4 e
    columns further; a register of A and of B holds columns e (lane % 4) + i % e. C's registers hold one value each, or
    two in 16 bits, of the same places.
    """
    atom = MMA_ATOMS[name]
    m, n, k = atom.shape_mnk
    lane = np.arange(32)
    group, in_group = lane // 4, lane % 4
    e = 32 // atom.a_dtype.bits

    def expect(layout: Layout, rows: int, row: list[np.ndarray], column: list[np.ndarray]) -> None:
        wanted = np.stack([r + rows * c for r, c in zip(row, column, strict=True)])
        assert np.array_equal(offsets(layout).reshape(-1, 32), wanted)

    a = range(m * k // 32)
    columns_a = [e * in_group + i % e + 4 * e * (i // (2 * e)) for i in a]
    expect(atom.a_layout, m, [group + 8 * (i // e % 2) for i in a], columns_a)
    b = range(n * k // 32)
    expect(atom.b_layout, n, [group for _ in b], [e * in_group + i % e + 4 * e * (i // e) for i in b])
    c = range(m * n // 32)
    expect(atom.c_layout, m, [group + 8 * (i // 2) for i in c], [2 * in_group + i % 2 for i in c])


def test_fragments_of_8_and_32_bits_by_hand() -> None:
    """Places read off PTX ISA's figures: (row, column) of a few registers."""
    tf32, s8 = MMA_ATOMS["SM80_16x8x8_F32TF32TF32F32_TN"], MMA_ATOMS["SM80_16x8x32_S32S8S8S32_TN_SATURATE"]
    by_lane = offsets(tf32.a_layout).reshape(-1, 32)
    assert [divmod(int(x), 16)[::-1] for x in by_lane[:, 5]] == [(1, 1), (9, 1), (1, 5), (9, 5)]
    by_lane = offsets(s8.a_layout).reshape(-1, 32)
    assert [divmod(int(x), 16)[::-1] for x in by_lane[[0, 3, 4, 8, 12, 15], 6]] == [
        (1, 8),
        (1, 11),
        (9, 8),
        (1, 24),
        (9, 24),
        (9, 27),
    ]
    by_lane = offsets(s8.b_layout).reshape(-1, 32)
    assert [divmod(int(x), 8)[::-1] for x in by_lane[[0, 3, 4, 7], 30]] == [(7, 8), (7, 11), (7, 24), (7, 27)]


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ({"a_layout": Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))}, "does not cover its 256 elements exactly once"),
        ({"b_layout": Layout(((4, 8), (2, 2)), ((16, 1), (8, 32)))}, "does not cover its 128 elements exactly once"),
        ({"c_layout": Layout((16, 8))}, "is not for 32 threads"),
    ],
)
def test_a_wrong_row_cannot_be_made(broken: dict[str, Layout], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], **broken)


@pytest.mark.parametrize(
    ("name", "gpu_arch", "per_cta_kib", "per_sm_kib", "threads", "ctas"),
    [
        ("sm_80", "sm_80", 163, 164, 2048, 32),
        ("sm_86", "sm_86", 99, 100, 1536, 16),
        ("sm_89", "sm_89", 99, 100, 1536, 24),
        ("sm_90", "sm_90a", 227, 228, 2048, 32),
        ("sm_100", "sm_100a", 227, 228, 2048, 32),
        ("sm_120", "sm_120a", 99, 100, 1536, 24),
    ],
)
def test_targets(name: str, gpu_arch: str, per_cta_kib: int, per_sm_kib: int, threads: int, ctas: int) -> None:
    row = target(name)
    assert (row.name, row.gpu_arch) == (name, gpu_arch)
    assert (row.smem_per_cta_bytes, row.smem_per_sm_bytes) == (per_cta_kib * KIB, per_sm_kib * KIB)
    assert (row.threads_per_sm, row.ctas_per_sm) == (threads, ctas)
    assert target(gpu_arch) is row


def test_a_cta_that_takes_all_shared_memory_fits_an_sm_once() -> None:
    for row in TARGETS.values():
        assert row.smem_per_cta_bytes + row.smem_reserved_per_cta_bytes == row.smem_per_sm_bytes


@pytest.mark.parametrize(
    ("name", "capability"), [("sm_80", (8, 0)), ("sm_89", (8, 9)), ("sm_90a", (9, 0)), ("sm_120", (12, 0))]
)
def test_compute_capability(name: str, capability: tuple[int, int]) -> None:
    assert target(name).compute_capability == capability


@pytest.mark.parametrize(("matrices", "transpose"), [(n, t) for n in (1, 2, 4) for t in (False, True)])
def test_ldmatrix_atoms(matrices: int, transpose: bool) -> None:
    atom = ldmatrix_atom(matrices, transpose=transpose)
    trans = ".trans" if transpose else ""
    assert atom.ptx == f"ldmatrix.sync.aligned.m8n8.x{matrices}{trans}.shared.b16"
    assert atom.ref_layout_bits is atom.dst_layout_bits
    assert size(atom.dst_layout_bits) == matrices * 8 * 8 * 16
    assert np.array_equal(np.sort(offsets(atom.dst_layout_bits)), np.arange(matrices * 1024))
    assert np.array_equal(np.unique(offsets(atom.src_layout_bits)), np.arange(matrices * 1024))


@pytest.mark.parametrize("matrices", [1, 2])
def test_ldmatrix_atoms_of_bytes(matrices: int) -> None:
    """PTX ISA: an address for each row of 16; four elements of a column of 16 to each register, two registers each."""
    atom = ldmatrix_atom(matrices, transpose=True, element_bits=8)
    assert atom.ptx == f"ldmatrix.sync.aligned.m16n16.x{matrices}.trans.shared.b8"
    assert (atom.rows, atom.registers, atom.needs) == (16 * matrices, 2 * matrices, "ldmatrix.b8.trans")
    lane, value = np.arange(32)[:, None], np.arange(8 * matrices)
    register, byte = value // 4, value % 4
    row, column = 16 * (register // 2) + 4 * (lane % 4) + byte, lane // 4 + 8 * (register % 2)
    assert np.array_equal(offsets_2d(upcast(atom.dst_layout_bits, 8)), 16 * row + column)
    addressed = offsets_2d(upcast(atom.src_layout_bits, 8))[: atom.rows]
    assert np.array_equal(addressed, 16 * np.arange(atom.rows)[:, None] + np.arange(16))


def test_copy_atom_table() -> None:
    assert len(LDMATRIX_ATOMS) == 8
    assert {(row.op, row.bits) for row in CP_ASYNC_ATOMS.values()} == {
        ("cp.async.ca", 32),
        ("cp.async.ca", 64),
        ("cp.async.ca", 128),
        ("cp.async.cg", 128),
    }
    assert cp_async_atom("cp.async.cg", 128).ptx == "cp.async.cg.shared.global"


def test_universal_atom_moves_its_bits() -> None:
    assert size(universal_atom(64).src_layout_bits) == 64
    assert universal_atom(64).ref_layout_bits == universal_atom(64).src_layout_bits


def test_dtypes() -> None:
    sizes = {"f16": 2, "bf16": 2, "f32": 4, "tf32": 4, "s8": 1, "u8": 1, "s32": 4, "e4m3": 1, "e5m2": 1}
    assert {row.name: row.bytes for row in DTYPES.values()} == sizes
    assert [row.name for row in DTYPES.values() if row.is_integer] == ["s8", "u8", "s32"]
    assert [row.name for row in DTYPES.values() if row.needs] == ["e4m3", "e5m2"]
    assert (dtype("bf16").dsl_name, dtype("bf16").torch_name) == ("BFloat16", "bfloat16")


@pytest.mark.parametrize(
    ("lookup", "name", "message"),
    [
        (dtype, "fp16", "unknown dtype 'fp16'; did you mean f16?"),
        (dtype, "int7", "unknown dtype 'int7'; known are f16, bf16, f32, tf32, s8, u8, s32, e4m3, e5m2"),
        (target, "sm_81", "unknown target 'sm_81'; did you mean sm_89?"),
        (target, "", "unknown target ''; known are sm_80, sm_86, sm_89, sm_90, sm_100, sm_103, sm_120"),
    ],
)
def test_unknown_names_suggest_the_nearest(lookup: object, name: str, message: str) -> None:
    with pytest.raises(RequestError) as error:
        lookup(name)  # type: ignore[operator]
    assert str(error.value) == message


def test_copies_that_do_not_exist() -> None:
    with pytest.raises(RequestError, match="of 16-bit elements loads 1 or 2 or 4 matrices, not 3"):
        ldmatrix_atom(3, transpose=False)
    with pytest.raises(RequestError, match="an ldmatrix of 8-bit elements loads 1 or 2 matrices, not 4"):
        ldmatrix_atom(4, transpose=True, element_bits=8)
    with pytest.raises(RequestError, match=r"there is no cp.async.cg of 64 bits; there is cp.async.ca with 32, "):
        cp_async_atom("cp.async.cg", 64)


@pytest.mark.parametrize(
    ("instruction", "having"),
    [
        (Instruction.MMA_SYNC, "sm_80 sm_86 sm_89 sm_90 sm_100 sm_103 sm_120"),
        (Instruction.MMA_SYNC_FLOAT8, "sm_89 sm_90 sm_100 sm_103 sm_120"),
        (Instruction.BULK_TENSOR, "sm_90 sm_100 sm_103 sm_120"),
        (Instruction.LDMATRIX_B8_TRANS, "sm_100 sm_103 sm_120"),
        (Instruction.WGMMA, "sm_90"),
    ],
)
def test_a_later_target_need_not_have_what_an_earlier_one_has(instruction: Instruction, having: str) -> None:
    """PTX ISA, "Target ISA Notes": `wgmma.mma_async` requires sm_90a, and no later target has it."""
    assert targets_with(instruction) == tuple(having.split())
    assert {name for name, row in TARGETS.items() if row.has(Instruction.CP_ASYNC, instruction)} == {*having.split()}


def test_every_name_of_the_package_is_there_and_none_is_that_of_a_module_imported_later() -> None:
    """Its import would put the module in the name's place."""
    assert all(hasattr(hardware, name) for name in hardware.__all__)
    assert not {*hardware.__all__} & {*hardware._OF_LAYOUTS}
