"""ldmatrix traces against the PTX ISA's definition, and the rule for how many matrices a thread can take."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cutegen.algebra import Layout, OperandName, TiledCopy, TiledMma, offsets, parse_layout, tile_to_shape
from cutegen.hardware import MMA_ATOMS, LdmatrixTrace, ldmatrix_atom, ldmatrix_trace, wavefronts

ATOMS = ["SM80_16x8x8_F32F16F16F32_TN", "SM80_16x8x16_F32BF16BF16F32_TN"]
ATOM_LAYOUTS = [(1, 1, 1), (2, 2, 1), (4, 1, 1), (1, 4, 1), (2, 1, 2)]
TILE = {"A": (128, 64), "B": (128, 64)}


def tiled_mma(atom: str, atom_layout: tuple[int, int, int], repeats: tuple[int, int, int]) -> TiledMma:
    smallest = TiledMma(MMA_ATOMS[atom], atom_layout).tile_mnk
    return TiledMma(MMA_ATOMS[atom], atom_layout, [e * r for e, r in zip(smallest, repeats, strict=True)])


def smem_layout(op: OperandName, k_major: bool) -> Layout:
    x, y = TILE[op]
    return Layout((x, y), (y, 1)) if k_major else Layout((x, y), (1, x))


MMAS = [
    pytest.param(tiled_mma(*case), id=f"{case[0][5:12]}-{case[1]}-{case[2]}")
    for case in product(ATOMS, ATOM_LAYOUTS, [(1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 4, 1), (1, 2, 2)])
]


def rows_by_the_isa(trace: LdmatrixTrace, *, transpose: bool) -> np.ndarray:
    """What each register must receive of the rows that were addressed: [instr, thread, value].

    PTX ISA, ldmatrix: lane 8i+r addresses row r of matrix i; lane l receives elements 2(l%4) and 2(l%4)+1 of row l/4 of
    each matrix, of its transpose with .trans.
    """
    lane, register = np.arange(32)[:, None], np.arange(trace.rows // 4)
    matrix, row, column = register // 2, lane // 4, 2 * (lane % 4) + register % 2
    if transpose:
        row, column = column, row
    received = trace.source_coords[:, :, 8 * matrix + row, column]
    return received.reshape(len(received), -1, trace.rows // 4)


@pytest.mark.parametrize("mma", MMAS)
@pytest.mark.parametrize("op", ["A", "B"])
@pytest.mark.parametrize("transpose", [False, True])
def test_registers_receive_what_the_mma_wants(mma: TiledMma, op: OperandName, transpose: bool) -> None:
    smem = smem_layout(op, k_major=not transpose)
    for matrices in (1, 2, 4):
        atom = ldmatrix_atom(matrices, transpose=transpose)
        if mma.values(op) % (2 * matrices):
            with pytest.raises(ValueError, match="uses too few vals for selected CopyAtom"):
                TiledCopy.for_mma(atom, mma, op, 16)
            with pytest.raises(ValueError, match="uses too few vals for selected CopyAtom"):
                ldmatrix_trace(mma, op, smem, atom)
            continue
        trace = ldmatrix_trace(mma, op, smem, atom)
        assert trace.legal
        assert np.array_equal(trace.destination_coords, rows_by_the_isa(trace, transpose=transpose))
        # Each thread receives exactly what partition_A or partition_B says that it holds.
        identity = Layout(TILE[op])
        for thread in (0, 1, mma.threads - 1):
            held = mma.partition(op, identity, thread).offsets()
            assert np.array_equal(np.sort(trace.destination_coords[:, thread].ravel()), np.sort(held))
        TiledCopy.for_mma(atom, mma, op, 16)


@pytest.mark.parametrize("mma", MMAS[::7])
@pytest.mark.parametrize("op", ["A", "B"])
@pytest.mark.parametrize("transpose", [False, True])
def test_tiled_copy_addresses_the_same_rows(mma: TiledMma, op: OperandName, transpose: bool) -> None:
    """TiledCopy.partition_s, a port of CuTe, against the enumeration, which knows nothing of TiledCopy."""
    swizzled = "Sw<3,3,3> o (64,8):(1,64)" if transpose else "Sw<3,3,3> o (8,64):(64,1)"
    smem = tile_to_shape(parse_layout(swizzled), TILE[op])
    matrices = max(n for n in (1, 2, 4) if mma.values(op) % (2 * n) == 0)
    atom = ldmatrix_atom(matrices, transpose=transpose)
    trace, copy = ldmatrix_trace(mma, op, smem, atom), TiledCopy.for_mma(atom, mma, op, 16)
    for thread in (0, 3, 17, mma.threads - 1):
        read = copy.partition_s(smem, thread).offsets().reshape(-1, 8)
        traced = trace.source_offsets[:, thread // 32, thread % 32]
        assert sorted(map(tuple, read.tolist())) == sorted(map(tuple, traced.tolist()))


@pytest.mark.parametrize(
    ("atom", "atom_layout", "repeats", "largest"),
    [
        (ATOMS[1], (2, 2, 1), (1, 1, 1), {"A": 4, "B": 2}),
        (ATOMS[1], (2, 2, 1), (1, 2, 1), {"A": 4, "B": 4}),
        (ATOMS[0], (2, 2, 1), (1, 1, 2), {"A": 4, "B": 2}),
        (ATOMS[0], (2, 2, 1), (1, 1, 1), {"A": 2, "B": 1}),
        (ATOMS[0], (2, 2, 1), (1, 2, 1), {"A": 2, "B": 2}),
        (ATOMS[0], (2, 2, 1), (1, 4, 1), {"A": 2, "B": 4}),
    ],
)
def test_largest_count(
    atom: str, atom_layout: tuple[int, int, int], repeats: tuple[int, int, int], largest: dict[OperandName, int]
) -> None:
    mma = tiled_mma(atom, atom_layout, repeats)
    for op, matrices in largest.items():
        assert max(n for n in (1, 2, 4) if mma.values(op) % (2 * n) == 0) == matrices


@pytest.mark.parametrize("op", ["A", "B"])
@pytest.mark.parametrize("transpose", [False, True])
def test_the_wrong_transposition_is_illegal_everywhere(op: OperandName, transpose: bool) -> None:
    mma = tiled_mma(ATOMS[1], (2, 2, 1), (1, 2, 1))
    trace = ldmatrix_trace(mma, op, smem_layout(op, k_major=transpose), ldmatrix_atom(4, transpose=transpose))
    rows = trace.row_offsets_bytes.size
    assert not trace.legal
    complaint = trace.illegal_rows()
    assert complaint is not None
    along, stride = ("(7,0)", 64) if transpose else ("(0,7)", 128)
    assert complaint == (
        f"the row of 8 elements (0,0) to {along} lies {stride} elements apart in shared memory, "
        f"not 16 contiguous bytes ({rows} of {rows} rows)"
    )


def test_a_row_that_starts_off_16_bytes_is_illegal() -> None:
    mma = tiled_mma(ATOMS[1], (1, 1, 1), (1, 1, 1))
    trace = ldmatrix_trace(mma, "A", Layout((16, 16), (20, 1)), ldmatrix_atom(4, transpose=False))
    assert (
        trace.illegal_rows()
        == "the row of 8 elements (1,0) to (1,7) starts at byte 40, not a multiple of 16 (16 of 32 rows)"
    )


def test_a_swizzle_that_breaks_rows_is_illegal() -> None:
    mma = tiled_mma(ATOMS[1], (1, 1, 1), (1, 1, 1))
    broken = tile_to_shape(parse_layout("Sw<3,2,3> o (8,32):(32,1)"), (16, 32))
    trace = ldmatrix_trace(mma, "A", broken, ldmatrix_atom(4, transpose=False))
    assert not trace.legal
    assert "not 16 contiguous bytes" in str(trace.illegal_rows())


def test_a_legal_trace_has_nothing_to_complain_of() -> None:
    mma = tiled_mma(ATOMS[1], (2, 2, 1), (1, 2, 1))
    assert ldmatrix_trace(mma, "A", smem_layout("A", True), ldmatrix_atom(4, transpose=False)).illegal_rows() is None


def test_the_tile_must_be_a_multiple_of_the_mma_tile() -> None:
    mma = tiled_mma(ATOMS[1], (4, 1, 1), (1, 1, 1))
    with pytest.raises(ValueError, match=r"tile \(64, 16\) does not divide the tile \(96, 64\)"):
        ldmatrix_trace(mma, "A", Layout((96, 64), (64, 1)), ldmatrix_atom(4, transpose=False))


@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_only_addressing_lanes_count(matrices: int) -> None:
    """x1 and x2 take 8 and 16 addresses; the other lanes' addresses are ignored and cost nothing."""
    mma = tiled_mma(ATOMS[1], (2, 2, 1), (1, 2, 1))
    smem = tile_to_shape(parse_layout("Sw<3,3,3> o (8,64):(64,1)"), TILE["A"])
    trace = ldmatrix_trace(mma, "A", smem, ldmatrix_atom(matrices, transpose=False))
    assert set(wavefronts(trace.row_offsets_bytes, 16).ravel().tolist()) == {matrices}


def test_every_element_of_the_tile_is_read() -> None:
    mma = tiled_mma(ATOMS[1], (2, 2, 1), (1, 2, 1))
    smem = tile_to_shape(parse_layout("(8,64):(72,1)"), TILE["B"])
    trace = ldmatrix_trace(mma, "B", smem, ldmatrix_atom(4, transpose=False))
    assert np.array_equal(np.unique(trace.source_offsets), np.sort(offsets(smem)))
