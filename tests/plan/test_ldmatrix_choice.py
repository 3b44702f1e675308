"""Which ldmatrix is chosen, and what it delivers: derived again from PTX ISA's fragments, not from the plan's code."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from cutegen.algebra import Layout, offsets
from cutegen.hardware import MMA_ATOMS, LdmatrixAtom
from cutegen.plan import GemmPlan, plan
from cutegen.plan.values.path import OperandPath
from cutegen.spec import Mma, Tile
from tests.plan.specs import gemm, types_of

CTA_ROWS, CTA_K_BYTES = (64, 64), 64
ATOM_LAYOUTS = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (4, 1, 1), (1, 4, 1), (4, 2, 1)]
REPEATS = [(1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 1, 1), (1, 4, 1), (2, 2, 2)]
LANE = np.arange(32)
EACH_OF_16 = [atom for atom in MMA_ATOMS if "F32F16F16F32" in atom]
OF_16_BITS = [name for name, atom in MMA_ATOMS.items() if atom.a_dtype.bits == 16]
OF_8_AND_32_BITS = [  # 8-bit floats have the fragments of integers
    "SM80_16x8x4_F32TF32TF32F32_TN",
    "SM80_16x8x8_F32TF32TF32F32_TN",
    "SM80_16x8x16_S32S8S8S32_TN_SATURATE",
    "SM80_16x8x32_S32S8S8S32_TN_SATURATE",
]


def permuted(
    atom: str, atom_layout: tuple[int, int, int], repeat: tuple[int, int, int], majors: str, arch: str = "sm_89"
) -> GemmPlan | None:
    """The plan, its permutation `repeat` times warps x atom; None where the CTA tile has no room for that."""
    shape = MMA_ATOMS[atom].shape_mnk
    permutation = tuple(s * w * r for s, w, r in zip(shape, atom_layout, repeat, strict=True))
    cta = (*CTA_ROWS, CTA_K_BYTES // MMA_ATOMS[atom].a_dtype.bytes)
    if any(extent % p for extent, p in zip(cta, permutation, strict=True)) or cta[2] < 2 * permutation[2]:
        return None
    mma = Mma(atom=atom, atom_layout=atom_layout, permutation=(permutation[0], permutation[1], permutation[2]))
    dtype, accumulator = types_of(atom)
    b_dtype = MMA_ATOMS[atom].b_dtype.name
    return plan(gemm(majors, dtype, accumulator, b_dtype=b_dtype, tile=Tile(cta=cta, stages=2), mma=mma), arch)


def matrix(atoms: list[str], majors: list[str]) -> list[Any]:
    return list(product(atoms, ATOM_LAYOUTS, REPEATS, majors))


def transposes_bytes(operand: OperandPath) -> bool:
    """Return whether its matrices are 16x16 of 8 bits."""
    return operand.dtype.bits == 8 and operand.major != "k"


def largest_by_hand(plan: GemmPlan, operand: OperandPath) -> int:
    """A thread holds rows x k / 32 values of each atom, as often as its warp repeats the atom in the tile.

    Of each matrix it receives 32 bits, of one of 16x16 twice as many, and then there are two at most.
    """
    atom_m, atom_n, atom_k = plan.atom.shape_mnk
    mode = "ab".index(operand.name)
    rows = (atom_m, atom_n)[mode]
    warps = plan.spec.mma.atom_layout
    permutation = plan.spec.mma.permutation
    assert warps is not None
    assert permutation is not None
    values = rows * atom_k // 32 * (permutation[mode] // (rows * warps[mode])) * (permutation[2] // atom_k)
    counts, bits = ((1, 2), 64) if transposes_bytes(operand) else ((1, 2, 4), 32)
    return max(matrices for matrices in counts if values * operand.dtype.bits % (bits * matrices) == 0)


def fragment_by_hand(plan: GemmPlan, operand: OperandPath) -> np.ndarray[Any, Any]:
    """Column-major tile coordinate of each register, int[thread, atom's value, repetition along X, along K].

    PTX ISA, fragments of mma.m16n8k4 to mma.m16n8k32: a register holds e = 32 / bits neighbors along k, at
    e (lane mod 4). A's registers go through rows lane / 4 and lane / 4 + 8, then k + 4 e; B's, at n = lane / 4, through
    k and k + 4 e. A warp's atoms along X take turns with those of the other warps, one by one; where rows of 16
    columns are transposed, two by two.
    """
    _, _, atom_k = plan.atom.shape_mnk
    halves_of_rows = 2 if operand.name == "a" else 1
    e = 32 // operand.dtype.bits
    values = halves_of_rows * e * (atom_k // (4 * e))
    value = np.arange(values)
    row = LANE[:, None] // 4 + 8 * (value // e % halves_of_rows)
    k = e * (LANE[:, None] % 4) + value % e + 4 * e * (value // (e * halves_of_rows))
    assert plan.spec.mma.atom_layout is not None
    warps_m, warps_n, _ = plan.spec.mma.atom_layout
    warp = np.arange(warps_m * warps_n)
    own, warps = (warp % warps_m, warps_m) if operand.name == "a" else (warp // warps_m, warps_n)
    rows = 8 * halves_of_rows
    repeat_x = np.arange(operand.tile[0] // (rows * warps))
    repeat_k = np.arange(operand.tile[1] // atom_k)
    together = 16 // rows if transposes_bytes(operand) else 1
    turn, within = repeat_x[:, None] // together, repeat_x[:, None] % together
    atom_x = within + together * (own[:, None, None, None, None] + warps * turn)
    x = row[None, :, :, None, None] + rows * atom_x
    y = k[None, :, :, None, None] + atom_k * repeat_k
    return (x + y * operand.tile[0]).reshape(-1, values, len(repeat_x), len(repeat_k))


def delivered(plan: GemmPlan, operand: OperandPath) -> np.ndarray[Any, Any]:
    """The same table as ldmatrix fills it: lanes address the rows of one matrix after the other (PTX ISA, ldmatrix).

    A thread receives of matrices of 8 rows one register, of those of 16 rows a second one, from eight rows further on.
    """
    atom, copy, coordinates = operand.s2r.atom, operand.s2r.tiled_copy, Layout(operand.tile)
    e = 32 // operand.dtype.bits
    assert isinstance(atom, LdmatrixAtom)
    placed = offsets(operand.smem.layout)[: operand.tile[0] * operand.tile[1]]
    element_at = np.full(int(placed.max()) + 1, -1)
    element_at[placed] = np.arange(len(placed))
    sources = []
    for thread in range(plan.threads):
        read = copy.partition_s(coordinates, thread).offsets().reshape(4 * e, -1, order="F")
        sources.append(placed[read[0]])  # the address alone: ldmatrix takes what lies behind it
    rows = element_at[np.array(sources)[:, :, None] + np.arange(4 * e)]  # [thread, instruction, 16 bytes]
    height = 16 if transposes_bytes(operand) else 8
    rows = rows.reshape(-1, 32, *rows.shape[1:])[:, : height * atom.matrices]
    matrices = rows.reshape(len(rows), atom.matrices, height, -1, 4 * e).transpose(0, 3, 1, 2, 4)
    if atom.transpose:
        matrices = matrices.swapaxes(-1, -2)
    lane, half = LANE[:, None, None], np.arange(height // 8)[:, None]
    register = matrices[:, :, :, lane // 4 + 8 * half, e * (lane % 4) + np.arange(e)]
    received = register.transpose(0, 3, 1, 2, 4, 5).reshape(plan.threads, -1)  # [thread, instruction x register x e]
    in_registers = np.full(received.shape, -1)
    fragment = plan.tiled_mma.fragment(operand.operand, coordinates, 0)
    in_registers[:, offsets(operand.s2r.retile(fragment))] = received
    _, values, along_x, along_k = fragment_by_hand(plan, operand).shape
    return in_registers[:, offsets(fragment)].reshape(-1, along_k, along_x, values).transpose(0, 3, 2, 1)


def check(
    atom: str, atom_layout: tuple[int, int, int], repeat: tuple[int, int, int], majors: str, arch: str = "sm_89"
) -> bool:
    """Return whether the CTA tile has room for the combination; if so, it is right."""
    found = permuted(atom, atom_layout, repeat, majors, arch)
    if found is None:
        return False
    for operand in found.operands:
        if transposes_bytes(operand) and operand.name == "b" and repeat[1] % 2:
            assert operand.s2r.matrices is None  # a warp has 8 neighbors along N
            continue
        assert operand.s2r.matrices == largest_by_hand(found, operand)
        assert operand.s2r.transpose == (operand.major != "k")
        assert np.array_equal(delivered(found, operand), fragment_by_hand(found, operand))
    return True


@pytest.mark.parametrize("atom_layout", ATOM_LAYOUTS, ids=str)
@pytest.mark.parametrize("atom", EACH_OF_16)
def test_the_largest_ldmatrix_delivers_every_element(atom: str, atom_layout: tuple[int, int, int]) -> None:
    for repeat, majors in zip(REPEATS[:3], ["mnn", "kkn", "mkn"], strict=True):
        check(atom, atom_layout, repeat, majors)


@pytest.mark.slow
@pytest.mark.parametrize("majors", ["mkn", "knn"])  # A and B each with both, of which the other knows nothing
@pytest.mark.parametrize("atom", EACH_OF_16)
def test_every_combination(atom: str, majors: str) -> None:
    for atom_layout, repeat in product(ATOM_LAYOUTS, REPEATS):
        check(atom, atom_layout, repeat, majors)


@pytest.mark.parametrize("atom", [atom for atom in OF_16_BITS if atom not in EACH_OF_16])
def test_other_16_bit_types_lie_as_f16_does(atom: str) -> None:
    """Fragments of A and B are those of the f16 atom of the same K, whatever the sums are; each major once."""
    shape = MMA_ATOMS[atom].shape_mnk
    (like,) = (MMA_ATOMS[other] for other in EACH_OF_16 if MMA_ATOMS[other].shape_mnk == shape)
    assert (MMA_ATOMS[atom].a_layout, MMA_ATOMS[atom].b_layout) == (like.a_layout, like.b_layout)
    for majors in ("mkn", "knn"):
        assert check(atom, (2, 2, 1), (1, 2, 1), majors)


@pytest.mark.parametrize("atom", OF_8_AND_32_BITS)
def test_rows_of_16_bytes_serve_8_and_32_bits_as_well(atom: str) -> None:
    """K-major operands: b16 is a way to move 16 bytes, whatever lies in them."""
    tried = [check(atom, layout, repeat, "kkn") for layout, repeat in zip(ATOM_LAYOUTS, REPEATS, strict=True)]
    assert sum(tried) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("atom", OF_8_AND_32_BITS)
def test_every_combination_of_8_and_32_bits(atom: str) -> None:
    for atom_layout, repeat in product(ATOM_LAYOUTS, REPEATS):
        check(atom, atom_layout, repeat, "kkm")


@pytest.mark.parametrize(
    "atom", [OF_8_AND_32_BITS[2], pytest.param("SM89_16x8x32_F32E4M3E5M2F32_TN", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("majors", ["mnn", "knm", "mkn"])
def test_rows_of_8_bit_elements_are_transposed_on_sm_100(atom: str, majors: str) -> None:
    cases = zip(ATOM_LAYOUTS, [(1, 2, 1), (1, 2, 2), (1, 1, 1), (1, 4, 1), (2, 2, 1), (1, 2, 1)], strict=True)
    tried = [check(atom, layout, repeat, majors, "sm_100") for layout, repeat in cases]
    assert sum(tried) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("atom", OF_8_AND_32_BITS[2:])
def test_every_combination_of_transposed_8_bits(atom: str) -> None:
    for atom_layout, repeat in product(ATOM_LAYOUTS, REPEATS):
        check(atom, atom_layout, repeat, "mnn", "sm_120")


@pytest.mark.parametrize(
    ("atom", "permutation", "a", "b"),
    [
        ("SM80_16x8x16_F32F16F16F32_TN", (32, 16, 16), 4, 2),
        ("SM80_16x8x16_F32F16F16F32_TN", (32, 32, 16), 4, 4),
        ("SM80_16x8x8_F32F16F16F32_TN", (32, 16, 8), 2, 1),
        ("SM80_16x8x8_F32F16F16F32_TN", (32, 32, 8), 2, 2),
        ("SM80_16x8x8_F32F16F16F32_TN", (32, 64, 8), 2, 4),
        ("SM80_16x8x8_F32F16F16F32_TN", (32, 32, 16), 4, 4),
    ],
)
@pytest.mark.parametrize("majors", ["kkn", "mnm"])
def test_counts_of_two_by_two_warps(atom: str, permutation: tuple[int, int, int], a: int, b: int, majors: str) -> None:
    """Known from the DSL: a larger count would be wrong, a smaller one works and is slower."""
    mma = Mma(atom=atom, atom_layout=(2, 2, 1), permutation=permutation)
    found = plan(gemm(majors, tile=Tile(cta=(128, 128, 64), stages=2), mma=mma), "sm_80")
    assert (found.a.s2r.matrices, found.b.s2r.matrices) == (a, b)


@pytest.mark.parametrize(("n", "matrices"), [(8, 2), (16, 4), (24, 2), (32, 4), (48, 4), (56, 2)])
def test_a_count_divides_the_values_it_does_not_only_fit_into_them(n: int, matrices: int) -> None:
    """A thread holds 4 values of B an atom of 8 columns: 3 atoms are 12 values, and x4 brings 8."""
    mma = Mma(atom="SM80_16x8x16_F32F16F16F32_TN", atom_layout=(2, 1, 1), permutation=(32, n, 16))
    found = plan(gemm("kkn", tile=Tile(cta=(64, 2 * n, 32), stages=2), mma=mma), "sm_80")
    assert found.tiled_mma.values("B") == n // 2
    assert found.b.s2r.matrices == matrices == largest_by_hand(found, found.b)
    assert np.array_equal(delivered(found, found.b), fragment_by_hand(found, found.b))
