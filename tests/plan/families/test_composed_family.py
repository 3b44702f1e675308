"""A new family by composition: mma.sync fed by plain copies through registers, in persistent CTAs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.hardware import UNIVERSAL, Instruction, Target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.families import FAMILIES, Family, register
from cutegen.plan.feeds.vectors import Vectors
from cutegen.plan.multipliers.mma_sync import MmaSync
from cutegen.plan.rules.mma import choose_cta_tile
from cutegen.plan.rules.operand_choices import OperandChoices
from cutegen.plan.schedules import Persistent
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import Family as SpecFamily
from cutegen.spec import G2sCopy, GemmSpec, Operand, Problem, Tile
from cutegen.verify import compare, float64_reference, random_operands
from cutegen.verify.counts import count_launch

NAME = "persistent_plain"


class PlainVectors(Vectors):
    """Vector copies through registers alone."""

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[VectorCopy]:
        plain = replace(spec.g2s, **{x.name: G2sCopy(op=UNIVERSAL)})
        return super().operand(replace(spec, g2s=plain), x, mma, target)


@pytest.fixture
def family() -> Iterator[Family]:
    composed = Family(
        name=NAME,
        multiplier=MmaSync(),
        feed=PlainVectors(),
        schedule=Persistent("a test asks for it"),
        cta_tile=lambda spec, target: choose_cta_tile(spec),
    )
    register(
        composed,
        SpecFamily(NAME, "mma.sync, ldmatrix, plain copies", frozenset({Instruction.MMA_SYNC})),
    )
    yield composed
    del FAMILIES[NAME], SPEC_FAMILIES[NAME]


@pytest.mark.dsl
def test_a_composed_family_is_planned_explained_rendered_built_and_right(family: Family, kernels: Cache) -> None:
    row = Operand("f16", "k")
    spec = GemmSpec(
        family=NAME, problem=Problem(a=row, b=row, c=Operand("f16", "n")), tile=Tile((64, 64, 32), 2), name="composed"
    )
    planned = plan(spec, "sm_80")
    assert isinstance(planned, GemmPlan)
    assert planned.loop.persistent
    assert all(x.g2s.through_registers for x in (planned.a, planned.b))
    assert "schedule.persistent" in planned.explain()
    assert "Each CTA computes every `ctas`-th of the (M,N) tiles" in render(planned).text

    kernel = Kernel(build(build_request(spec, "sm_80"), kernels))
    assert kernel.artifact.manifest.warnings == ()  # emitted as predicted
    for m, n, k in ((64, 64, 64), (192, 128, 96), (70, 200, 40), (1, 8, 8)):
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k)
        out[...] = np.nan
        report = kernel.execute(a, b, out=out)
        assert report.violations == ()
        assert compare(out, float64_reference(a, b), dtype="f16").ok, (m, n, k)
        assert count_launch(planned, kernel.call_size(a, b, out), report).differing() == {}
