"""The named layouts against CuTe C++'s printout, and against what must hold for any spec and thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.algebra import format_layout, inner_layout, mode, size
from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError
from cutegen.plan import GemmPlan, plan
from cutegen.show.parts.partitions import NAMES, partitions
from cutegen.spec import GemmSpec, Operand, Problem, Schedule, Tile, load_spec

PRINTOUT = Path(__file__).parent / "cute_cpp_tutorial_tn.txt"
TUTORIAL_PROBLEM = ProblemShape(5120, 5120, 4096)


@pytest.fixture(scope="module")
def tutorial() -> GemmPlan:
    return plan(load_spec("cute_tutorial_tn"), "sm_80")


@pytest.mark.parametrize("line", PRINTOUT.read_text().splitlines(), ids=lambda line: line.split()[0])
def test_thread_0_is_printed_as_cute_cpp_prints_it(line: str, tutorial: GemmPlan) -> None:
    name, _, layout = line.partition(" ")
    assert format_layout(partitions(tutorial, TUTORIAL_PROBLEM, 0)[name]) == layout


def test_every_name_is_there_in_one_order(tutorial: GemmPlan) -> None:
    assert tuple(partitions(tutorial, TUTORIAL_PROBLEM, 127)) == NAMES
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("majors", ["kkn", "mkn", "knm", "mnn"])
@pytest.mark.parametrize("thread", [0, 31, 77])
def test_each_thread_moves_its_share(majors: str, thread: int) -> None:
    a, b, c = (Operand("bf16", major) for major in majors)
    spec = GemmSpec(family="sm80", problem=Problem(a=a, b=b, c=c), tile=Tile(cta=(128, 64, 32), stages=3))
    made = plan(spec, "sm_80")
    found = partitions(made, ProblemShape(1000, 1000, 80), thread)
    threads = made.threads
    assert size(found["sA"]) == 128 * 32 * 3
    assert size(found["tAsA"]) == 128 * 32 * 3 // threads
    assert int(size(found["tAgA"])) == 128 * 32 // threads * 3  # 80 / 32 k-tiles, rounded up
    assert size(found["tCrC"]) == 128 * 64 // threads
    # An operand's fragment is held once by each warp that needs it: warps along N hold the same A.
    _, warps_m, warps_n, _ = made.tiled_mma.thr_layout_vmnk.shape
    assert size(found["tCrA"]) == 128 * 32 // (32 * warps_m)
    assert size(found["tCrB"]) == 64 * 32 // (32 * warps_n)
    for x in "AB":
        assert size(found[f"tXr{x}"]) == size(found[f"tCr{x}"])
        assert size(mode(inner_layout(found[f"tXs{x}"]), 0)) == size(mode(inner_layout(found[f"tXr{x}"]), 0))


def test_leading_strides_are_what_alignment_allows(tutorial: GemmPlan) -> None:
    """C is column-major: neighbors along n are a whole column apart, and 1001 halfs of a column take 1008."""
    layout = format_layout(partitions(tutorial, ProblemShape(1001, 1000, 64), 0)["tCgC"])
    assert layout.startswith("((_2,_2),_4,(_2,_4)):((1008,_8),")


def test_strides_of_a_swapped_kernel_are_those_of_the_calls_matrices() -> None:
    """C is 104 x 200, row-major: the kernel's columns are C's rows, 200 elements apart."""
    a, b, c = Operand("f16", "m"), Operand("f16", "n"), Operand("f16", "n")
    spec = GemmSpec(family="sm90", problem=Problem(a=a, b=b, c=c), schedule=Schedule(swap=True))
    found = partitions(plan(spec, "sm_90"), ProblemShape(104, 200, 64), 0)
    assert format_layout(found["tCgC"]) == "((_2,_2,_32),_1,_1):((200,_8,1600),_0,_0)"


@pytest.mark.parametrize("thread", [-1, 128])
def test_a_thread_that_is_not_there(thread: int, tutorial: GemmPlan) -> None:
    with pytest.raises(RequestError, match="expected 0 to 127"):
        partitions(tutorial, TUTORIAL_PROBLEM, thread)


def test_an_extent_of_nothing(tutorial: GemmPlan) -> None:
    with pytest.raises(RequestError, match="at least 1"):
        partitions(tutorial, ProblemShape(1, 0, 1), 0)
