"""The plan of a probe: its registers by PTX ISA's tables, its loads by arithmetic, its refusals by both."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cutegen.errors import SpecError
from cutegen.hardware import LDMATRIX_ATOMS, MMA_ATOMS
from cutegen.plan import GemmPlan, ProbePlan, plan
from cutegen.render import render
from cutegen.spec import GEMM, PROBE, S2r, S2rCopy, load_spec
from tests.plan.probes import (
    ALL_CELLS,
    CTA_M,
    CTA_N,
    LDMATRIX,
    ONE_OF_EACH_K,
    REPEATS,
    WARPS_M,
    WARPS_N,
    Cell,
    atom_by_hand,
    bits_of,
    cells,
    fragments_by_hand,
    matrix,
    probe,
)


def planned(spec: object, arch: str = "sm_89") -> ProbePlan:
    found = plan(spec, arch)  # type: ignore[arg-type]
    assert isinstance(found, ProbePlan)
    return found


def of_cell(cell: Cell) -> ProbePlan:
    """The probe that asks for this cell and leaves the other operand open."""
    return planned(probe(cell.atom, cell.repeat, **{cell.operand: cell}), cell.arch)


def literally(operand: str, k: int, lane: int) -> list[tuple[int, int]]:
    """PTX ISA's own formulas of 16-bit fragments, m16n8k16 and m16n8k8."""
    group, thread_in_group = lane // 4, lane % 4
    if (operand, k) == ("a", 16):
        rows = [group if 0 <= i < 2 or 4 <= i < 6 else group + 8 for i in range(8)]
        return [(rows[i], thread_in_group * 2 + (i & 0x1) + (8 if i >= 4 else 0)) for i in range(8)]
    if (operand, k) == ("a", 8):
        return [(group if i < 2 else group + 8, thread_in_group * 2 + (i & 0x1)) for i in range(4)]
    if (operand, k) == ("b", 16):
        return [(group, thread_in_group * 2 + (i & 0x1) + (8 if i >= 2 else 0)) for i in range(4)]
    return [(group, thread_in_group * 2 + i) for i in range(2)]


@pytest.mark.parametrize("k", [8, 16])
@pytest.mark.parametrize("operand", ["a", "b"])
def test_the_tables_by_hand_say_what_ptx_isa_says(operand: str, k: int) -> None:
    by_hand = np.array(atom_by_hand(operand, k, 16))  # [value, (x, k), lane]
    assert [[tuple(element) for element in by_hand[:, :, lane].tolist()] for lane in range(32)] == [
        literally(operand, k, lane) for lane in range(32)
    ]


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("atom", MMA_ATOMS)
def test_registers_are_those_of_ptx_isa(atom: str, repeat: int) -> None:
    found = planned(probe(atom, repeat))
    for operand in found.operands:
        table, by_hand = found.fragments(operand), fragments_by_hand(operand.name, atom)
        assert np.array_equal(table.coordinates, by_hand[..., 0] + by_hand[..., 1] * operand.tile[0])
        assert table.registers * 32 == table.values * bits_of(atom)


BYTES = ("SM80_16x8x16_S32S8S8S32_TN_SATURATE", "SM80_16x8x32_S32S8S8S32_TN_SATURATE")


@pytest.mark.parametrize("repeat", [2, 4])
@pytest.mark.parametrize("atom", BYTES)
def test_columns_that_are_transposed_are_in_pairs(atom: str, repeat: int) -> None:
    """The registers are PTX ISA's; which columns a warp has follows from the rows that ldmatrix reads."""
    for cell in (cell for cell in cells("b", atom, repeat, "sm_120") if cell.possible):
        found = of_cell(cell)
        for operand in found.operands:
            in_pairs = operand.name == "b" and cell.major == "n"
            by_hand = fragments_by_hand(operand.name, atom, in_pairs=in_pairs)
            table = found.fragments(operand).coordinates
            assert np.array_equal(table, by_hand[..., 0] + by_hand[..., 1] * operand.tile[0])


@pytest.mark.parametrize("atom", BYTES)
def test_exactly_what_the_arithmetic_forbids_is_refused_of_bytes(atom: str) -> None:
    for repeat, operand in product(REPEATS, "ab"):
        for cell in (cell for cell in cells(operand, atom, repeat, "sm_100") if cell.major != "k"):
            if cell.possible:
                load = getattr(of_cell(cell).gemm, operand).s2r
                assert (load.matrices, load.transpose, load.atom.element_bits) == (cell.matrices, True, 8)
            else:
                with pytest.raises(SpecError, match=f"s2r.{operand}.atom: found {cell.s2r.atom}"):
                    of_cell(cell)


def test_a_value_has_a_place_in_the_fragment() -> None:
    found = planned(load_spec("ldmatrix_probe"))
    table = found.fragments(found.gemm.a)
    assert table.extents == (8, 2, 2)
    assert [table.place(value) for value in (0, 7, 8, 16, 31)] == [
        (0, 0, 0),
        (7, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (7, 1, 1),
    ]


def test_the_matrix_has_every_possible_cell() -> None:
    possible = {cell for cell in ALL_CELLS if cell.possible}
    specs = [spec for atom in MMA_ATOMS for repeat in REPEATS for spec in matrix(atom, repeat)]
    assert len({spec.name for spec in specs}) == len(specs)
    asked = {(spec.mma, x, getattr(spec.s2r, x), getattr(spec.smem, x)) for spec in specs for x in "ab"}
    assert len(asked) == len(possible)


def test_so_many_combinations_of_16_bit_types_are_possible() -> None:
    """K = 16: A takes x1, x2, x4, B x1, x2 and repeated also x4; k = 8: A takes x1, x2, B as many as it is repeated."""
    counts = {16: 3 * 3 + (2 + 3 + 3), 8: 3 * 2 + (1 + 2 + 3)}
    cells = [cell for cell in ALL_CELLS if cell.bits == 16]
    atoms = [MMA_ATOMS[atom] for atom in {cell.atom for cell in cells}]
    assert len(cells) == 6 * 3 * 2 * 12 == 432
    assert sum(cell.possible for cell in cells) == sum(4 * counts[atom.shape_mnk[2]] for atom in atoms) == 348


def kind_of(atom: str) -> tuple[object, ...]:
    """What the arithmetic asks: extents and bits. The sums' type and the elements' sign are nothing to it."""
    return MMA_ATOMS[atom].shape_mnk, bits_of(atom)


FIRST_OF_KIND = {kind_of(atom): atom for atom in reversed(MMA_ATOMS)}.values()


@pytest.mark.parametrize(
    "atom", [atom if atom in ONE_OF_EACH_K else pytest.param(atom, marks=pytest.mark.slow) for atom in MMA_ATOMS]
)
def test_exactly_what_the_arithmetic_forbids_is_refused(atom: str) -> None:
    """In all numbers of repetitions of the first atom of its kind, in one of the others."""
    repeats = REPEATS if atom in FIRST_OF_KIND else REPEATS[-1:]
    for cell in (cell for cell in ALL_CELLS if cell.atom == atom and cell.repeat in repeats):
        if cell.possible:
            found = of_cell(cell)
            load = getattr(found.gemm, cell.operand).s2r
            assert (load.matrices, load.transpose) == (cell.matrices, cell.major != "k")
            assert getattr(found.gemm, cell.operand).smem.pad_elems == (0 if cell.swizzled else 128 // cell.bits)
        else:
            with pytest.raises(SpecError, match=f"s2r.{cell.operand}.atom: found {cell.s2r.atom}") as error:
                of_cell(cell)
            if cell.bits == 16:
                assert f"{cell.matrices} matrices hold {2 * cell.matrices} values per thread" in error.value.found
                assert f"V = {cell.values}" in error.value.found
                assert "too few vals" in error.value.expected


@pytest.mark.parametrize("atom", ONE_OF_EACH_K)
def test_the_wrong_orientation_is_refused(atom: str) -> None:
    for cell in (cell for cell in ALL_CELLS if (cell.atom, cell.repeat) == (atom, 4)):
        wrong = LDMATRIX[cell.matrices, cell.major == "k"]
        spec = probe(atom, 4, **{cell.operand: cell}, s2r=S2r(**{cell.operand: S2rCopy(wrong)}))
        with pytest.raises(SpecError, match=f"{wrong} on an operand that is {cell.major.upper()}-major") as error:
            plan(spec, "sm_89")
        assert "elements apart in shared memory, not 16 contiguous bytes" in error.value.expected


def test_instructions_are_counted_by_hand() -> None:
    """A warp's share of one stage, two values of each of 32 lanes a matrix; the stages are a loop at run time."""
    for spec in matrix("SM80_16x8x16_F32F16F16F32_TN", 2):
        counts: Counter[str] = Counter()
        for name, rows in (("a", CTA_M // WARPS_M), ("b", CTA_N // WARPS_N)):
            atom = LDMATRIX_ATOMS[getattr(spec.s2r, name).atom]
            counts[atom.ptx] += rows * 32 // (64 * atom.matrices)
        assert planned(spec).predictions.instructions == counts


def test_a_probe_decides_as_its_gemm_does() -> None:
    spec = load_spec("ldmatrix_probe")
    found, gemm = planned(spec), plan(replace(spec, kind=GEMM), "sm_89")
    assert isinstance(gemm, GemmPlan)
    keys = {decision.key for decision in found.decisions}
    assert keys == {
        *("tile.cta", "tile.stages", "mma.atom", "mma.atom_layout", "mma.permutation"),
        *("s2r.a", "s2r.b", "smem.a", "smem.b"),
    }
    assert found.decisions == tuple(decision for decision in gemm.decisions if decision.key in keys)
    assert replace(found.gemm, spec=gemm.spec) == gemm
    assert (found.launch.threads, found.launch.dynamic_smem_bytes) == (gemm.threads, gemm.smem_bytes)


def test_a_probe_loads_with_the_lines_of_its_gemm() -> None:
    spec = load_spec("ldmatrix_probe")
    loads, gemm = (render(plan(replace(spec, kind=kind), "sm_89")).text for kind in (PROBE, GEMM))
    for first, last in (
        ("    smem = ", "    fill("),
        ("    # Shared to registers", "    # Each thread has its own row"),
    ):
        lines = loads[loads.index(first) : loads.index(last)].rstrip()
        assert lines.count("\n") >= 5
        assert lines in gemm


def test_what_is_said_of_it_is_only_what_it_does() -> None:
    found = planned(load_spec("ldmatrix_probe"))
    told, table = found.explain(), found.to_json()
    assert "LDSM_T" in told
    for word in ("epilogue", "raster", "cp.async", "mma.sync"):
        assert word not in told
        assert word not in json.dumps({key: table[key] for key in ("decisions", "instructions", "wavefronts")})
    assert (table["kind"], table["tile"], table["stages"]) == ("ldmatrix_probe", [64, 64, 32], 2)
    assert table["values"] == {"a": 32, "b": 32}
    assert [parameter["name"] for parameter in table["launch"]["parameters"]] == [
        *("a", "b", "registers_a", "registers_b", "lda", "ldb")
    ]


def test_a_family_without_probes_is_told_so() -> None:
    spec = replace(load_spec("sm120_hgemm_tn"), kind=PROBE)
    with pytest.raises(
        SpecError, match=r'family: found "sm120", which has no probe; expected "sm80".*; leave family out'
    ):
        plan(spec, "sm_90")
    assert plan(replace(spec, family=None), "sm_90").spec.kind == PROBE


def test_kinds_are_checked() -> None:
    with pytest.raises(SpecError, match='kind: found "probe"; expected "gemm" or "ldmatrix_probe"'):
        replace(load_spec("sm80_hgemm_tn"), kind="probe")
    assert replace(load_spec("sm80_hgemm_tn"), kind="ldmatrix_probe") != load_spec("sm80_hgemm_tn")
