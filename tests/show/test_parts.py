"""What is drawn is what is so: against the PTX ISA's formulas, bank arithmetic written out here, and the plan."""

from __future__ import annotations

import pytest

from cutegen.algebra import parse_layout
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.plan import GemmPlan
from cutegen.plan import plan as plan_by_model
from cutegen.show.canvas.drawing import CONFLICT, MARK, bank_color, warp_color
from cutegen.show.canvas.svg import to_svg
from cutegen.show.parts import epilogue, layout, mma, overview, s2r
from cutegen.show.parts.copies import copy_grid
from cutegen.show.parts.mma import operand
from cutegen.show.parts.tile import Tile, tile_picture
from cutegen.spec import parse_spec
from tests.show.cases import plan_of
from tests.show.geometry import by_place, labeled, texts


@pytest.fixture(scope="module")
def plan() -> GemmPlan:
    return plan_of("sm80_hgemm_tn")


def fragment(op: str, lane: int, value: int) -> tuple[int, int]:
    """PTX ISA, fragments of mma.m16n8k16 with 16-bit A and B: (row, column) of A (m,k), B (n,k), C (m,n)."""
    group, quad = lane // 4, lane % 4
    if op == "A":
        return group + 8 * (value // 2 % 2), 2 * quad + value % 2 + 8 * (value // 4)
    if op == "B":
        return group, 2 * quad + value % 2 + 8 * (value // 2)
    return group + 8 * (value // 2), 2 * quad + value % 2


def expected_holders(op: str) -> dict[tuple[int, int], tuple[int, int]]:
    """(row, column) -> lowest thread and value, of 2x2 warps with m16n8k16 and N repeated twice: 32x32x16."""
    held: dict[tuple[int, int], tuple[int, int]] = {}
    values = {"A": 8, "B": 4, "C": 4}[op]
    for thread in reversed(range(128)):
        warp_m, warp_n = thread // 32 % 2, thread // 64
        for repeat in range(1 if op == "A" else 2):
            for value in range(values):
                row, column = fragment(op, thread % 32, value)
                m, n = 16 * warp_m, 8 * warp_n + 16 * repeat
                place = {"A": (row + m, column), "B": (row + n, column), "C": (row + m, column + n)}[op]
                held[place] = (thread, value + values * repeat)
    return held


@pytest.mark.parametrize(
    ("spec", "printed"),
    [
        ("sm80_hgemm_tn", "(_32,_2,_2,_1):(_1,_32,_64,_0)"),
        ("wgmma", "(_128,_2,_1,_1):(_1,_128,_0,_0)"),
        ("simt_sgemm_nt", "(_1,_16,_16,_1):(_0,_1,_16,_0)"),
    ],
)
def test_the_layout_of_the_threads_is_as_cute_prints_it(spec: str, printed: str) -> None:
    """The first two are also in the printouts of `tests/algebra/golden` and `tests/hardware/golden`."""
    view = mma.view(plan_of(spec), 0, ProblemShape(512, 512, 512))
    assert view.table["thr_layout_vmnk"] == printed


@pytest.mark.parametrize("op", ["A", "B", "C"])
def test_every_element_of_the_tiled_mma_is_drawn_once_with_its_holder(op: str, plan: GemmPlan) -> None:
    drawn = by_place(operand(plan, op, thread=0))  # type: ignore[arg-type]
    if op == "B":  # it lies with N to the right
        drawn = {(column, row): box for (row, column), box in drawn.items()}
    expected = expected_holders(op)
    assert {place: box.lines for place, box in drawn.items()} == {
        place: (f"T{thread}", f"V{value}") for place, (thread, value) in expected.items()
    }
    for place, (thread, _) in expected.items():
        assert drawn[place].fill == (MARK if thread == 0 else warp_color(thread // 32, thread % 4))


def test_the_asked_thread_is_marked_where_others_hold_the_same(plan: GemmPlan) -> None:
    marked = [box for box in labeled(operand(plan, "A", thread=70)) if box.fill == MARK]
    assert sorted(box.lines for box in marked) == [("T70", f"V{value}") for value in range(8)]


def test_of_threads_that_receive_the_same_the_asked_one_is_marked() -> None:
    """A warp's load is broadcast: lanes 0 and 16 have the same row of A, lanes 0 to 15 the same row of B."""
    drawn = labeled(s2r.picture(plan_of("simt_sgemm_tn"), 37))
    marked = [box.lines for box in drawn if box.fill == MARK and box.lines != ("thread 37",)]
    assert sorted(marked) == sorted(("T37", f"V{value}") for value in range(4) for _ in "AB")
    named = {box.lines[0] for box in drawn}
    assert {"T32", "T48", "L0", "L5", "L16"} <= named  # the first of each other row
    assert not {"T53", "L21"} & named


def test_the_operands_lie_in_line(plan: GemmPlan) -> None:
    """A's rows are C's and B's columns are C's."""
    b, a, c = (plan.tiled_mma.tile_of(op) for op in ("B", "A", "C"))
    picture = mma.picture(plan, 0)
    cells = [box for box in labeled(picture) if box.lines[0].startswith("T")]
    rows, columns = (sorted({getattr(box, key) for box in cells}) for key in ("y", "x"))
    assert len(rows) == b[1] + c[0]
    assert len(columns) == a[1] + c[1]


def test_shared_memory_is_colored_by_bank(plan: GemmPlan) -> None:
    drawn = by_place(tile_picture(Tile.of_operand(plan.a)))
    assert sorted(drawn) == [(row, word) for row in range(16) for word in range(32)]
    for (row, word), box in drawn.items():
        offset = row * 64 + ((2 * word // 8) ^ (row % 8)) * 8 + 2 * word % 8  # Swizzle<3,3,3> on rows of 64
        bank = offset * 2 // 4 % 32
        assert box.lines == (f"{bank}", f"{offset}")
        assert box.fill == bank_color(bank)


@pytest.mark.parametrize(
    ("name", "conflicts"), [("sm80_hgemm_tn", 0), ("sm80_bf16_nn", 0), ("no swizzle", 7 * 4), ("cute_tutorial_tn", 0)]
)
def test_ldmatrix_conflicts_are_those_that_are_predicted(name: str, conflicts: int) -> None:
    """A without swizzle: 8-way in each of four phases. B of that spec is padded."""
    picture = s2r.picture(plan_of(name), 0)
    marked = [box for box in labeled(picture) if box.fill == CONFLICT and box.lines[0].isdigit()]
    assert len(marked) == conflicts


def test_ldmatrix_names_every_lane_once_and_every_receiver(plan: GemmPlan) -> None:
    picture = s2r.picture(plan, 40)
    lanes = [box.lines[0] for box in labeled(picture) if box.lines[0].startswith("L")]
    assert sorted(lanes) == sorted([f"L{lane}" for lane in range(32)] * 2)
    received = [box.lines for box in labeled(picture) if len(box.lines) == 2]
    assert sorted(received) == sorted([(f"T{32 + lane}", f"V{v}") for lane in range(32) for v in range(8)] * 2)
    assert [lines for lines in received if lines[0] == "T40"] == [
        box.lines for box in labeled(picture) if box.fill == MARK and len(box.lines) == 2
    ]


def test_g2s_names_the_thread_of_every_vector(plan: GemmPlan) -> None:
    """Threads = (16,8):(8,1): row x 8 vectors."""
    drawn = by_place(copy_grid(plan.a.g2s, Tile.of_operand(plan.a), thread=5))
    assert {place: box.lines for place, box in drawn.items()} == {
        (row, vector): (f"T{row * 8 + vector}", "V0-7") for row in range(16) for vector in range(8)
    }
    assert [place for place, box in drawn.items() if box.fill == MARK] == [(0, 5)]


def test_a_contiguous_m_lies_to_the_right() -> None:
    bf16 = plan_of("sm80_bf16_nn")
    drawn = by_place(copy_grid(bf16.a.g2s, Tile.of_operand(bf16.a), thread=0))
    rows, columns = (1 + max(place[i] for place in drawn) for i in (0, 1))
    assert drawn[0, 1].lines[0] == "T1"
    assert rows * columns == bf16.threads


def test_the_epilogue_is_drawn_either_way(plan: GemmPlan) -> None:
    said = {item.text for item in texts(epilogue.picture(plan, 0))}
    assert "C to global memory, through shared memory" in said
    straight = epilogue.picture(plan_of("cute_tutorial_tn"), 0)
    assert any("directly from registers" in item.text for item in texts(straight))
    assert len([box for box in labeled(straight) if len(box.lines) == 2]) == 32 * 32


@pytest.mark.parametrize("name", ["wgmma", "wgmma, A and B exchanged"])
def test_the_first_write_of_sums_has_the_wavefronts_that_are_predicted(name: str) -> None:
    """Of an exchanged product C's tile is the kernel's: contiguous along its m where the spec says n."""
    plan = plan_of(name)
    blocks = epilogue.view(plan, 0, ProblemShape(512, 512, 512)).blocks
    (said,) = (block for block in blocks if block[0].startswith("First write"))
    assert [line.split()[1] for line in said[2:]] == ["1"] * 4
    assert plan.predictions.wavefronts["epilogue.write"].ways == 1


ONE_THREAD_ALONG_N = """
family = "simt"
problem.a = { dtype = "f32", major = "k" }
problem.b = { dtype = "f32", major = "n" }
problem.c = { dtype = "f32", major = "n" }
tile.cta = [32, 32, 8]
mma.threads = "(32,1)"
epilogue.smem = { pad = 4 }
"""


@pytest.mark.parametrize(
    ("text", "access_bytes"),
    [
        (ONE_THREAD_ALONG_N, 16),
        (ONE_THREAD_ALONG_N.replace("(32,1)", "(2,16)"), 4),
        (ONE_THREAD_ALONG_N.replace('"n" }\ntile', '"m" }\ntile').replace("(32,1)", "(1,32)"), 16),
    ],
)
def test_writes_of_sums_that_the_compiler_joins_are_shown_as_one(text: str, access_bytes: int) -> None:
    """Each of a warp's writes has as many wavefronts as the first."""
    plan = plan_by_model(parse_spec(text, name="mine"), "sm_90")
    assert isinstance(plan, GemmPlan)
    blocks = epilogue.view(plan, 0, ProblemShape(512, 512, 512)).blocks
    (said,) = (block for block in blocks if block[0].startswith("First write"))
    assert said[0].endswith(f"by st.shared of {access_bytes} bytes")
    writes = 32 * 32 * 4 // (32 * access_bytes)
    shown = sum(int(line.split()[1]) for line in said[2:])
    assert shown * writes == plan.predictions.wavefronts["epilogue.write"].predicted


@pytest.mark.parametrize(("element", "element_bytes"), [("f16", 2), ("f32", 4)])
def test_a_layout_is_drawn_element_by_element(element: str, element_bytes: int) -> None:
    picture = layout.picture(parse_layout("Sw<2,3,3> o (8,32):(32,1)"), dtype(element))
    drawn = by_place(picture, keep=lambda box: len(box.lines) == 2)
    assert len(drawn) == 8 * 32
    for (row, column), box in drawn.items():
        offset = row * 32 + column
        offset ^= (offset >> 3) & 0b11000  # Swizzle<2,3,3>: bits 6 and 7 XORed into bits 3 and 4
        bank = offset * element_bytes // 4 % 32
        assert (box.lines, box.fill) == ((f"{bank}", f"{offset}"), bank_color(bank))


def test_a_large_layout_is_cut_and_says_so() -> None:
    picture = layout.picture(parse_layout("(100,(10,30)):(300,(1,10))"), dtype("f16"))
    assert any("shown: 64x64 of 100x300" in item.text for item in texts(picture))
    assert len([box for box in labeled(picture) if len(box.lines) == 2]) == 64 * 64


@pytest.mark.parametrize(("name", "said"), [("simt_sgemm_nt", "threads 16x16x1"), ("sm80_hgemm_tn", "warps 2x2x1")])
def test_the_mma_picture_says_who_has_the_atoms(name: str, said: str) -> None:
    """8 warps of 256 threads, each with a multiply-add of its own, are not 16x16 warps."""
    assert f"{said} along M, N, K" in to_svg(mma.picture(plan_of(name), 0), name)


@pytest.mark.parametrize(
    ("name", "said"), [("sm80_hgemm_tn", "compute 128x128, K"), ("pairs", "compute 128x128 sums, 128x64 of C, K")]
)
def test_with_pairs_of_columns_the_overview_tells_sums_from_c(name: str, said: str) -> None:
    lines = overview.view(plan_of(name), 0, ProblemShape(256, 256, 256)).lines
    assert any(said in line for line in lines)
