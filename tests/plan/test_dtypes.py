"""Element types beside f16 and bf16: which go together, how they come to fragments, and what a plan says of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from cutegen.algebra import Layout
from cutegen.errors import ProofError, SpecError
from cutegen.hardware import DTYPES, ldmatrix_atom, target, targeting
from cutegen.plan import GemmPlan, plan
from cutegen.plan.prove import prove
from cutegen.plan.values.fragments import LdmatrixLoads
from cutegen.render import render
from cutegen.spec import Bias, Epilogue, Extra, GemmSpec, Mma, Operand, Problem, S2r, S2rCopy, Smem, SmemLayout, Tile
from tests.plan.changed import with_path
from tests.plan.specs import gemm

FLOAT8 = ("e4m3", "e5m2")
ALLOWED = {
    ("f16", "f16"): {"f16", "f32"},
    ("bf16", "bf16"): {"f32"},
    ("tf32", "tf32"): {"f32"},
    **{pair: {"s32"} for pair in product(("s8", "u8"), ("s8", "u8"))},
    **{pair: {"f16", "f32"} for pair in product(FLOAT8, FLOAT8)},
}
"""(A, B) -> the sums that an mma.sync has for them (PTX ISA, "mma", tables of types)."""


def chosen(found: GemmPlan, key: str) -> tuple[str, str]:
    decision = next(x for x in found.decisions if x.key == key)
    return decision.chosen, decision.why


def refusal(spec: GemmSpec, arch: str = "sm_90") -> SpecError:
    with pytest.raises(SpecError) as caught:
        plan(spec, arch)
    return caught.value


@pytest.mark.parametrize(("a", "b"), list(product(DTYPES, DTYPES)))
def test_which_types_go_together(a: str, b: str) -> None:
    for accumulator in (None, "f16", "f32", "s32"):
        spec = gemm(dtype=a, b_dtype=b, accumulator=accumulator, c_dtype="f32")
        sums = ALLOWED.get((a, b), set())
        if accumulator in sums or (accumulator is None and sums):
            found = plan(spec, "sm_90").atom
            assert (found.a_dtype.name, found.b_dtype.name) == (a, b)
            assert found.c_dtype.name == (accumulator or ("f32" if "f32" in sums else "s32"))
            continue
        error = refusal(spec)
        if sums:
            assert error.key == "problem.accumulator"
            assert all(name in error.expected for name in sums)
        elif any(pair[0] == a for pair in ALLOWED):
            assert error.key == "problem.b.dtype"
            assert all(f'"{right}"' in error.expected for left, right in ALLOWED if left == a)
        else:
            assert error.key == "problem.a.dtype"
            assert all(left in error.expected for left, _ in ALLOWED)


def test_f32_operands_are_pointed_to_tf32() -> None:
    assert 'write dtype = "tf32"' in refusal(gemm(dtype="f32")).fix
    assert 'write dtype = "f32"' in refusal(gemm(dtype="tf32", c_dtype="tf32")).fix


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("arch", ["sm_86", "sm_89"])
def test_8_bit_floats_need_a_target_that_knows_them(dtype: str, arch: str) -> None:
    half = Operand("f16", "k")
    c = Operand("f16", "n")
    asked = {
        "a": gemm(dtype=dtype, c_dtype="f16"),
        "c": gemm(c_dtype=dtype),
        "residual": GemmSpec(
            family="sm80",
            problem=Problem(a=half, b=half, c=c, residual=Extra(dtype)),
            epilogue=Epilogue(ops=("residual",)),
        ),
        "bias": GemmSpec(
            family="sm80", problem=Problem(a=half, b=half, c=c, bias=Bias(dtype)), epilogue=Epilogue(ops=("bias_n",))
        ),
    }
    for name, spec in asked.items():
        assert spec.needs == "sm_89"
        if target(arch).compute_capability >= (8, 9):
            assert plan(spec, arch).target.name == arch
        else:
            error = refusal(spec, arch)
            assert error.key == f"problem.{name}.dtype"
            assert arch in error.found
            assert "sm_89" in error.expected
            assert "--arch sm_89" in error.fix


def test_without_a_target_the_first_that_serves_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targeting, "present_target", lambda: None)
    assert [plan(gemm(dtype=x)).target.name for x in ("f16", "tf32", "s8", "e4m3")] == 3 * ["sm_80"] + ["sm_89"]
    monkeypatch.setattr(targeting, "present_target", lambda: target("sm_90"))
    assert plan(gemm(dtype="e4m3")).target.name == "sm_90"


@pytest.mark.parametrize("dtype", ["f16", "tf32", "s8", "e4m3"])
@pytest.mark.parametrize("majors", ["kkn", "mkn", "mnn"])
def test_what_brings_fragments(dtype: str, majors: str) -> None:
    """N where rows run along K; T exchanges 16-bit elements and no others, so that others are loaded one by one."""
    found = plan(gemm(majors, dtype), "sm_90")
    bits = DTYPES[dtype].bits
    for operand in found.operands:
        chosen_name, why = chosen(found, f"s2r.{operand.name}")
        if operand.major == "k":
            assert chosen_name == "SM75_U32x4_LDSM_N"
            assert "N, since rows of shared memory run along k" in why
            assert (f"16 bytes are {128 // bits} elements of {bits} bits" in why) is (bits != 16)
        elif bits == 16:
            assert chosen_name == "SM75_U16x8_LDSM_T"
        else:
            assert chosen_name == f"universal, {bits} bits"
            harm = "splits them in halves" if bits == 32 else "keeps pairs of them together"
            assert f"ldmatrix.trans transposes 16-bit elements: with {bits} bits it {harm}" in why
            assert operand.s2r.matrices is None
            said = {rejected.what: rejected.why for rejected in operand.s2r.rejected}
            assert "this operand is contiguous along" in said["SM75_U32x4_LDSM_N"]
            assert harm in said["SM75_U16x8_LDSM_T"]
            assert ("SM100_U8x16_LDSM_T" in said) is (bits == 8)
            if bits == 8:
                assert (
                    said["SM100_U8x16_LDSM_T"]
                    == "transposes 8-bit elements, on sm_100, sm_103 or sm_120; this is sm_90"
                )


@pytest.mark.parametrize("arch", ["sm_100", "sm_120"])
@pytest.mark.parametrize("family", ["sm80", "sm120"])
@pytest.mark.parametrize("majors", ["mkn", "knn", "mnn"])
def test_8_bit_elements_are_transposed_where_the_target_does(majors: str, family: str, arch: str) -> None:
    """Without a bank conflict, and B's columns in pairs of atoms: 16 bytes along N are one warp's."""
    found = plan(replace(gemm(majors, "e4m3", c_dtype="bf16"), family=family), arch)
    for operand in found.operands:
        chosen_name, why = chosen(found, f"s2r.{operand.name}")
        assert operand.smem.chosen.read.ways == 1
        if operand.major == "k":
            assert chosen_name == "SM75_U32x4_LDSM_N"
            continue
        assert chosen_name == "SM100_U8x16_LDSM_T"
        assert f"ldmatrix of {arch} transposes 8-bit elements" in why
        assert found.predictions.instructions["ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8"]
    m, n, k = found.tiled_mma.tile_mnk
    permutation, why = chosen(found, "mma.permutation")
    warps = found.atoms_mnk[1]
    in_pairs = f", N as (8,{warps},2):(1,16,8)" if majors[1] == "n" else ""
    assert permutation == f"{m}x{n}x{k}{in_pairs}"
    assert ("in pairs along N" in why) is (majors[1] == "n")


@pytest.mark.parametrize(
    ("dtype", "elsewhere"), [("s8", "and sm_100, sm_103 or sm_120 an ldmatrix for s8"), ("tf32", "")]
)
def test_without_plain_loads_an_operand_must_be_one_that_ldmatrix_loads(dtype: str, elsewhere: str) -> None:
    error = refusal(replace(gemm("mkn", dtype), family="sm120"))
    assert error.key == "problem.a.major"
    assert "ldmatrix.trans transposes 16-bit elements" in error.found
    assert error.fix == 'family = "sm80" has plain loads' + (f", {elsewhere}" if elsewhere else "")
    asked = replace(gemm("kkn", dtype, s2r=S2r(a=S2rCopy("universal"))), family="sm120")
    assert (refusal(asked).key, refusal(asked).found) == ("s2r.a.atom", '"universal"')


def test_a_warp_with_8_neighbors_along_n_is_left_to_plain_loads() -> None:
    """Rows of 16 bytes are two atoms' columns."""
    mma = Mma(atom_layout=(2, 2, 1), permutation=(32, 16, 32))
    spec = gemm("mnn", "s8", tile=Tile(cta=(64, 64, 64), stages=2), mma=mma)
    found = plan(spec, "sm_120")
    assert (found.a.s2r.matrices, found.b.s2r.matrices) == (2, None)
    assert "rows of 16 elements along n span two atoms of one warp" in chosen(found, "s2r.b")[1]
    assert chosen(found, "mma.permutation")[0] == "32x16x32"
    error = refusal(replace(spec, s2r=S2r(b=S2rCopy("SM100_U8x8_LDSM_T"))), "sm_120")
    assert (error.key, error.expected) == ("s2r.b.atom", "at least two atoms per warp along n")
    assert "a larger mma.permutation along n" in error.fix
    wide = replace(spec, mma=replace(mma, permutation=(32, 32, 32)))
    assert plan(wide, "sm_120").b.s2r.matrices == 2
    plain = plan(replace(wide, s2r=S2r(b=S2rCopy("universal"))), "sm_120")
    assert chosen(plain, "mma.permutation")[0] == "32x32x32"


def test_an_ldmatrix_that_is_named_names_the_target() -> None:
    spec = gemm("kkn", "s8", s2r=S2r(a=S2rCopy("SM100_U8x16_LDSM_T")))
    assert (spec.needs, gemm("kkn", "s8").needs) == ("sm_100", "sm_80")


def test_fragments_numbered_wrongly_are_no_proof() -> None:
    found = plan(gemm("knn", "s8"), "sm_120")
    view = found.b.s2r.view
    assert view is not None
    as_if = Layout((((4, 2, 2), 1), *view.shape[1:]), (((1, 4, 8), 0), *view.stride[1:]))
    wrong = replace(found.b.s2r, view=as_if)
    with pytest.raises(ProofError, match="numbers its registers wrongly"):
        prove(with_path(found, "b", s2r=wrong))


@pytest.mark.parametrize(
    ("dtype", "majors", "atom", "said"),
    [
        ("s8", "mkn", "SM75_U16x8_LDSM_T", 'use "universal"'),
        ("s8", "mkn", "SM100_U8x16_LDSM_T", "or --arch sm_120"),
        ("f16", "mkn", "SM100_U8x16_LDSM_T", "use SM75_U16x4_LDSM_T"),
        ("e4m3", "kkn", "SM100_U8x8_LDSM_T", "use SM75_U32x1_LDSM_N"),
        ("tf32", "mkn", "SM100_U8x8_LDSM_T", 'problem.a.major = "k"'),
        ("s8", "mkn", "SM75_U32x4_LDSM_N", 'use "universal"'),
        ("tf32", "mkn", "SM75_U16x4_LDSM_T", 'use "universal"'),
        ("tf32", "kkn", "SM75_U16x8_LDSM_T", "use SM75_U32x4_LDSM_N"),
        ("e4m3", "kkn", "SM75_U16x2_LDSM_T", "use SM75_U32x1_LDSM_N"),
    ],
)
def test_an_ldmatrix_that_cannot_serve_is_refused(dtype: str, majors: str, atom: str, said: str) -> None:
    error = refusal(gemm(majors, dtype, s2r=S2r(a=S2rCopy(atom))))
    assert error.key == "s2r.a.atom"
    assert said in error.fix


@pytest.mark.parametrize(
    ("atom", "said"), [("SM75_U16x8_LDSM_T", "SM100_U8x16_LDSM_T"), ("SM75_U32x1_LDSM_N", "SM100_U8x8_LDSM_T")]
)
def test_where_bytes_are_transposed_that_is_the_way_out(atom: str, said: str) -> None:
    error = refusal(gemm("mkn", "s8", s2r=S2r(a=S2rCopy(atom))), "sm_120")
    assert error.fix == f"use {said}"
    assert "ldmatrix of sm_120 transposes 8-bit elements" in error.expected


def test_an_ldmatrix_of_fewer_values_than_there_are() -> None:
    """16x8x16 of s8 leaves a thread 4 values of B's atom: one matrix of 4, and no two."""
    mma = Mma(atom="SM80_16x8x16_S32S8S8S32_TN_SATURATE", atom_layout=(2, 2, 1), permutation=(32, 16, 16))
    tile = Tile(cta=(64, 64, 64), stages=2)
    assert plan(gemm(dtype="s8", tile=tile, mma=mma), "sm_80").b.s2r.matrices == 1
    error = refusal(gemm(dtype="s8", tile=tile, mma=mma, s2r=S2r(b=S2rCopy("SM75_U32x2_LDSM_N"))))
    assert "2 matrices hold 8 values per thread, but the tiled MMA's tile has V = 4" in error.found
    assert "V % (4 x matrices) == 0" in error.expected


@pytest.mark.parametrize(("dtype", "base"), [("tf32", 2), ("f16", 3), ("s8", 4), ("e4m3", 4)])
def test_tiles_and_swizzles_are_measured_in_bytes(dtype: str, base: int) -> None:
    """A k-tile's row is a line of 128 bytes, and a swizzle keeps 16 bytes together, whatever the elements are."""
    found = plan(gemm(dtype=dtype), "sm_90")
    assert found.cta_tile[2] * found.a.dtype.bytes == 128
    assert found.tiled_mma.tile_mnk[2] * found.a.dtype.bytes == 32
    for operand in found.operands:
        assert operand.smem.swizzle is not None
        assert (operand.smem.swizzle.bits, operand.smem.swizzle.base, operand.smem.swizzle.shift) == (3, base, 3)
        assert operand.smem.chosen.write.ways == operand.smem.chosen.read.ways == 1
        assert operand.g2s.bits == 128


@pytest.mark.parametrize(("dtype", "together"), [("tf32", 2), ("s8", 8)])
def test_a_layout_that_splits_rows_of_16_bytes_leaves_plain_loads(dtype: str, together: int) -> None:
    """K-major: a register's neighbors along k are loaded at once, 4 of 8 bits and one of 32."""
    found = plan(gemm(dtype=dtype, smem=Smem(a=SmemLayout(pad=together))), "sm_80")
    assert found.a.s2r.matrices is None
    assert found.a.s2r.bits == 32
    assert chosen(found, "s2r.a")[1].startswith(f"the shared layout keeps only {together} elements contiguous")


def test_a_swizzle_that_splits_16_bytes_is_refused_in_elements() -> None:
    error = refusal(gemm(dtype="s8", smem=Smem(a=SmemLayout(swizzle=(3, 3, 3)))))
    assert error.fix == "[3, 4, 3]"


def test_tf32_is_cut_off_unless_rounding_is_asked_for() -> None:
    cut = plan(gemm(dtype="tf32"), "sm_80")
    rounded = plan(gemm(dtype="tf32", mma=Mma(tf32="nearest")), "sm_80")
    assert (cut.mma.rounds_to_tf32, rounded.mma.rounds_to_tf32) == (False, True)
    assert chosen(cut, "mma.tf32")[0] == "truncate"
    assert "2^-10" in chosen(cut, "mma.tf32")[1]
    assert "2^-11" in chosen(rounded, "mma.tf32")[1]
    assert ("cvt_f32_tf32" in render(cut).text, "cvt_f32_tf32" in render(rounded).text) == (False, True)
    assert plan(gemm(), "sm_80").mma.rounds_to_tf32 is False
    error = refusal(gemm(mma=Mma(tf32="nearest")))
    assert (error.key, error.fix) == ("mma.tf32", "leave mma.tf32 out")


_MADE_BY = {"s8": "get_signed", "u8": "get_unsigned"}


@pytest.mark.parametrize(
    ("dtype", "b_dtype", "said"),
    [
        ("f16", None, "warp.MmaF16BF16Op(A_DTYPE, ACCUMULATOR_DTYPE, MMA_SHAPE)"),
        ("tf32", None, "warp.MmaTF32Op(MMA_SHAPE)"),
        ("e4m3", None, "warp.MmaFP8Op(A_DTYPE, ACCUMULATOR_DTYPE, MMA_SHAPE)"),
        ("e4m3", "e5m2", "MmaOperation()"),
        ("s8", None, "MmaOperation()"),
        ("u8", None, "MmaOperation()"),
        ("s8", "u8", "MmaOperation()"),
    ],
)
def test_how_a_kernel_names_its_mma(dtype: str, b_dtype: str | None, said: str) -> None:
    text = render(plan(gemm(dtype=dtype, b_dtype=b_dtype), "sm_90")).text
    assert f"        {said},\n" in text
    assert ("class MmaOperation(" in text) is (said == "MmaOperation()")
    signs = f"a, b = ir.IntegerType.{_MADE_BY.get(dtype)}(8), ir.IntegerType.{_MADE_BY.get(b_dtype or dtype)}(8)"
    assert (signs in text) is (dtype in _MADE_BY)


@pytest.mark.parametrize("dtype", ["s8", "e4m3"])
def test_a_plan_that_transposes_8_bit_elements_is_no_proof(dtype: str) -> None:
    """As if the rule had taken LDSM_T for an operand across K, as it does for 16 bits."""
    found = plan(gemm("mkn", dtype), "sm_90")
    tiled_copy = found.a.s2r.tiled_copy
    torn = LdmatrixLoads(atom=ldmatrix_atom(4, transpose=True), bits=128, tiled_copy=tiled_copy, rejected=())
    with pytest.raises(ProofError, match=f"SM75_U16x8_LDSM_T does not transpose {dtype}"):
        prove(with_path(found, "a", s2r=torn))


@pytest.mark.parametrize(("arch", "warps"), [("sm_89", 4), ("sm_90", 8), ("sm_100", 8), ("sm_120", 4)])
def test_8_bit_floats_that_become_f16_leave_fewer_registers_to_sums(arch: str, warps: int) -> None:
    found = plan(gemm(dtype="e4m3", c_dtype="bf16"), arch)
    assert found.threads == 32 * warps
    assert ("converts 8-bit floats to f16" in chosen(found, "mma.atom_layout")[1]) is (warps == 8)
    assert plan(gemm(), arch).threads == 128


@pytest.mark.parametrize(
    ("dtype", "tile"),
    [("f16", (128, 256, 64)), ("tf32", (128, 256, 32)), ("s8", (128, 256, 128)), ("e4m3", (128, 128, 128))],
)
def test_bulk_copies_fetch_lines_of_128_bytes_of_any_type(dtype: str, tile: tuple[int, int, int]) -> None:
    found = plan(replace(gemm(dtype=dtype), family="sm120"), "sm_90")
    assert found.cta_tile == tile
    assert ("f16 values that sm_90 converts e4m3" in chosen(found, "tile.cta")[1]) is (dtype == "e4m3")
