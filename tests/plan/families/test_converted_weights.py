"""A toy family: an 8-bit B that is converted to f16 between shared memory and `mma.sync`, on sm80's skeleton.

Only its multiplier is new: it multiplies f16 by whatever B has. The path of B says the rest: copies and stages are of
8 bits, and the fragments are converted in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cutegen.algebra import Extents
from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.errors import ProofError, SpecError
from cutegen.hardware import Target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.families import FAMILIES, Family, register
from cutegen.plan.mainloop.threads import CpAsync
from cutegen.plan.mma.atoms import choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.prove import prove
from cutegen.plan.schedules import CtaPerTile
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import k_tile_bytes_of_each
from cutegen.run import Kernel
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import GemmSpec, Operand, Problem, S2r, S2rCopy, Tile
from cutegen.verify import compare, float64_reference, random_operands
from cutegen.verify.counts import count_launch
from tests.plan.changed import with_path

NAME = "converted_weights"


class ConvertedMma(MmaSync):
    """The instruction of A's type for both operands."""

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        problem = replace(spec.problem, b=replace(spec.problem.b, dtype=spec.problem.a.dtype))
        return super().choose(replace(spec, problem=problem), target, cta_tile)


@pytest.fixture
def family() -> Iterator[Family]:
    composed = Family(
        name=NAME,
        mma=ConvertedMma(),
        mainloop=CpAsync(),
        schedule=CtaPerTile(),
        cta_tile=lambda spec, target: choose_cta_tile(spec),
    )
    register(composed, "mma.sync, cp.async")
    yield composed
    del FAMILIES[NAME], SPEC_FAMILIES[NAME]


def planned() -> GemmPlan:
    problem = Problem(a=Operand("f16", "k"), b=Operand("s8", "k"), c=Operand("f32", "n"))
    found = plan(GemmSpec(family=NAME, problem=problem, tile=Tile((64, 64, 32), 2), name="converted"), "sm_80")
    assert isinstance(found, GemmPlan)
    return found


def test_stages_have_the_bytes_of_memory_and_fragments_those_of_the_instruction(family: Family) -> None:
    found = planned()
    assert (found.b.dtype.name, found.b.multiplied.name, found.atom.b_dtype.name) == ("s8", "f16", "f16")
    assert k_tile_bytes_of_each(found.spec, found.cta_tile) == (64 * 32 * 2, 64 * 32)
    assert found.memory.region("b").bytes * 2 == found.memory.region("a").bytes
    assert (found.a.s2r.by_ldmatrix, found.b.s2r.by_ldmatrix) == (True, False)
    with pytest.raises(ProofError, match="b is s8 in registers, and the MMA reads f16"):
        prove(with_path(found, "b", multiplied=found.b.dtype))


def test_an_ldmatrix_that_is_asked_for_is_refused(family: Family) -> None:
    asked = replace(planned().spec, s2r=S2r(b=S2rCopy("SM75_U32x1_LDSM_N")))
    with pytest.raises(SpecError, match=r"s2r\.b\.atom: found SM75_U32x1_LDSM_N, though a thread converts its own s8"):
        plan(asked, "sm_80")


@pytest.mark.dsl
def test_b_is_converted_in_registers(family: Family, kernels: Cache) -> None:
    found = planned()
    kernel = Kernel(build(build_request(found.spec, "sm_80"), kernels))
    assert kernel.artifact.manifest.warnings == ()  # emitted as predicted
    for m, n, k in ((64, 64, 64), (192, 128, 96), (70, 200, 48), (1, 8, 16)):
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k)
        out[...] = np.nan
        report = kernel.execute(a, b, out=out)
        assert report.violations == ()
        assert compare(out, float64_reference(a, b), dtype="f32").ok, (m, n, k)
        assert count_launch(found, kernel.call_size(a, b, out), report).differing() == {}
