"""`show SPEC mma` of an instruction whose sums are in tensor memory: which threads receive them, and who issues it."""

from __future__ import annotations

from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.plan.explain import explain
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
