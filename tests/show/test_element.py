"""`show --element` where the tile is not the plain case: at edges, with f16 sums, and with parts of C."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.geometry import vectors
from cutegen.plan.values.copies import VectorCopy
from cutegen.show.follow import Element, OperandElementPath, ResultElementPath, ResultFactorPath, follow
from cutegen.show.follow.locations import VectorStep
from cutegen.show.parts import element, g2s
from cutegen.spec import Epilogue, Factors, GemmSpec, Mma, Operand, Problem, Quantized, Schedule, Tile
from cutegen.spec.parts import Paired
from tests.seeding import new_generator
from tests.show.cases import plan_of


@pytest.mark.parametrize("name", ["wmma_padded_256x128x32", "cute_tutorial_tn", "sm80_hgemm_tn"])
def test_a_register_holds_two_sums_of_16_bits_or_one_of_32(name: str) -> None:
    """m16n8 of mma.sync: values 0 and 1 are neighbors along n, 2 and 3 the same 8 rows below."""
    plan, random = plan_of(name), new_generator()
    m, n, _ = plan.cta_tile
    for row, column in [(8, 1), *random.integers((m, n), size=(20, 2)).tolist()]:
        way = follow(plan, Element("c", (row, column)), ProblemShape(m, n, 64))
        assert isinstance(way, ResultElementPath)
        number, value = divmod(way.held.value, 4)
        assert value == row % 16 // 8 * 2 + column % 2
        if plan.atom.c_dtype.name == "f16":
            assert (way.held.register, way.held.bits_from) == (2 * number + row % 16 // 8, 16 * (column % 2))
        else:
            assert (way.held.register, way.held.bits_from) == (4 * number + value, 0)


def sectors_counted(
    way: OperandElementPath | ResultElementPath, step: VectorStep, copy: VectorCopy, tile: tuple[int, int]
) -> int:
    """The sectors of the elements that a warp moves in the element's step and the matrix has, one by one."""
    place, bits = way.source if isinstance(way, OperandElementPath) else way.target, copy.bits // step.elems
    table = vectors(copy.threads, copy.values, tile)[step.step, step.warp * 32 : step.warp * 32 + 32].ravel().tolist()
    found = set()
    for at in table:
        x, y = (place.tile[i] * tile[i] + within for i, within in enumerate((at % tile[0], at // tile[0])))
        if x < place.extents[0] and y < place.extents[1]:
            major = way.element.modes.index(place.major)
            along, across = (x, y)[major], (x, y)[1 - major]
            found.add((across * place.leading_elems + along) * bits // 8 // 32)
    return len(found)


@pytest.mark.parametrize(
    ("which", "problem", "sectors"),
    [
        ("a,97,0", ProblemShape(98, 128, 64), 8),  # rows 98 and 99 of the warp's four are not there
        ("a,97,0", ProblemShape(128, 128, 64), 16),
        ("a,12,70", ProblemShape(128, 128, 72), 4),  # the second k-tile has 16 bytes of each row
        ("b,5,0", ProblemShape(128, 6, 64), 8),
        ("c,0,3", ProblemShape(128, 40, 64), None),
        ("c,130,3", ProblemShape(131, 128, 64), None),
    ],
)
def test_requests_end_at_the_edges(which: str, problem: ProblemShape, sectors: int | None) -> None:
    plan = plan_of("sm80_hgemm_tn")
    asked = Element.parse(which)
    way = follow(plan, asked, problem)
    step = way.copy if isinstance(way, OperandElementPath) else way.store
    copy, tile = (
        (getattr(plan, asked.operand).g2s, getattr(plan, asked.operand).tile)
        if isinstance(way, OperandElementPath)
        else (plan.epilogue.store, plan.cta_tile[:2])
    )
    assert isinstance(step, VectorStep)
    assert isinstance(copy, VectorCopy)
    assert step.warp_sectors == sectors_counted(way, step, copy, tile)
    assert sectors in (None, step.warp_sectors)


def test_lanes_that_copy_factors_are_those_of_the_producer() -> None:
    """Its warp follows the two warpgroups that multiply: thread 256 has the first lane, which copies every 32nd."""
    operand, rows = Operand("e4m3", "k"), Factors((1, 128), align=4)
    problem = Problem(a=operand, b=operand, c=Operand("bf16", "n"), scale_a=rows, scale_b=rows)
    planned = plan(GemmSpec(family="sm90", problem=problem, tile=Tile((128, 64, 128))), "sm_90a")
    assert isinstance(planned, GemmPlan)
    for row in (0, 5, 69, 127):
        way = follow(planned, Element("scale_a", (row, 2)), ProblemShape(1000, 64, 500))
        assert isinstance(way, OperandElementPath)
        assert isinstance(way.copy, VectorStep)
        assert (way.copy.thread, way.copy.step, way.copy.steps) == (256 + row % 32, row // 32, 4)
        assert way.copy.instruction == ("cp.async.ca.shared.global",)
    said = g2s.view(planned, 100, ProblemShape(1000, 64, 500)).lines
    assert any("First copy of warp 0 into shared memory" in line for line in said)  # counted among those that copy


@pytest.mark.parametrize("swapped", [False, True])
def test_a_quantized_element_leads_to_its_factor(swapped: bool) -> None:
    """Rows r and columns 2 c, 2 c + 1 of each eight are in lane 4 (r % 8) + c (PTX ISA, "wgmma" register fragments)."""
    operand = Operand("e4m3", "k")
    spec = GemmSpec(
        family="sm90",
        problem=Problem(a=operand, b=operand, c=Operand("e4m3", "n")),
        tile=Tile((128, 16, 128) if swapped else (128, 128, 128)),
        epilogue=Epilogue(quantize=Quantized("e4m3")),
        schedule=Schedule(swap=swapped),
    )
    planned, problem = plan(spec, "sm_90a"), ProblemShape(70, 200, 128)
    assert isinstance(planned, GemmPlan)
    way = follow(planned, Element("c", (69, 150)), problem)
    assert isinstance(way, ResultElementPath)
    factor = way.factor
    assert factor is not None
    assert (factor.coordinate, factor.columns, factor.offset_elems) == ((69, 1), range(128, 200), 72 + 69)
    of_factor = follow(planned, Element("scale_c", (69, 1)), problem)
    assert isinstance(of_factor, ResultFactorPath)
    assert (of_factor.factor, of_factor.target.byte) == (factor, 4 * factor.offset_elems)
    assert tuple(each.thread for each in of_factor.meets) == factor.threads
    assert sum(len(each.values) for each in of_factor.meets) == 128
    assert all(way.held.value in each.values for each in of_factor.meets if each.thread == way.held.thread)
    said = " ".join("\n".join(element.view(planned, of_factor.element, problem).lines).split())
    assert "divides row 69, columns 128 to 199 of C largest of the values of threads" in said
    assert f"stored by thread {factor.stored_by} " in said
    with pytest.raises(RequestError, match="found n 2; expected 0 to 1, because scale_c has 2 along n"):
        follow(planned, Element("scale_c", (69, 2)), problem)
    if swapped:  # a row of C is a column of the tile, 69 % 16 = 5: in one of four lanes, of all warps
        assert factor.threads == tuple(range(2, 256, 4))
        assert np.diff(factor.shared).tolist() == [16 * 4] * 7
    else:  # row 5 of the second warpgroup
        assert factor.threads == tuple(range(128 + 20, 128 + 24))
        assert factor.shared == ()
    assert factor.stored_by == factor.threads[0]  # row r of a thread; a lane later that of row r + 8
    below = follow(planned, Element("scale_c", (5 if swapped else 13, 1)), problem)
    assert isinstance(below, ResultFactorPath)
    assert below.factor.stored_by == below.factor.threads[0 if swapped else 1]
    assert way.held.thread in factor.threads
    (section,) = element.view(planned, Element("c", (69, 150)), problem).blocks
    assert any("divided by the factor of row 69, columns 128 to 199 of C" in line for line in section)


def test_both_sums_of_a_pair_are_in_one_thread_as_wgmma_has_them() -> None:
    """Value v of a thread is in column 8 (v / 4) + 2 (lane % 4) + v % 2 (PTX ISA, "Register Fragments and Shared Memory
    Matrix Layouts" of wgmma).
    """
    plan, columns = plan_of("sm90_bf16_swiglu"), new_generator().integers(0, 1000, 8).tolist()
    of_member = plan.cta_tile[1] // 2
    for column in columns:
        way = follow(plan, Element("c", (5, column)), ProblemShape(128, 2000, 64))
        assert isinstance(way, ResultElementPath)
        gate, up = way.members["gate"], way.members["up"]
        at = [each.value // 4 * 8 + each.lane % 4 * 2 + each.value % 2 for each in (gate, up)]
        assert at == [column % of_member, column % of_member + of_member]
        assert (way.held, gate.thread) == (gate, up.thread)
        assert (way.target.extents, way.target.leading_elems) == ((128, 1000), 1000)


@pytest.mark.parametrize("member", ["gate", "up"])
def test_a_column_of_the_weight_goes_to_the_tile_of_its_pair(member: str) -> None:
    plan = plan_of("sm90_bf16_swiglu")
    of_member, column = plan.cta_tile[1] // 2, 777
    way = follow(plan, Element("b", (column + 1000 * (member == "up"), 3)), ProblemShape(128, 2000, 64))
    assert isinstance(way, OperandElementPath)
    assert way.pair is not None
    assert (way.pair.pair, way.pair.member) == (column, member)
    assert way.source.tile[0] == column // of_member
    assert way.source.within[0] == column % of_member + of_member * (member == "up")


@pytest.mark.parametrize("member", ["gate", "up"])
def test_each_cta_of_a_pair_has_the_columns_of_one_member(member: str) -> None:
    """A tile has the columns of 128 pairs: column 300 of C is in the third, at 44. The even CTA copies its gate."""
    operand, odd = Operand("bf16", "k"), member == "up"
    spec = GemmSpec(
        family="sm100",
        problem=Problem(a=operand, b=operand, c=Operand("bf16", "n")),
        tile=Tile((128, 256, 64)),
        mma=Mma(cta_group=2),
        epilogue=Epilogue(expression="x, y -> silu(x) * y", pairs=Paired("halves", "gate")),
        name="columns_of_ctas",
    )
    found, asked, problem = plan(spec, "sm_100"), Element("b", (300 + 2048 * odd, 70)), ProblemShape(4096, 4096, 4096)
    assert isinstance(found, GemmPlan)
    way, of_c = follow(found, asked, problem), follow(found, Element("c", (5, 300)), problem)
    assert isinstance(way, OperandElementPath)
    assert isinstance(of_c, ResultElementPath)
    assert (way.source.tile, way.source.within) == ((2 * 2 + odd, 1), (44, 6))
    assert way.shared is not None
    assert way.sums is not None
    assert way.sums.columns == (44 + 128 * odd,)
    assert {value for each in way.meets for value in each.values} >= {of_c.members[member].value}
    said = "\n".join(element.view(found, asked, problem).lines)
    assert f"the {member} of column 300 of C; a tile of sums has both members" in said


@pytest.mark.parametrize(
    ("which", "rows", "k", "tile", "sums"),
    [
        ("scale_a,130,7", (130, 130), (896, 1023), (1, 7), 1),
        ("scale_b,13,7", (1664, 1791), (896, 1023), (13, 7), 128),
        ("scale_b,31,31", (3968, 3999), (3968, 3999), (31, 31), 32),
    ],
)
def test_a_factor_scales_a_block(
    which: str, rows: tuple[int, int], k: tuple[int, int], tile: tuple[int, int], sums: int
) -> None:
    plan, problem = plan_of("sm90_e4m3_block_scaled"), ProblemShape(4000, 4000, 4000)
    way = follow(plan, Element.parse(which), problem)
    table = element.view(plan, Element.parse(which), problem).table
    assert isinstance(way, OperandElementPath)
    assert (table["scales"], way.source.tile) == ({"rows": list(rows), "k": list(k)}, tile)
    across = plan.cta_tile[1] if which.startswith("scale_a") else plan.cta_tile[0]
    assert sum(len(each.values) for each in way.meets) == sums * across


@pytest.mark.parametrize(("block", "member", "half"), [(4, "gate", 0), (20, "up", 1)])
def test_a_factor_of_pairs_scales_the_sums_of_a_member(block: int, member: str, half: int) -> None:
    """Of 4096 columns of B: blocks 0 to 15 are of the gates, the others of the ups."""
    plan, asked = plan_of("sm90_e4m3_swiglu_quantized"), Element("scale_b", (block, 7))
    way = follow(plan, asked, ProblemShape(4096, 4096, 4096))
    assert isinstance(way, OperandElementPath)
    # A box has the factors of 4 blocks of K: the seventh is its last.
    (m, n, _), tile = plan.cta_tile, plan.operand("scale_b").tile
    assert (way.source.tile, way.source.within) == ((512 // (n // 2), 7), (half * tile[0] // 2, 3))
    values = {value for each in way.meets for value in each.values}
    sums = range(half * m * n // 2 // 256, (half + 1) * m * n // 2 // 256)
    assert (len(way.meets), values) == (256, set(sums))
    said = "\n".join(element.view(plan, asked, ProblemShape(4096, 4096, 4096)).lines)
    assert f"products of the {member}s of columns 512 to 639 of C and k 896 to 1023" in said


@pytest.mark.parametrize(("row", "member", "half"), [(300, "gate", 0), (2348, "up", 1)])
def test_a_factor_in_an_atom_of_a_member_is_of_one_column(row: int, member: str, half: int) -> None:
    """Of 4096 columns of B the first 2048 are gates; a tile has an atom of each member, 4 columns one after another."""
    factors, operand = Factors((1, 32), "ue8m0"), Operand("e4m3", "k")
    spec = GemmSpec(
        family="sm100",
        problem=Problem(a=operand, b=operand, c=Operand("bf16", "n"), scale_a=factors, scale_b=factors),
        epilogue=Epilogue(expression="x, y -> silu(x) * y", pairs=Paired("halves", "gate")),
        name="scaled_columns",
    )
    found, asked, problem = plan(spec, "sm_100"), Element("scale_b", (row, 9)), ProblemShape(4096, 4096, 4096)
    assert isinstance(found, GemmPlan)
    way = follow(found, asked, problem)
    assert isinstance(way, OperandElementPath)
    # Column 300 of C is in the third tile of 128, at 44: row 12 of the second of an atom's columns.
    assert (way.source.tile, way.source.within) == ((2, 2), (half, 4 * 12 + 1))
    assert way.tensor_memory is not None
    first = found.columns_of("scale_b", 2 % found.stages).first
    assert (way.tensor_memory.lane, way.tensor_memory.column) == (12, first + 4 * half + 1)
    said = "\n".join(element.view(found, asked, problem).lines)
    assert f"the {member} of column 300 of C" in said


def test_an_operand_that_the_kernel_does_not_have_is_named() -> None:
    with pytest.raises(RequestError, match="found scale_c; expected one of a, b, c: the spec does not quantize C"):
        follow(plan_of("sm90_hgemm_tn"), Element.parse("scale_c,0,0"), ProblemShape(128, 128, 128))
    with pytest.raises(RequestError, match="found scale_a; expected one of a, b, c: the spec has no factors of blocks"):
        follow(plan_of("sm90_hgemm_tn"), Element.parse("scale_a,0,0"), ProblemShape(128, 128, 128))


def test_groups_are_said_to_begin_at_tiles() -> None:
    plan, problem = plan_of("sm90_bf16_grouped"), ProblemShape(300, 256, 128)
    said = {which: "\n".join(element.view(plan, Element.parse(which), problem).lines) for which in ("a,299,5", "b,5,5")}
    assert "m and bytes count from its group's first row, where its tiles begin" in said["a,299,5"]
    assert "in the matrix of one group" in said["b,5,5"]


@pytest.mark.parametrize(("which", "of_group"), [("a,130,5", "a,30,5"), ("c,249,77", "c,149,77")])
def test_with_sizes_an_element_is_followed_in_its_group(which: str, of_group: str) -> None:
    """Groups of 100, 0 and 150 rows: the last begins at row 100."""
    plan, problem, alone = plan_of("sm90_bf16_grouped"), ProblemShape(300, 256, 128), ProblemShape(150, 256, 128)
    found = element.view(plan, Element.parse(which), problem, sizes=(100, 0, 150))
    assert found.table | {"problem": [150, 256, 128]} == element.view(plan, Element.parse(of_group), alone).table
    assert any("2 of 0 to 2, m 100 to 249" in line for line in found.lines)


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("a,250,5", "--element: found m 250; expected 0 to 249, the 250 of all groups of --sizes"),
        ("b,5,5", r"--sizes: found with b\(5, 5\), which is in the matrix of one group whatever their sizes"),
    ],
)
def test_an_element_of_no_group_is_refused(which: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        element.view(
            plan_of("sm90_bf16_grouped"), Element.parse(which), ProblemShape(300, 256, 128), sizes=(100, 0, 150)
        )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sm90_e4m3_tn", "its warpgroup's share of the tile"),
        ("sm90_hgemm_tn", "part 0 of 0 to 3 of its warpgroup's"),
        ("sm80_hgemm_tn", "the full tile"),
    ],
)
def test_c_is_stored_with_the_part_or_the_tile(name: str, said: str) -> None:
    view = element.view(plan_of(name), Element("c", (0, 0)), ProblemShape(128, 128, 128))
    (line,) = (line for line in view.lines if "stored with" in line)
    assert line.split("stored with")[1].strip() == said
