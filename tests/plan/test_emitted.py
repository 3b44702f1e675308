"""What the compiler makes of a plan: exactly its instructions, in exactly the predicted number."""

from __future__ import annotations

import random
from itertools import product

import pytest

from cutegen.plan import ProbePlan, plan
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    S2r,
    S2rCopy,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
)
from tests.plan.kernels import Build
from tests.plan.specs import SHIPPED_GEMMS, SHIPPED_ON, gemm, types_of

pytestmark = pytest.mark.dsl

TILE = Tile(cta=(64, 64, 32), stages=2)
X8, X16 = "SM80_16x8x8_F32F16F16F32_TN", "SM80_16x8x16_F32F16F16F32_TN"


def fragments(
    atom: str, majors: str, permutation: tuple[int, int, int], warps: tuple[int, int, int] = (2, 2, 1)
) -> GemmSpec:
    dtype, accumulator = types_of(atom)
    return gemm(
        majors,
        dtype,
        accumulator,
        tile=TILE,
        mma=Mma(atom=atom, atom_layout=warps, permutation=permutation),
        name=f"{atom.split('_')[1]}_{majors}_{'x'.join(map(str, permutation))}",
    )


FEW = [fragments(X8, "mkn", (32, 16, 8)), gemm("knm", tile=Tile(cta=(64, 32, 32), stages=3), name="chosen")]
MANY = [
    *[
        fragments(atom, majors, permutation)
        for (atom, permutation), majors in product(
            [
                (X8, (32, 32, 8)),
                (X8, (32, 64, 8)),
                (X8, (32, 32, 16)),
                (X16, (32, 16, 16)),
                (X16, (32, 32, 16)),
                (X16, (64, 64, 16)),
            ],
            ["kkn", "mnn"],
        )
    ],
    fragments("SM80_16x8x16_F16F16F16F16_TN", "knm", (64, 16, 16), (4, 1, 1)),
    fragments("SM80_16x8x16_F32BF16BF16F32_TN", "mkm", (16, 64, 16), (1, 4, 1)),
    gemm(tile=TILE, s2r=S2r(a=S2rCopy("SM75_U32x1_LDSM_N"), b=S2rCopy("SM75_U32x2_LDSM_N")), name="forced"),
    gemm("mnn", tile=TILE, smem=Smem(a=SmemLayout(pad=4), b=SmemLayout(pad=2)), name="plain_loads"),
    gemm(tile=TILE, g2s=G2s(a=G2sCopy(bits=64), b=G2sCopy(op="cp.async.ca")), epilogue=Epilogue(False), name="ca"),
    gemm(align=(4, 8, 2), tile=Tile(cta=(64, 96, 64), stages=8), name="narrow"),
]


# 128 registers of sums and 64 of fragments leave few: some values of the epilogue wait on the stack.
SPILLED_BYTES_AT_MOST = 64


def check(spec: GemmSpec, built: Build, arch: str = "sm_80") -> None:
    found, manifest = plan(spec, arch), built(spec, arch).manifest
    assert manifest.warnings == ()
    predicted = found.predictions.instructions
    assert dict(manifest.instructions.emitted) == dict(predicted)
    gemm = found.gemm if isinstance(found, ProbePlan) else found
    for operand in gemm.operands:
        if operand.s2r.by_ldmatrix:
            trans = ".trans" if operand.major != "k" else ""
            opcode = f"ldmatrix.sync.aligned.m8n8.x{operand.s2r.matrices}{trans}.shared.b16"
            assert predicted[opcode] > 0
    assert manifest.spill_bytes <= SPILLED_BYTES_AT_MOST


@pytest.mark.parametrize("spec", FEW, ids=lambda spec: spec.name)
def test_instructions(spec: GemmSpec, built: Build) -> None:
    check(spec, built)


@pytest.mark.slow
@pytest.mark.parametrize("spec", MANY, ids=lambda spec: spec.name)
def test_instructions_of_many(spec: GemmSpec, built: Build) -> None:
    check(spec, built)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED_GEMMS)
def test_instructions_of_shipped_specs(name: str, built: Build) -> None:
    """For the first target that it can be built for, and one of the others, drawn anew."""
    first, *others = [arch for each, arch in SHIPPED_ON if each == name]
    for arch in (first, *random.sample(others, min(1, len(others)))):
        print(arch)
        check(load_spec(name), built, arch)
