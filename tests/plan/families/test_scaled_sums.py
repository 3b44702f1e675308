"""A toy family: `mma.sync` with a third operand of factors, which rides the `ab` pipeline and scales sums of k-tiles.

C = sum over k-tiles t of diag(F[:, t]) A[:, t] B[:, t]': F is (M, k-tiles) in f32, M-major. The feed adds the path of F
to those of A and B; that F is copied, waited for, and released with them follows. A text scales between multiplies.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cutegen.algebra import Layout, offsets_2d
from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.contract.launch import CallSize, Strides
from cutegen.contract.problem import ProblemShape
from cutegen.errors import PtxFault
from cutegen.hardware import Target, dtype
from cutegen.plan import GemmPlan, plan
from cutegen.plan.families import FAMILIES, Family, register
from cutegen.plan.geometry import by_warp, over_tile
from cutegen.plan.mainloop.threads import CpAsync, choose_g2s
from cutegen.plan.mma.atoms import choose_cta_tile
from cutegen.plan.mma.mma_sync import MmaSync
from cutegen.plan.operands.shared_memory import Access, rank_options
from cutegen.plan.operands.staging import OperandChoices, write_access
from cutegen.plan.parts import Operands
from cutegen.plan.schedules import CtaPerTile
from cutegen.plan.smem_layouts import all_options
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.fragments import ReadByThreads
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.ptx import Program
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import GemmSpec, Operand, Problem, Tile
from cutegen.verify.counts import count_launch

NAME, F = "scaled_sums", "factors"
READ = "tFrF[i] = sFactors[tCcL[i][0], 0, stage]"
SCALING = f"""
{{% block load_fragments %}}
# The sums of a k-tile alone, tCrC; they are scaled by their rows' factors, tFrF, and added to tSrC.
tSrC, tCrC = tCrC, cute.make_fragment_like(tCrC)
tCrC.fill(0.0)
tFrF, tCcL = cute.make_fragment_like(tCrC), thr_mma.partition_C(cute.make_identity_tensor((CTA_M, CTA_N)))
{{% endblock %}}
{{% block commit %}}
for i in cutlass.range_constexpr(cute.size(tFrF)):
    {READ}
{{% endblock %}}
{{% block multiply %}}
if cutlass.const_expr(k_block == K_BLOCKS - 1):
    tSrC.store(tSrC.load() + tFrF.load() * tCrC.load())
    tCrC.fill(0.0)
{{% endblock %}}
{{% block main_loop %}}
tCrC = tSrC
{{% endblock %}}
"""


class VectorsAndFactors(CpAsync):
    """Vector copies of A, B and the factors."""

    def operands(self, spec: GemmSpec, mma: MmaPlan, target: Target) -> Operands:
        return (*super().operands(spec, mma, target), factors(spec, mma))


def factors(spec: GemmSpec, mma: MmaPlan) -> OperandChoices[object]:
    """The path of a factor for each row of A and each k-tile."""
    (rows, _, k), f32 = mma.cta_tile, dtype("f32")
    x = OperandTile(
        name=F,
        operand="A",
        dtype=f32,
        multiplied=f32,
        modes=("m", "k"),
        extents=(rows, 1),
        major_mode=0,
        align_bytes=16,
        smem_key=f"smem.{F}",
        requested=(),
        vector_elems=4,
        last_elems=1,
        block=(1, k),
    )
    g2s = choose_g2s(spec, x, mma.tiled_mma.threads)
    # A thread reads the factors of the rows of its sums, once each.
    held = over_tile(offsets_2d(mma.tiled_mma.tv_layout("C")), mma.tiled_mma.tile_mnk[:2], mma.cta_tile[:2]) % rows
    of_thread = np.stack([np.unique(held[:, thread]) for thread in range(held.shape[1])], axis=1)
    read, write = Access(by_warp(of_thread), f32.bytes), write_access(x, g2s.value, mma.tiled_mma)
    plain = tuple(each for each in all_options(x.extents, x.major_mode, f32.bytes) if isinstance(each.atom, Layout))
    smem = rank_options(x, plain, (), write, read)
    s2r = Choice(ReadByThreads(), Decision(f"s2r.{F}", "by threads", "the rows of its sums"))
    return OperandChoices(x, g2s, s2r, smem)


@pytest.fixture(autouse=True)
def leaves_no_family() -> Iterator[None]:
    yield
    del FAMILIES[NAME], SPEC_FAMILIES[NAME]


def compiled(scaling: str, kernels: Cache) -> tuple[GemmPlan, Program]:
    composed = Family(
        name=NAME,
        mma=MmaSync(),
        mainloop=VectorsAndFactors(),
        schedule=CtaPerTile(),
        cta_tile=lambda spec, target: choose_cta_tile(spec),
        parts=(scaling,),
    )
    register(composed, "mma.sync, ldmatrix, cp.async")
    row = Operand("f16", "k")
    problem = Problem(a=row, b=row, c=Operand("f32", "n"), accumulator="f32")
    found = plan(GemmSpec(family=NAME, problem=problem, tile=Tile(TILE, STAGES), name=NAME), "sm_80")
    assert isinstance(found, GemmPlan)
    artifact = build(request_of(found), kernels)
    assert artifact.manifest.warnings == ()  # emitted as predicted
    return found, Program.parse(artifact.ptx)


TILE, STAGES = (128, 32, 32), 3
CASES = ((128, 32, 128), (136, 40, 96), (4, 8, 32), (128, 32, 8))


def failure(found: GemmPlan, program: Program, m: int, n: int, k: int) -> str:
    """Run one launch on the executor; return what is wrong with it, "" if nothing is."""
    random, k_tiles = np.random.default_rng(m + n + k), -(-k // TILE[2])
    a, b = (random.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    scales, c = random.standard_normal((k_tiles, m)).astype(np.float32), np.full((m, n), np.nan, np.float32)
    problem, launch = ProblemShape(m, n, k), found.launch
    assert [x.name for x in launch.tensors] == ["a", "b", "c", F]
    size = CallSize(problem=problem, strides={"a": Strides(k), "b": Strides(k), F: Strides(m), "c": Strides(n)})
    geometry, arguments = launch.geometry(problem), launch.arguments((a, b, c, scales), (), size)
    smem_bytes = geometry.dynamic_smem_bytes
    try:
        report = program.launch(
            launch.entry, grid=geometry.grid, block=geometry.block, args=arguments, dynamic_smem_bytes=smem_bytes
        )
    except PtxFault as fault:
        return f"fault: {fault}"
    if report.violations:
        return f"violation: {report.violations[0]}"
    if differing := count_launch(found, size, report).differing():
        return f"other counts: {differing}"
    exact = bound = np.zeros((m, n))
    for tile, factor in enumerate(scales.astype(np.float64)[:, :, None]):
        part = slice(tile * TILE[2], (tile + 1) * TILE[2])
        x, y = a[:, part].astype(np.float64), b[:, part].astype(np.float64).T
        exact, bound = exact + factor * (x @ y), bound + np.abs(factor) * (np.abs(x) @ np.abs(y))
    # Each of K products and sums in f32, and a product and a sum per k-tile, err by 2^-24 of their size, in any order.
    wrong = ~(np.abs(c - exact) <= (k + 2 * k_tiles) * 2.0**-23 * bound)
    return f"wrong elements: {np.count_nonzero(wrong)}" if wrong.any() else ""


@pytest.mark.dsl
def test_factors_ride_the_pipeline_of_a_and_b(kernels: Cache) -> None:
    found, program = compiled(SCALING, kernels)
    assert [x.name for x in found.memory.of_owner("ab")] == ["a", "b", F]
    assert found.memory.region(F).bytes == STAGES * TILE[0] * 4
    assert f"g2s.{F}" in found.explain()
    assert {case: failure(found, program, *case) for case in CASES} == dict.fromkeys(CASES, "")


PLANTED = {
    "the factors of the next stage": (READ, READ.replace("stage]", "(stage + 1) % STAGES]")),
    "the factors of columns": (READ, READ.replace("tCcL[i][0]", "tCcL[i][1]")),
    "sums that are scaled twice": (
        "    tCrC.fill(0.0)\n{% endblock %}\n{% block main_loop %}",
        "{% endblock %}\n{% block main_loop %}",
    ),
    "the last k-tile is left out": ("k_block == K_BLOCKS - 1", "k_block == 0"),
    "factors that are read after the stage is released": (
        "    tSrC.store(",
        f"    for i in cutlass.range_constexpr(cute.size(tFrF)):\n        {READ}\n    tSrC.store(",
    ),
}


@pytest.mark.dsl
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_scaling_is_noticed(mistake: str, kernels: Cache) -> None:
    assert SCALING.count(PLANTED[mistake][0]) == 1
    found, program = compiled(SCALING.replace(*PLANTED[mistake]), kernels)
    assert any(failure(found, program, *case) for case in CASES)
