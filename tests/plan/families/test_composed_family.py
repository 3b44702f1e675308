"""A new family by composition: mma.sync fed by plain copies through registers, in persistent CTAs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.errors import SpecError
from cutegen.hardware import UNIVERSAL, Target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.families import FAMILIES, Family, register
from cutegen.plan.mainloop.threads import CpAsync
from cutegen.plan.mma.atoms import choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.operands.staging import OperandChoices
from cutegen.plan.schedules import Persistent
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import G2sCopy, GemmSpec, Mma, Operand, Problem, Schedule, Tile
from cutegen.verify import compare, float64_reference, random_operands
from cutegen.verify.counts import count_launch

NAME = "persistent_plain"


class PlainVectors(CpAsync):
    """Vector copies through registers alone."""

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[VectorCopy]:
        plain = replace(spec.g2s, **{x.name: G2sCopy(op=UNIVERSAL)})
        return super().operand(replace(spec, g2s=plain), x, mma, target)


@pytest.fixture
def family() -> Iterator[Family]:
    composed = Family(
        name=NAME,
        mma=MmaSync(),
        mainloop=PlainVectors(),
        schedule=Persistent("a test asks for it"),
        cta_tile=lambda spec, target: choose_cta_tile(spec),
    )
    register(
        composed,
        "mma.sync, ldmatrix, plain copies",
    )
    yield composed
    del FAMILIES[NAME], SPEC_FAMILIES[NAME]


@pytest.mark.parametrize("name", FAMILIES)
def test_specs_know_of_a_family_what_its_parts_say(name: str) -> None:
    assert SPEC_FAMILIES[name].parts == FAMILIES[name].keys


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"mma": Mma(promote_k=64)}, "mma.promote_k: found 64 .*: its sums stay in the accumulators"),
        ({"schedule": Schedule(pace=900)}, "schedule.pace: found 900 .*: a stage is filled as soon as it is empty"),
        ({"schedule": Schedule(reduction="workspace")}, "schedule.reduction: .*: a persistent CTA multiplies all"),
    ],
)
def test_a_key_that_a_part_lacks_is_refused_with_the_parts_reason(table: dict[str, Any], said: str) -> None:
    row = Operand("f16", "k")
    with pytest.raises(SpecError, match=said):
        GemmSpec(family=NAME, problem=Problem(a=row, b=row, c=Operand("f16", "n")), **table)


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
