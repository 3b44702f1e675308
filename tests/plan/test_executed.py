"""Planned kernels do what was planned: results against float64, and every predicted wavefront against those that occur.

On the CPU the kernel's own PTX is executed; where there is a GPU, the results are also computed there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from cutegen.analysis.counters import CONFLICTS, WAVEFRONTS, predict
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.targeting import choose_target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.values.path import OperandPath
from cutegen.ptx import LaunchReport
from cutegen.run import Kernel
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Raster,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
)
from cutegen.verify import compare, expected_outcome
from tests.plan.kernels import Build, execute, random_call
from tests.plan.specs import SHIPPED_GEMMS, columns_together, gemm
from tests.plan.test_emitted import FEW, MANY

pytestmark = pytest.mark.dsl
Beyond = Callable[[int, int, int], tuple[int, int, int]]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TILE = Tile(cta=(64, 64, 32), stages=2)
ATOM = SmemLayout(layout="(8,(8,4)):(8,(1,64))")

LAYOUTS = {
    "chosen": gemm(tile=TILE),
    "plain": gemm(tile=TILE, smem=Smem(a=SmemLayout(pad=0), b=SmemLayout(pad=0)), epilogue=Epilogue(SmemLayout(pad=0))),
    "pad 8": gemm(tile=TILE, smem=Smem(a=SmemLayout(pad=8), b=SmemLayout(pad=8)), epilogue=Epilogue(SmemLayout(pad=8))),
    "pad 4": gemm(tile=TILE, smem=Smem(a=SmemLayout(pad=4), b=SmemLayout(pad=2))),
    "unswizzled atom": gemm(tile=TILE, smem=Smem(a=ATOM, b=ATOM)),
    "transposed": gemm("mnm", tile=TILE),
    "transposed, plain": gemm("mnm", tile=TILE, smem=Smem(a=SmemLayout(pad=0), b=SmemLayout(pad=0))),
    "column-major C, plain": gemm("kkm", tile=TILE, epilogue=Epilogue(SmemLayout(pad=0))),
    "C in f32": gemm(c_dtype="f32", tile=TILE),
    "narrow copies": gemm(tile=TILE, g2s=G2s(a=G2sCopy(bits=32), b=G2sCopy(bits=64)), align=(16, 16, 4)),
    "x8 atoms": gemm(
        "mkn", tile=TILE, mma=Mma(atom="SM80_16x8x8_F32F16F16F32_TN", permutation=(32, 64, 8), atom_layout=(2, 2, 1))
    ),
}
FAST = ["plain", "unswizzled atom", "column-major C, plain"]


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in LAYOUTS]
)
def test_wavefronts_occur_as_predicted(name: str, built: Build) -> None:
    """One CTA, four k-tiles: what the executor counts of each kind of access is what the plan says of it."""
    spec = replace(LAYOUTS[name], name=name)
    found = plan(spec, "sm_80")
    m, n, k = found.cta_tile
    k_tiles = 4  # rows of global memory then begin at whole lines, as the plan supposes
    report = execute(built(spec), found.launch, m, n, k_tiles * k)
    wavefronts = found.predictions.wavefronts
    copied = k_tiles * (wavefronts["g2s.a"].predicted + wavefronts["g2s.b"].predicted)
    assert report.wavefronts("cp.async") == copied
    assert report.line_wavefronts("cp.async") == k_tiles * sum(
        row.predicted for row in found.predictions.line_writes.values()
    )
    plain = sum(loaded(found, operand, k_tiles) for operand in found.operands if operand.s2r.matrices is None)
    by_ldmatrix = sum(loaded(found, operand, k_tiles) for operand in found.operands if operand.s2r.matrices)
    assert report.wavefronts("ldmatrix") == by_ldmatrix
    assert report.wavefronts("st.shared") == wavefronts["epilogue.write"].predicted
    assert report.wavefronts("ld.shared") == wavefronts["epilogue.read"].predicted + plain
    assert report.sectors("cp.async") == k_tiles * sum(found.predictions.sectors[f"g2s.{x}"].predicted for x in "ab")
    assert report.sectors("st.global") == found.predictions.sectors["epilogue"].predicted
    copies = report.matching("cp.async.cg") + report.matching("cp.async.ca")
    unchecked = sum(each.executed for each in copies if each.text.count(",") == 2)  # without a source size
    assert unchecked * k_tiles == found.loop.whole(k_tiles) * sum(each.executed for each in copies) > 0


def loaded(found: GemmPlan, operand: OperandPath, k_tiles: int) -> int:
    """Wavefronts of the fragment loads: a k-block before the loop, then the next one in each k-block."""
    each = found.predictions.wavefronts[f"s2r.{operand.name}"].predicted
    assert each % found.mma.k_blocks == 0
    return each // found.mma.k_blocks * (found.mma.k_blocks * k_tiles + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chosen", "plain", "transposed"])
def test_what_counters_py_expects_of_a_gpu(name: str, built: Build) -> None:
    """Two CTAs and four k-tiles, counted by the executor instead of ncu."""
    spec = replace(LAYOUTS[name], name=name)
    artifact, found = built(spec), plan(spec, "sm_80")
    problem = found.cta_tile[0] * 2, found.cta_tile[1], found.cta_tile[2] * 4
    expected = predict(found.to_json(), ProblemShape(*problem))
    assert json.loads(artifact.plan_json) == json.loads(json.dumps(found.to_json()))
    report = execute(artifact, found.launch, *problem)
    assert counted(report) == {name: expected[name] for name in counted(report)}


def counted(report: LaunchReport) -> dict[str, int]:
    return {
        f"{WAVEFRONTS}ldsm.sum": report.wavefronts("ldmatrix"),
        f"{WAVEFRONTS}ldgsts_cache_bypass.sum": report.line_wavefronts("cp.async.cg"),
        f"{WAVEFRONTS}st.sum": report.wavefronts("st.shared"),
        f"{CONFLICTS}ld.sum": report.conflicts("ldmatrix") + report.conflicts("ld.shared"),
        f"{CONFLICTS}st.sum": report.conflicts("st.shared"),
        "smsp__inst_executed_op_ldsm.sum": report.executed("ldmatrix"),
        "smsp__inst_executed_op_ldgsts.sum": sum(row.executed for row in report.matching("cp.async.cg.shared")),
        "sm__inst_executed_pipe_tensor_op_hmma.sum": report.executed("mma.sync"),
    }


def check_result(spec: GemmSpec, built: Build, device: str, m: int, n: int, k: int) -> None:
    arch = choose_target().name if device == "cuda" else spec.needs
    found = plan(spec, arch)
    kernel = Kernel(built(spec, arch))
    framework = "torch" if device == "cuda" else "numpy"
    sizes = (m - m // 3, 0, m // 3)  # of groups of rows, if the kernel has them
    problem, data = ProblemShape(m, n, k), {"seed": m + n + k, "framework": framework, "device": device}
    a, b, out, extras = random_call(kernel.contract, problem, sizes, **data)
    kernel(a, b, out=out, **extras)
    expected = expected_outcome(kernel.contract, a, b, extras, accumulator=found.atom.c_dtype.name)
    result = compare(out, expected.result, dtype=found.epilogue.dtype.name)
    assert result.ok, result


RASTERS = [Raster("n", 1, False), Raster("m", 2, True), Raster("n", 2, True), Raster("m", 1, False)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spec", [*FEW, *[pytest.param(x, marks=pytest.mark.slow) for x in MANY]], ids=lambda x: x.name)
def test_results_of_ldmatrix_choices(spec: GemmSpec, device: str, built: Build) -> None:
    """2 x 2 CTAs cut along M, N and K, more k-tiles than stages."""
    cta_m, cta_n, cta_k = plan(spec, "sm_80").cta_tile
    stages = plan(spec, "sm_80").stages
    check_result(spec, built, device, cta_m + 24, cta_n + 8, cta_k * (stages + 1) + 8)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_results_of_layouts(name: str, device: str, built: Build) -> None:
    check_result(replace(LAYOUTS[name], name=name), built, device, 72, 80, 3 * 32 + 24)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("raster", RASTERS, ids=lambda x: f"{x.along}{x.group}{'z' if x.zigzag else ''}")
def test_results_of_tile_orders(raster: Raster, device: str, built: Build) -> None:
    """3 x 5 tiles: bands of one, of two, and a last band of one that is left over."""
    spec = gemm(tile=Tile(cta=(16, 16, 32), stages=2), schedule=Schedule(raster))
    check_result(spec, built, device, 3 * 16 - 5, 5 * 16 - 3, 40)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHIPPED_GEMMS)
@pytest.mark.parametrize(
    "beyond", [lambda m, n, k: (m + 8, n + 16, k + 8), lambda m, n, k: (m + 1, 1, 8)], ids=["4 CTAs", "a row more"]
)
def test_results_of_shipped_specs(name: str, beyond: Beyond, device: str, built: Build) -> None:
    spec = load_spec(name)
    if device == "cuda" and not choose_target().has(*spec.instructions):
        pytest.skip("this GPU lacks an instruction of the family")
    m, n, k = beyond(*plan(spec, spec.needs).cta_tile)
    n += -n % columns_together(spec)
    check_result(spec, built, device, m, n, k)
