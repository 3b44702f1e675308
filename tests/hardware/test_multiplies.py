"""What each multiply instruction can do, against its atoms: a row that disagrees with its instruction is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.algebra import Layout
from cutegen.hardware import (
    MMA_ATOMS,
    MULTIPLIES,
    TCGEN05_ATOMS,
    UNIVERSAL_FMA,
    WGMMA_ATOMS,
    Instruction,
    Issuer,
    MmaAtom,
    OperandSource,
)

ATOMS = (UNIVERSAL_FMA, *MMA_ATOMS.values(), *WGMMA_ATOMS.values(), *TCGEN05_ATOMS.values())


def test_atoms_are_executed_by_the_issuer_of_their_instruction() -> None:
    assert {(atom.instruction, atom.threads) for atom in ATOMS} == {
        (Instruction.FMA, 1),
        (Instruction.MMA_SYNC, 32),
        (Instruction.WGMMA, 128),
        (Instruction.TCGEN05, 32),
    }
    assert all(atom.threads == atom.multiply.issued_by.threads for atom in ATOMS)


def test_every_home_of_an_operand_has_an_atom_that_uses_it() -> None:
    """But the integer forms, all homes that the PTX ISA gives to A are those of atoms here."""
    for instruction, row in MULTIPLIES.items():
        of_instruction = [atom for atom in ATOMS if atom.instruction is instruction]
        assert {atom.a_source for atom in of_instruction} == row.reads_a
        assert {atom.b_source for atom in of_instruction} == row.reads_b
        assert {atom.source("C") for atom in of_instruction} == {row.accumulates_in}


def test_instructions_that_read_shared_memory_complete_later() -> None:
    later = {each for each, row in MULTIPLIES.items() if row.asynchronous}
    assert later == {Instruction.WGMMA, Instruction.TCGEN05}
    assert later == {each for each, row in MULTIPLIES.items() if OperandSource.SMEM in row.reads_b}


def row_of(atom: MmaAtom, **changes: object) -> None:
    replace(atom, **changes)  # type: ignore[arg-type]


def test_an_atom_of_another_issuer_or_source_is_refused() -> None:
    atom = MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"]
    with pytest.raises(ValueError, match=r"mma\.sync is issued by a warp"):
        row_of(atom, b_source=OperandSource.SMEM, b_layout=Layout((32, 128), (0, 1)))
    whole = {"a_layout": Layout((128, 2)), "b_layout": Layout((128, 1)), "c_layout": Layout((128, 1))}
    with pytest.raises(ValueError, match=r"mma\.sync is issued by a warp"):
        row_of(atom, thr_id=Layout(128), **whole)
    wgmma = next(iter(WGMMA_ATOMS.values()))
    _, n, k = wgmma.shape_mnk
    with pytest.raises(ValueError, match=r"wgmma\.mma_async is issued by a warpgroup"):
        row_of(wgmma, b_source=OperandSource.RMEM, b_layout=Layout((128, n * k // 128)))
    assert Issuer.WARP.threads == 32
