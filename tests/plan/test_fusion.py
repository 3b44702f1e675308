"""What is fused into the epilogue: decided, explained, predicted, and handed on to the launch."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cutegen.contract import LaunchContract
from cutegen.plan import GemmPlan, Sectors, plan
from cutegen.plan.gemm_plan import plan_json
from cutegen.spec import Bias, Epilogue, Extra, GemmSpec, Operand, Problem, Scale, Tile

A, C = Operand("f16", "k"), Operand("bf16", "m", 8)


def planned(*ops: str, expression: str | None = None, c: Operand = C, **extras: Extra | Bias | Scale) -> GemmPlan:
    spec = GemmSpec(
        family="sm80",
        problem=Problem(a=A, b=A, c=c, **extras),  # type: ignore[arg-type]
        tile=Tile(cta=(128, 128, 64)),
        epilogue=Epilogue(ops=ops or None, expression=expression),
    )
    return plan(spec, "sm_80")


def decisions(found: GemmPlan) -> dict[str, tuple[str, bool]]:
    return {x.key: (x.chosen, x.given) for x in found.decisions if x.key.startswith(("problem", "epilogue"))}


def test_without_an_epilogue_there_is_nothing_to_decide_and_nothing_to_pass() -> None:
    found = planned()
    assert list(decisions(found)) == ["epilogue.smem"]
    assert [x.name for x in found.launch.tensors] == ["a", "b", "c"]
    assert (found.launch.scalars, found.launch.epilogue) == ((), ())
    assert "f32" not in {x.type for x in found.launch.parameters}


def test_what_is_left_out_is_as_c_has_it() -> None:
    found = planned("bias_m", "aux", "residual", residual=Extra(dtype="f32"))
    assert [(x.name, x.dtype.name, x.major, x.align_bytes) for x in found.epilogue.fusion.tensors] == [
        ("residual", "f32", "m", 8),
        ("bias", "bf16", "m", 2),
        ("aux", "bf16", "m", 8),
    ]
    settled = decisions(found)
    assert settled["epilogue.ops"] == ("bias_m, aux, residual", True)
    assert settled["problem.residual"] == ("f32, m-major", False)
    assert settled["problem.bias"] == ("bf16, along m", False)
    assert settled["problem.aux"] == ("bf16, m-major", False)


def test_what_is_written_is_given() -> None:
    found = planned("bias_n", "residual", residual=Extra("f16", "n", 2), bias=Bias("f32"))
    assert decisions(found)["problem.residual"] == ("f16, n-major", True)
    assert decisions(found)["problem.bias"] == ("f32, along n", True)
    assert found.epilogue.fusion.tensors[0].align_bytes == 2


def test_an_extra_of_longer_elements_is_aligned_to_one_at_least() -> None:
    found = planned("residual", c=Operand("f16", "n", 2), residual=Extra("f32"))
    assert found.epilogue.fusion.tensors[0].align_bytes == 4


def test_an_expression_alone_is_the_decision() -> None:
    found = planned(expression="x  ->  max(x, beta * c)")
    assert decisions(found)["epilogue.expression"] == ("x -> max(x, beta * c)", True)
    assert found.launch.scalars == ("beta",)
    assert not found.epilogue.fusion.source_behind_beta


def test_c_is_behind_beta_only_where_beta_alone_reads_it() -> None:
    assert planned("alpha", "beta").epilogue.fusion.source_behind_beta
    assert not planned("beta", expression="x -> x + c").epilogue.fusion.source_behind_beta


def test_the_launch_names_parameters_in_order_and_survives_json() -> None:
    launch = planned("alpha", "beta", "bias_n", "aux").launch
    assert [x.name for x in launch.parameters] == [
        *(
            "a",
            "b",
            "c",
            "source",
            "bias",
            "aux",
            "alpha",
            "beta",
            "m",
            "n",
            "k",
            "lda",
            "ldb",
            "ldc",
            "ldsource",
            "ldaux",
        ),
        *(f"batch_stride_{name}" for name in ("a", "b", "c", "source", "bias", "aux")),
    ]
    assert launch.epilogue == ("x -> alpha * x", "x -> x + beta * c", "x -> x + bias_n", "aux")
    assert LaunchContract.from_json(json.loads(json.dumps(launch.to_json()))) == launch


@pytest.mark.parametrize(
    ("extra", "sectors"),
    [
        # 8 rows of 4 neighboring pairs: 8 sectors, half of each used; 16384 / 64 requests of a warp.
        (Extra("f16", "n", 16), Sectors(1024, 8 * 256)),
        # 8 rows of 4 pairs of 8 bytes: 8 whole sectors.
        (Extra("f32", "n", 16), Sectors(2048, 8 * 256)),
        # 4 columns of 8 elements of 2 bytes: 4 sectors, half used; 16384 / 32 requests.
        (Extra("f16", "m", 16), Sectors(1024, 4 * 512)),
        (Extra("f32", "m", 16), Sectors(2048, 4 * 512)),
        # Not aligned for pairs: one by one, and each sector twice.
        (Extra("f16", "n", 2), Sectors(1024, 8 * 512)),
    ],
)
def test_sectors_by_hand(extra: Extra, sectors: Sectors) -> None:
    found = planned("residual", "aux", residual=extra, aux=extra).predictions.sectors
    assert found["epilogue.residual"] == found["epilogue.aux"] == sectors


def test_the_explanation_and_the_json_hold_all_of_it() -> None:
    found = planned("alpha", "aux", "gelu_tanh", expression="x -> x / 2")
    text = " ".join(found.explain().split())
    assert "epilogue.ops given alpha, aux, gelu_tanh, x -> x / 2" in text
    assert "rounded once, to C's type" in text
    assert "epilogue.aux" in text
    table = json.loads(plan_json(found))["epilogue"]
    assert table["steps"] == ["x -> alpha * x", "aux", "x -> gelu_tanh(x)", "x -> x / 2"]
    assert table["scalars"] == ["alpha"]
    assert table["tensors"] == [{"name": "aux", "dtype": "bf16", "major": "m", "align_bytes": 8}]


def test_the_decision_stands_at_the_key_that_the_chain_comes_from() -> None:
    assert "epilogue.ops" in decisions(planned("relu", expression="x -> 2 * x"))
    spec = planned(expression="x -> 2 * x").spec
    for ops in (None, ()):
        found = plan(replace(spec, epilogue=replace(spec.epilogue, ops=ops)), "sm_80")
        assert decisions(found)["epilogue.expression"] == ("x -> 2 * x", True)


def test_two_biases_and_scales_go_by_their_own_names() -> None:
    found = planned("scale_n", "bias_m", "scale_m", "bias_n", bias=Bias("f32"))
    assert [(x.name, x.dtype.name, x.modes, x.align_bytes) for x in found.epilogue.fusion.tensors] == [
        ("bias_n", "f32", ("n",), 4),
        ("bias_m", "f32", ("m",), 4),
        ("scale_m", "f32", ("m",), 4),
        ("scale_n", "f32", ("n",), 4),
    ]
    settled = decisions(found)
    assert settled["problem.bias"] == ("f32, along n and m", True)
    assert settled["problem.scale"] == ("f32, along m and n", False)
    names = [x.name for x in found.launch.parameters]
    assert [x for x in names if x.startswith(("ld", "inc"))] == ["lda", "ldb", "ldc", "inc_scale_m", "inc_scale_n"]
    assert LaunchContract.from_json(json.loads(json.dumps(found.launch.to_json()))) == found.launch


def test_a_scale_has_a_type_of_its_own_whatever_c_is() -> None:
    assert decisions(planned("scale_m", scale=Scale("f16")))["problem.scale"] == ("f16, along m", True)
    assert planned("scale_n", c=Operand("s8", "n")).epilogue.fusion.tensors[0].dtype.name == "f32"


def by_warpgroups(cta: tuple[int, int, int], *ops: str) -> GemmPlan:
    spec = GemmSpec(
        family="sm90",
        problem=Problem(a=A, b=A, c=Operand("f16", "n"), bias=Bias("bf16")),
        tile=Tile(cta=cta),
        epilogue=Epilogue(ops=ops),
    )
    found = plan(spec, "sm_90")
    assert isinstance(found, GemmPlan)
    return found


@pytest.mark.parametrize(
    ("cta", "b16", "b32"),
    [
        # 256 columns are 8 a lane; 64 rows of a warpgroup are one part, of which a lane holds one.
        ((128, 256, 64), 8, 1),
        # 24 columns are one a lane, some for nothing; two parts of 64 rows.
        ((256, 24, 64), 1, 2),
    ],
)
def test_warps_of_wgmma_load_vectors_before_the_main_loop(cta: tuple[int, int, int], b16: int, b32: int) -> None:
    instructions = by_warpgroups(cta, "scale_m", "bias_n").predictions.instructions
    loads = {opcode: count for opcode, count in instructions.items() if opcode.startswith("ld.global")}
    assert loads == {"ld.global.b16": b16, "ld.global.b32": b32}


def test_a_matrix_is_not_loaded_before_the_main_loop() -> None:
    instructions = by_warpgroups((128, 128, 64), "alpha", "residual", "bias_n").predictions.instructions
    assert [opcode for opcode in instructions if opcode.startswith("ld.global")] == ["ld.global.b16"]
