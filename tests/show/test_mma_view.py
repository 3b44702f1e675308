"""`show SPEC mma` of an instruction whose sums are in tensor memory: which threads receive them, and who issues it."""

from __future__ import annotations

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.plan.gemm_plan import explain
from cutegen.show.follow import Element, Follower, OperandElementPath
from cutegen.show.parts import mma
from cutegen.spec import load_spec


def shipped() -> GemmPlan:
    made = plan(load_spec("sm100_hgemm_tn"), "sm_100")
    assert isinstance(made, GemmPlan)
    return made


def test_sums_are_those_of_the_threads_that_drain_them() -> None:
    view = mma.view(shipped(), 37, ProblemShape(512, 512, 512))
    text = "\n".join(line for block in view.blocks for line in block)
    assert "C of one atom: in tensor memory" in text
    assert "128 threads receive 256 sums each" in text
    assert "(37,0) (37,1) (37,2)" in text
    assert "one of 32 threads issues it" in text


def test_each_role_has_its_warps() -> None:
    assert "192 in 6 warps: epilogue (4 warps), producer (1 warp), mma (1 warp)" in explain(shipped())


@pytest.mark.parametrize("column", [5, 127, 128, 200, 256 + 130])
def test_half_of_b_meets_the_columns_of_the_pairs_tile(column: int) -> None:
    """A CTA of a pair has 128 of 256 columns of B; each thread of both has the sums of a row, one for each column."""
    pair = plan(load_spec("sm100_bf16_pair"), "sm_100")
    assert isinstance(pair, GemmPlan)
    path = Follower(pair, ProblemShape(512, 512, 512)).path_of(Element.parse(f"b,{column},7"))
    assert isinstance(path, OperandElementPath)
    assert (path.line, path.source.within[0]) == (column % 256, column % 128)
    assert {meeting.values for meeting in path.meets} == {(column % 256,)}
    assert [read.warpgroups for read in path.reads] == [()]
