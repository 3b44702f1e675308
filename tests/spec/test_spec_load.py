"""What the shipped specs say, and that TOML and Python make the same value."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest

from cutegen.errors import SpecError
from cutegen.spec import (
    FAMILIES,
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Operand,
    Problem,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
    parse_spec,
    shipped_specs,
    spec_path,
)
from cutegen.spec.file import recorded_name

MINIMAL = """
family = "sm80"
[problem]
a = { dtype = "f16", major = "k" }
b = { dtype = "f16", major = "k" }
c = { dtype = "f16", major = "n" }
"""
F16_K = Operand("f16", "k")
F16_N = Operand("f16", "n")
TN = Problem(a=F16_K, b=F16_K, c=F16_N)


def test_the_shipped_specs_are_these() -> None:
    assert shipped_specs() == (
        "cute_tutorial_nt",
        "cute_tutorial_tn",
        "cutlass_hopper_cooperative",
        "cutlass_hopper_pingpong",
        "double_buffer_128x128x32",
        "hgemm_tn",
        "ldmatrix_probe",
        "simt_sgemm_nt",
        "simt_sgemm_tn",
        "sm100_bf16_grouped",
        "sm100_bf16_pair",
        "sm100_e4m3_block_scaled",
        "sm100_hgemm_tn",
        "sm100_mxf8_tn",
        "sm100_nvf4_tn",
        "sm120_hgemm_tn",
        "sm80_bf16_grouped",
        "sm80_bf16_nn",
        "sm80_hgemm_bias_gelu",
        "sm80_hgemm_tn",
        "sm80_s8_tn",
        "sm80_split_k_tn",
        "sm80_tf32_tn",
        "sm89_e4m3_tn",
        "sm90_bf16_grouped",
        "sm90_bf16_nt",
        "sm90_bf16_swiglu",
        "sm90_e4m3_block_scaled",
        "sm90_e4m3_scaled_tn",
        "sm90_e4m3_swiglu_quantized",
        "sm90_e4m3_tn",
        "sm90_hgemm_bias_gelu",
        "sm90_hgemm_tn",
        "wmma_padded_256x128x32",
        "wmma_padded_256x128x32_f32",
    )


@pytest.mark.parametrize("name", shipped_specs())
def test_a_shipped_spec_loads_by_name_and_by_path(name: str) -> None:
    spec = load_spec(name)
    assert spec == load_spec(spec_path(name)) == load_spec(str(spec_path(name)))
    assert (spec.name, spec.file) == (name, str(spec_path(name)))
    assert spec.description
    assert spec_path(name).read_text().startswith("# ")


def test_sm80_hgemm_tn_leaves_everything_but_the_tile_open() -> None:
    problem = Problem(a=F16_K, b=F16_K, c=F16_N, accumulator="f32")
    expected = GemmSpec(family="sm80", problem=problem, tile=Tile(cta=(128, 128, 64), stages=3))
    assert load_spec("sm80_hgemm_tn") == expected


def test_sm80_bf16_nn_is_blas_nn() -> None:
    a, b, c = Operand("bf16", "m"), Operand("bf16", "k"), Operand("bf16", "n")
    problem = Problem(a=a, b=b, c=c, accumulator="f32")
    assert load_spec("sm80_bf16_nn") == GemmSpec(family="sm80", problem=problem)


def test_cute_tutorial_tn_leaves_nothing_open() -> None:
    atom = SmemLayout(layout="Sw<3,3,3> o (8,(8,8)):(8,(1,64))")
    g2s = G2sCopy(op="cp.async.ca", bits=128, threads="(16,8):(8,1)")
    s2r = S2rCopy(atom="SM75_U32x4_LDSM_N")
    k, m = Operand("f16", "k", align=16), Operand("f16", "m", align=16)
    assert load_spec("cute_tutorial_tn") == GemmSpec(
        family="sm80",
        problem=Problem(a=k, b=k, c=m, accumulator="f16"),
        tile=Tile(cta=(128, 128, 64), stages=3),
        mma=Mma(atom="SM80_16x8x8_F16F16F16F16_TN", atom_layout=(2, 2, 1), permutation=(32, 32, 16)),
        smem=Smem(a=atom, b=atom),
        g2s=G2s(a=g2s, b=g2s),
        s2r=S2r(a=s2r, b=s2r),
        epilogue=Epilogue(smem=False),
        schedule=Schedule(raster=Raster(along="n", group=1, zigzag=False)),
    )


@pytest.mark.parametrize(("suffix", "sums", "types"), [("", "f16", "F16F16F16F16"), ("_f32", "f32", "F32F16F16F32")])
def test_wmma_padded_is_the_published_kernel(suffix: str, sums: str, types: str) -> None:
    pad = SmemLayout(pad=8)
    g2s = G2sCopy(op="cp.async.cg", bits=128, threads="(64,4):(4,1)")
    s2r = S2rCopy(atom="SM75_U32x4_LDSM_N")
    k, n = Operand("f16", "k", align=16), Operand("f16", "n", align=16)
    assert load_spec(f"wmma_padded_256x128x32{suffix}") == GemmSpec(
        family="sm80",
        problem=Problem(a=k, b=k, c=n, accumulator=sums),
        tile=Tile(cta=(256, 128, 32), stages=3),
        mma=Mma(atom=f"SM80_16x8x16_{types}_TN", atom_layout=(4, 2, 1), permutation=(64, 32, 16)),
        smem=Smem(a=pad, b=pad),
        g2s=G2s(a=g2s, b=g2s),
        s2r=S2r(a=s2r, b=s2r),
        epilogue=Epilogue(pad),
        schedule=Schedule(raster=Raster(along="n", group=16, zigzag=True)),
    )


def test_what_is_left_out_is_none() -> None:
    spec = parse_spec(MINIMAL)
    assert spec == GemmSpec(family="sm80", problem=TN)
    assert spec.tile == Tile(cta=None, stages=None)
    assert spec.problem.a.align is None
    assert spec.epilogue.smem is None


@pytest.mark.parametrize(
    ("toml", "smem"),
    [
        ("", None),
        ("[epilogue]", None),
        ("[epilogue]\nsmem = false", False),
        ("[epilogue]\nsmem = true", SmemLayout()),
        ("[epilogue]\nsmem = {}", SmemLayout()),
        ("[epilogue.smem]\npad = 8", SmemLayout(pad=8)),
        ("[epilogue]\nsmem = { swizzle = [3, 3, 4] }", SmemLayout(swizzle=(3, 3, 4))),
    ],
)
def test_epilogue_smem_is_a_switch_and_a_table(toml: str, smem: SmemLayout | bool | None) -> None:
    assert parse_spec(MINIMAL + toml).epilogue.smem == smem


@pytest.mark.parametrize(
    "toml",
    [
        '[g2s]\na = { threads = "(21,6):(6,1)" }',  # 126 threads: a layout by itself, for the plan to refuse
        '[smem]\na = { layout = "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)" }',
        '[smem]\na = { layout = "(8,32):(40,1)" }\nb = { pad = 0 }',
        "[smem]\na = { swizzle = [0, 4, 3] }",
        "[tile]\nstages = 2",
        "[tile]\nstages = 8",
        "[mma]\natom_layout = [8, 4, 1]",
        "[tile]\ncta = [256, 128, 32]",
    ],
)
def test_what_stands_by_itself_is_accepted(toml: str) -> None:
    parse_spec(MINIMAL + toml)


def test_a_byte_order_mark_and_windows_line_ends_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_spec(path) == parse_spec(MINIMAL)


def test_equality_and_hash_are_of_what_is_asked_not_of_who_asks() -> None:
    one = parse_spec("description = 'one'" + MINIMAL, file="one.toml", name="one")
    two = parse_spec(MINIMAL, file="two.toml", name="two")
    other = parse_spec(MINIMAL + "[tile]\nstages = 4")
    assert one == two
    assert hash(one) == hash(two)
    assert one != other
    assert len({one, two, other}) == 2
    names = [recorded_name(dataclasses.replace(each, name="n")) for each in (one, two, other)]
    assert names[0] == names[1] != names[2]
    assert recorded_name(dataclasses.replace(two, name="n", family="simt")) != names[0]


def test_a_spec_is_a_value() -> None:
    spec = load_spec("cute_tutorial_tn")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.family = "simt"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert dataclasses.replace(spec, tile=Tile(stages=4)).tile.stages == 4
    with pytest.raises(SpecError, match=r"tile\.stages: found 0"):
        dataclasses.replace(spec, tile=Tile(stages=0))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_asked_for(family: str) -> None:
    assert parse_spec(MINIMAL.replace("sm80", family)).family == family
