"""Atoms and descriptors of tcgen05, against the PTX executor's own reading of them.

The executor decodes descriptors by the PTX ISA, independently of the planner: one writes what the other reads.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cutegen.algebra import offsets
from cutegen.hardware import (
    GMMA_LAYOUTS,
    TCGEN05_ATOMS,
    Instruction,
    MatrixDescriptor,
    operand_descriptors,
    resolve_target,
    target,
)
from cutegen.hardware.tcgen05 import COLUMNS, KINDS, LANES, columns_allocated, instruction_descriptor, kind_of
from cutegen.ptx.machine.descriptor import decode_instruction, tcgen05_chunks


@pytest.mark.parametrize("form", KINDS)
def test_an_instruction_descriptor_is_read_as_it_was_written(form: str) -> None:
    kind = KINDS[form]
    atoms = [atom for atom in TCGEN05_ATOMS.values() if kind_of(atom) is kind]
    shapes = {(1, 128), (2, 256)} if kind.factors else {(1, 64), (1, 128), (2, 128), (2, 256)}
    assert {(atom.ctas, atom.shape_mnk[0]) for atom in atoms} == shapes
    modes = [(1, 1)] if atoms[0].a_dtype.values > 1 else list(product((0, 1), repeat=2))
    for atom, (a_mode, b_mode) in product(atoms, modes):
        found = decode_instruction(kind.name, instruction_descriptor(atom, a_mode, b_mode).encode(), atom.ctas)
        assert (found.m, found.n) == atom.shape_mnk[:2]
        assert (found.transposes_a, found.transposes_b) == (a_mode == 0, b_mode == 0)
        assert (found.a, found.b, found.d) == (
            *(x.name.removesuffix("x2") for x in (atom.a_dtype, atom.b_dtype)),
            "f32" if kind.factors else atom.c_dtype.name,
        )
        assert found.factors == kind.factors
        assert found.saturates == atom.c_dtype.is_integer


def test_descriptors_that_public_kernels_have() -> None:
    """What the CuTe DSL writes: f16 with sums in f32, both operands M- or N-major, sums in f16; other kinds; tiles of
    128 bytes.
    """
    atom = TCGEN05_ATOMS["SM100_128x256x16_F32F16F16_SS"]
    assert instruction_descriptor(atom, 1, 1).encode() == 0x8400010
    assert instruction_descriptor(TCGEN05_ATOMS["SM100_256x256x16_F32BF16BF16_2x1SM_SS"], 1, 1).encode() == 0x10400490
    assert instruction_descriptor(TCGEN05_ATOMS["SM100_128x128x16_F32F16F16_SS"], 0, 0).encode() == 0x8218010
    assert instruction_descriptor(TCGEN05_ATOMS["SM100_128x128x16_F16F16F16_SS"], 1, 1).encode() == 0x8200000
    scaled = {
        "F32E4M3E4M3_UE8M0_VS32": 0x8A00000,
        "F32E2M1E2M1_UE8M0_VS32": 0x8A00480,
        "F32E2M1E2M1_UE4M3_VS16": 0x8200480,
    }
    for types, bits in scaled.items():
        k = 32 if "E4M3E4M3" in types else 64
        assert instruction_descriptor(TCGEN05_ATOMS[f"SM100_128x128x{k}_{types}_SS"], 1, 1).encode() == bits
    assert instruction_descriptor(TCGEN05_ATOMS["SM100_128x128x8_F32TF32TF32_SS"], 1, 1).encode() == 0x8200910
    assert instruction_descriptor(TCGEN05_ATOMS["SM100_128x128x32_S32S8S8_SS"], 1, 1).encode() == 0x82004A8
    assert instruction_descriptor(TCGEN05_ATOMS["SM100_128x128x32_F32E5M2E5M2_SS"], 0, 0).encode() == 0x8218490
    k_major = operand_descriptors(GMMA_LAYOUTS["Layout_K_SW128_Atom"].tile((128, 64), 16), 1, 2, rows=128)
    assert replace(k_major.first, version=1).encode() == 0x4000404000010000
    mn_major = operand_descriptors(GMMA_LAYOUTS["Layout_MN_SW128_Atom"].tile((128, 64), 16), 0, 2, rows=128)
    assert replace(mn_major.first, version=1).encode() == 0x4000404002000000


@pytest.mark.parametrize("name", GMMA_LAYOUTS)
def test_the_executor_reads_a_block_where_the_layout_has_it(name: str) -> None:
    layout, rows, depth = GMMA_LAYOUTS[name], 128, 64
    tile = layout.tile((rows, depth), 16)
    found = operand_descriptors(tile, layout.major_mode, 2, rows=rows)
    placed = offsets(tile).reshape(depth, rows) * 2
    for k_block in range(depth // 16):
        step = int(np.atleast_1d(offsets(found.steps))[k_block])
        bits = replace(found.first, version=1).advanced(step).encode()
        chunks = tcgen05_chunks(bits, rows, k_major=layout.major_mode == 1, element_bytes=2)
        block = placed[16 * k_block : 16 * (k_block + 1)]
        first = block[::8].T if layout.major_mode == 1 else block[:, ::8]
        assert set(map(int, np.asarray(chunks).ravel())) == set(map(int, first.ravel()))


def test_a_descriptor_comes_back() -> None:
    found = operand_descriptors(GMMA_LAYOUTS["Layout_K_SW64_Atom"].tile((128, 32), 16), 1, 2, rows=128).first
    of_tcgen05 = replace(found, version=1)
    assert MatrixDescriptor.decode(of_tcgen05.encode()) == of_tcgen05
    assert of_tcgen05.encode() ^ found.encode() == 1 << 46


def test_tensor_memory_by_hand() -> None:
    assert LANES * COLUMNS * 4 == 256 * 1024  # bytes of an SM
    assert [columns_allocated(columns) for columns in (1, 32, 33, 2 * 96, 2 * 256)] == [32, 32, 64, 256, 512]


@pytest.mark.parametrize("name", ["b200", "gb200", "b300", "gb300", "sm_100a", "sm_103a"])
def test_data_center_blackwells_have_it(name: str) -> None:
    found = resolve_target(name)
    assert found.has(Instruction.TCGEN05)
    assert found.gpu_arch == ("sm_103a" if "3" in name else "sm_100a")


def test_integers_are_of_one_target() -> None:
    assert [target(name).has(*KINDS["i8"].needs) for name in ("sm_100", "sm_103")] == [True, False]


def test_others_do_not() -> None:
    assert not any(target(name).has(Instruction.TCGEN05) for name in ("sm_90", "sm_120"))
