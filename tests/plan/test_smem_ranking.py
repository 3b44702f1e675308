"""Known bank conflicts: of layouts that others have measured, and of the whole ranking."""

from __future__ import annotations

import pytest

from cutegen.plan import GemmPlan, plan
from cutegen.plan.values.operand import SmemCandidate
from cutegen.plan.values.path import OperandPath
from cutegen.spec import Epilogue, G2s, G2sCopy, Smem, SmemLayout, Tile, load_spec
from tests.plan.specs import gemm


def ranked(k: int, majors: str = "kkn") -> dict[str, SmemCandidate]:
    rows = plan(gemm(majors, tile=Tile(cta=(128, 128, k), stages=2)), "sm_80").a.smem.ranking
    return {row.name: row for row in rows}


def ways(row: SmemCandidate) -> tuple[float, float]:
    return row.write.ways, row.read.ways


def given(layout: SmemLayout, k: int) -> OperandPath:
    return plan(gemm(tile=Tile(cta=(128, 128, k), stages=2), smem=Smem(a=layout)), "sm_80").a


@pytest.mark.parametrize("majors", ["kkn", "mkn"])
def test_128_byte_rows(majors: str) -> None:
    """Eight rows of 128 bytes start at one bank: 8-way, until a swizzle spreads them."""
    rows = ranked(64, majors)
    atom = "8x64" if majors[0] == "k" else "64x8"
    assert ways(rows[f"Swizzle<3,3,3> on {atom}"]) == (1, 1)
    plain = next(row for name, row in rows.items() if name.startswith("plain"))
    assert ways(plain) == (1, 8)
    assert next(iter(rows)) == f"Swizzle<3,3,3> on {atom}"


def test_64_byte_rows() -> None:
    rows = ranked(32)
    assert ways(rows["plain (_128,_32):(_32,_1)"]) == (1, 4)
    assert ways(rows["pad 8"]) == (2, 1)
    assert ways(rows["Swizzle<2,3,3> on 8x32"]) == (1, 1)


@pytest.mark.parametrize("name", ["wmma_padded_256x128x32", "wmma_padded_256x128x32_f32"])
def test_a_pad_of_16_bytes_in_every_tile_of_a_plan(name: str) -> None:
    """Rows of 64 bytes, 80 apart: reads are free; the two rows that eight lanes write overlap in four banks."""
    wavefronts = plan(load_spec(name), "sm_90").predictions.wavefronts
    found = {access: count.ways for access, count in wavefronts.items()}
    assert found == {"g2s.a": 2, "g2s.b": 2, "s2r.a": 1, "s2r.b": 1, "epilogue.write": 1, "epilogue.read": 1}


def test_the_tutorials_atom_without_its_swizzle() -> None:
    """Its eight rows are 16 bytes apart, fine for ldmatrix, but the pieces of one row are 128 bytes apart."""
    atom = given(SmemLayout(layout="(8,(8,8)):(8,(1,64))"), 64)
    assert ways(atom.smem.chosen) == (8, 1)
    swizzled = given(SmemLayout(layout="Sw<3,3,3> o (8,(8,8)):(8,(1,64))"), 64)
    assert ways(swizzled.smem.chosen) == (1, 1)


@pytest.mark.parametrize(("bits", "reads"), [(3, 1), (2, 2), (1, 4)])
def test_each_swizzled_bit_halves_the_conflict(bits: int, reads: int) -> None:
    assert ways(given(SmemLayout(swizzle=(bits, 3, 3)), 64).smem.chosen)[1] <= reads
    assert ways(given(SmemLayout(layout=f"Sw<{bits},3,3> o (8,64):(64,1)"), 64).smem.chosen) == (1, reads)


@pytest.mark.parametrize("majors", ["kkn", "mnm", "knn", "mkm"])
@pytest.mark.parametrize("k", [32, 48, 64])
def test_the_ranking_is_by_wavefronts_then_bytes_and_its_first_is_chosen(majors: str, k: int) -> None:
    found = plan(gemm(majors, tile=Tile(cta=(128, 128, k), stages=2)), "sm_80")
    for smem in (found.a.smem, found.b.smem, found.epilogue.smem):
        assert smem is not None
        keys = [((row.lines or row.write).predicted + row.read.predicted, row.tile_bytes) for row in smem.ranking]
        assert keys == sorted(keys)
        assert smem.chosen == smem.ranking[0]
        assert len({row.name for row in smem.ranking}) == len(smem.ranking)
        assert any(row.pad_elems for row in smem.ranking)
        assert any(row.swizzle for row in smem.ranking)


def test_a_swizzle_keeps_vectors_whole_whatever_the_element() -> None:
    """Sixteen bytes are 8 elements of 16 bits, and 4 of 32."""
    found = plan(gemm(c_dtype="f32"), "sm_80").epilogue.smem
    assert found is not None
    assert {row.swizzle.base for row in found.ranking if row.swizzle} == {2, 3}
    assert {row.pad_elems % 4 for row in found.ranking} == {0}


@pytest.mark.parametrize(
    ("k", "name", "ways_by_line"),
    [
        (32, "pad 8", 15 / 4),
        (32, "Swizzle<2,3,3> on 8x32", 2),
        (32, "plain (_128,_32):(_32,_1)", 2),
        (64, "Swizzle<3,3,3> on 8x64", 1),
        (64, "Swizzle<2,3,3> on 8x32", 2),
        (64, "pad 8", 10.5 / 4),
        (64, "plain (_128,_64):(_64,_1)", 1),
    ],
)
def test_writes_are_ranked_by_line_as_an_h200_counted_them(k: int, name: str, ways_by_line: float) -> None:
    """Wavefronts for each warp instruction, of 4 where every line is written once: docs/measurements.md."""
    row = ranked(k)[name]
    instructions = 128 * k * 2 // 16 // 32
    assert row.lines is not None
    assert row.lines.predicted == 4 * ways_by_line * instructions
    assert row.wavefronts == row.lines.predicted + row.read.predicted


def test_copies_through_l1_and_stores_are_ranked_by_banks() -> None:
    for op in ("cp.async.ca", "universal"):
        found = plan(gemm(tile=Tile(cta=(128, 128, 64), stages=2), g2s=G2s(G2sCopy(op, 64))), "sm_90")
        assert all(row.lines is None for row in found.a.smem.ranking)
        assert all(row.lines is not None for row in found.b.smem.ranking)
        assert {"g2s.b"} == set(found.predictions.line_writes)


def test_the_table_says_what_by_line_is_where_it_counts() -> None:
    said = plan(gemm(tile=Tile(cta=(128, 128, 64), stages=2)), "sm_90").explain()
    tables = [block for block in said.split("\n\n") if block.startswith("Shared-memory layouts of")]
    assert [("by line" in table, "bypasses L1" in table) for table in tables] == [(True, True), (False, False)]


@pytest.mark.parametrize("layout", ["(8,8):(2,16)", "(8,8):(16,2)", "(16,8):(2,32)"])
def test_a_given_layout_need_not_have_a_unit_stride(layout: str) -> None:
    """Its repetitions fill the gaps; no width of rows orders it among the candidates."""
    found = plan(gemm(tile=Tile((64, 64, 32)), epilogue=Epilogue(SmemLayout(layout=layout))), "sm_80")
    assert isinstance(found, GemmPlan)
    assert found.epilogue.smem is not None
    assert found.epilogue.smem.bytes == 64 * 64 * 2
    assert layout.replace("(", "(_").replace(",", ",_") in found.explain()
