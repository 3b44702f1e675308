"""Scalar instructions at the edges of their ranges: results worked out by hand from the PTX ISA."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from kernels import kernel, run_elements
from micro_kernels import Elementwise, size_bytes
from test_ptx_arithmetic import round_to

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import Program
from cutegen.ptx.arithmetic.rounding import to_bf16, to_f8, to_f16, to_f32, to_tf32
from tests.seeding import new_generator

MODES = ("rn", "rz", "rm", "rp")
MIN32, MAX32 = 0x80000000, 0x7FFFFFFF
NAN16, INF16 = 0x7FFF, 0x7F80


def execute(instruction: str, types: tuple[str, ...], *operands: int, target: str = "sm_90") -> int:
    """The bits of the result of one instruction, the same in all lanes."""
    row = Elementwise(
        name="known", instruction=instruction, types=types, values=("bits",) * len(operands), target=target
    )
    out = np.zeros(128, f"u{size_bytes(types[0])}")
    arrays = [np.full(128, bits, f"u{size_bytes(kind)}") for bits, kind in zip(operands, types[1:], strict=True)]
    Program.parse(row.ptx()).launch("known", grid=1, block=128, args=[out, *arrays])
    assert (out == out[0]).all()
    return int(out[0])


INTEGERS = [
    ("add.sat.s32 {d}, {a}, {b};", (MAX32, 1), MAX32),
    ("add.sat.s32 {d}, {a}, {b};", (MIN32, 0xFFFFFFFF), MIN32),
    ("add.sat.s32 {d}, {a}, {b};", (0x60000000, 0x10000000), 0x70000000),
    ("add.sat.s32 {d}, {a}, {b};", (0xA0000000, 0xF0000000), 0x90000000),
    ("sub.sat.s32 {d}, {a}, {b};", (MIN32, 1), MIN32),
    ("sad.u32 {d}, {a}, {b}, {c};", (3, 10, 100), 107),
    ("sad.u32 {d}, {a}, {b}, {c};", (10, 3, 100), 107),
    ("sad.s32 {d}, {a}, {b}, {c};", (0xFFFFFFFF, 4, 1), 6),
    ("mul24.lo.u32 {d}, {a}, {b};", (3, 0xFF000005), 15),
    ("mul24.hi.u32 {d}, {a}, {b};", (0x800000, 0x20000), 0x01000000),
    ("mul24.lo.s32 {d}, {a}, {b};", (0xFFFFFF, 7), 0xFFFFFFF9),
    ("mad24.lo.u32 {d}, {a}, {b}, {c};", (3, 5, 100), 115),
    ("shl.b32 {d}, {a}, {b};", (0x80000001, 31), 0x80000000),
    ("shl.b32 {d}, {a}, {b};", (1, 32), 0),
    ("shl.b32 {d}, {a}, {b};", (1, 0xFFFFFFFF), 0),
    ("shr.u32 {d}, {a}, {b};", (0x80000000, 31), 1),
    ("shr.u32 {d}, {a}, {b};", (0x80000000, 32), 0),
    ("shr.s32 {d}, {a}, {b};", (0x80000000, 200), 0xFFFFFFFF),
    ("shr.s32 {d}, {a}, {b};", (0x80000000, 1), 0xC0000000),
    ("prmt.b32 {d}, {a}, {b}, {c};", (0x03020100, 0x07060504, 0x7531), 0x07050301),
    ("prmt.b32 {d}, {a}, {b}, {c};", (0x03020180, 0x07060504, 0x1238), 0x010203FF),
    ("prmt.b32.b4e {d}, {a}, {b}, {c};", (0x03020100, 0x07060504, 0), 0x05060700),
    ("prmt.b32.f4e {d}, {a}, {b}, {c};", (0x03020100, 0x07060504, 2), 0x05040302),
    ("prmt.b32.rc16 {d}, {a}, {b}, {c};", (0x03020100, 0x07060504, 2), 0x01000100),
    ("prmt.b32.rc16 {d}, {a}, {b}, {c};", (0x03020100, 0x07060504, 3), 0x03020302),
    ("dp4a.u32.u32 {d}, {a}, {b}, {c};", (0x01020304, 0x01010101, 1), 11),
    ("dp4a.s32.u32 {d}, {a}, {b}, {c};", (0xFFFFFFFF, 0x01010101, 0xFFFFFFFF), 0xFFFFFFFB),
    ("dp2a.lo.u32.u32 {d}, {a}, {b}, {c};", (0x00010002, 0x40302010, 5), 0x20 + 0x10 * 2 + 5),
    ("dp2a.hi.u32.u32 {d}, {a}, {b}, {c};", (0x00010002, 0x40302010, 5), 0x40 + 0x30 * 2 + 5),
    ("add.cc.u32 {d}, {a}, {a}; addc.cc.u32 {d}, {b}, {c}; addc.u32 {d}, 0, 0;", (MIN32, 0xFFFFFFFF, 0), 1),
    ("lop3.b32 {d}, {a}, {b}, {c}, 0xE8;", (0b1100, 0b1010, 0b0110), 0b1110),
    ("bmsk.clamp.b32 {d}, {a}, {b};", (3, 5), 0xF8),
    ("bmsk.wrap.b32 {d}, {a}, {b};", (35, 37), 0xF8),
    ("bmsk.clamp.b32 {d}, {a}, {b};", (30, 5), 0xC0000000),
    ("bmsk.clamp.b32 {d}, {a}, {b};", (32, 3), 0),
    ("bmsk.clamp.b32 {d}, {a}, {b};", (0, 99), 0xFFFFFFFF),
    ("bmsk.wrap.b32 {d}, {a}, {b};", (0, 32), 0),
    ("szext.wrap.s32 {d}, {a}, {b};", (0xFF, 8), 0xFFFFFFFF),
    ("szext.wrap.s32 {d}, {a}, {b};", (0x17F, 40), 0x7F),
    ("szext.clamp.s32 {d}, {a}, {b};", (0x80000001, 40), 0x80000001),
    ("szext.clamp.u32 {d}, {a}, {b};", (0xFFF, 8), 0xFF),
    ("szext.clamp.s32 {d}, {a}, {b};", (0xFF, 0), 0),
    ("set.lt.u32.s32 {d}, {a}, {b};", (0xFFFFFFFF, 1), 0xFFFFFFFF),
    ("set.lt.u32.s32 {d}, {a}, {b};", (1, 0xFFFFFFFF), 0),
    ("set.gt.f32.s32 {d}, {a}, {b};", (5, 4), 0x3F800000),
    ("setp.gt.u32 %pr0, {c}, 4; set.lt.and.u32.s32 {d}, {a}, {b}, %pr0;", (1, 2, 5), 0xFFFFFFFF),
    ("setp.gt.u32 %pr0, {c}, 4; set.lt.and.u32.s32 {d}, {a}, {b}, %pr0;", (1, 2, 3), 0),
    ("setp.gt.u32 %pr0, {c}, 4; set.lt.and.f32.s32 {d}, {a}, {b}, !%pr0;", (1, 2, 3), 0x3F800000),
    ("setp.gt.u32 %pr0, {c}, 4; set.lt.xor.u32.s32 {d}, {a}, {b}, %pr0;", (2, 1, 5), 0xFFFFFFFF),
    ("rem.u32 {d}, {a}, {b};", (7, 0), 0xFFFFFFFF),  # PTX leaves it open; an H100 gives this
    ("rem.s32 {d}, {a}, {b};", (MIN32, 0xFFFFFFFF), 0),
    ("slct.b32.s32 {d}, {a}, {b}, {c};", (7, 8, 0), 7),
    ("slct.b32.s32 {d}, {a}, {b}, {c};", (7, 8, MIN32), 8),
    ("cvt.sat.s8.s32 {d}, {a};", (200,), 127),
    ("cvt.sat.s8.s32 {d}, {a};", (0xFFFFFF00,), 0xFFFFFF80),
    ("cvt.sat.s8.s32 {d}, {a};", (0xFFFFFFFB,), 0xFFFFFFFB),
    ("cvt.sat.u8.s32 {d}, {a};", (0xFFFFFFFB,), 0),
    ("cvt.sat.u8.s32 {d}, {a};", (100,), 100),
]


@pytest.mark.parametrize(("instruction", "operands", "result"), INTEGERS)
def test_integers(instruction: str, operands: tuple[int, ...], result: int) -> None:
    assert execute(instruction, ("b32",) * (1 + len(operands)), *operands) == result


P, Q = "%pr0", "%pr1"
PREDICATES = [
    ("setp.lt.s32 %pr0|%pr1, {a}, {b};", (1, 2), (1, 0)),
    ("setp.lt.s32 %pr0|%pr1, {a}, {b};", (2, 1), (0, 1)),
    ("setp.eq.s32 %pr2, 0, 0; setp.lt.and.s32 %pr0|%pr1, {a}, {b}, !%pr2;", (1, 2), (0, 0)),
    ("setp.eq.s32 %pr2, 0, 0; setp.lt.and.s32 %pr0|%pr1, {a}, {b}, %pr2;", (1, 2), (1, 0)),
    ("setp.eq.s32 %pr2, 0, 0; setp.lt.or.s32 %pr0|%pr1, {a}, {b}, %pr2;", (2, 1), (1, 1)),
    ("setp.eq.s32 %pr2, 0, 0; setp.lt.xor.s32 %pr0|%pr1, {a}, {b}, %pr2;", (1, 2), (0, 1)),
]


@pytest.mark.parametrize(("instruction", "operands", "both"), PREDICATES)
def test_both_predicates_of_a_comparison(instruction: str, operands: tuple[int, ...], both: tuple[int, int]) -> None:
    """`setp p|q`: q has the comparison's opposite, combined like p (PTX ISA, setp)."""
    for name, wanted in zip((P, Q), both, strict=True):
        text = f"{instruction} selp.b32 {{d}}, 1, 0, {name};"
        assert execute(text, ("b32", "b32", "b32"), *operands) == wanted, name


@pytest.mark.parametrize(
    ("name", "bits", "holds"),
    [
        ("finite", 0x7F7FFFFF, True),
        ("finite", 0x7F800000, False),
        ("infinite", 0xFF800000, True),
        ("infinite", 0x7FC00000, False),
        ("number", 0x7F800000, True),
        ("number", 0x7FC00000, False),
        ("notanumber", 0x7FC00000, True),
        ("notanumber", 0, False),
        ("normal", 0x00800000, True),
        ("normal", 0x007FFFFF, False),
        ("normal", 0x7F800000, False),
        ("subnormal", 0x007FFFFF, True),
        ("subnormal", 0x00800000, False),
        ("subnormal", 0, False),
    ],
)
def test_classes_of_floats(name: str, bits: int, *, holds: bool) -> None:
    text = f"testp.{name}.f32 %pr0, {{a}}; selp.b32 {{d}}, 1, 0, %pr0;"
    assert execute(text, ("b32", "b32"), bits) == holds


FLOATS = [
    ("add.ftz.f32 {d}, {a}, {b};", "f32", (0x00800000, 0), 0x00800000),
    ("add.ftz.f32 {d}, {a}, {b};", "f32", (0x00800001, 0x80800000), 0),
    ("add.f32 {d}, {a}, {b};", "f32", (0x00800001, 0x80800000), 1),
    ("sub.rn.f32 {d}, {a}, {b};", "f32", (0x40400000, 0x3F800000), 0x40000000),
    ("div.rn.f32 {d}, {a}, {b};", "f32", (0x40C00000, 0x40400000), 0x40000000),
    ("mul.ftz.f32 {d}, {a}, {b};", "f32", (0x00000001, 0x7F000000), 0),
    ("add.sat.f32 {d}, {a}, {b};", "f32", (0x3E800000, 0x3E800000), 0x3F000000),
    ("add.sat.f32 {d}, {a}, {b};", "f32", (0x3F800000, 0x3F800000), 0x3F800000),
    ("add.sat.f32 {d}, {a}, {b};", "f32", (0xBF800000, 0), 0),
    ("rsqrt.approx.f32 {d}, {a};", "f32", (0x40800000,), 0x3F000000),
    ("rcp.rn.f32 {d}, {a};", "f32", (0x40800000,), 0x3E800000),
    ("add.rm.f32 {d}, {a}, {b};", "f32", (0x3F800000, 0xBF800000), 0x80000000),
    ("add.rn.f32 {d}, {a}, {b};", "f32", (0x3F800000, 0xBF800000), 0),
    ("sub.rm.f32 {d}, {a}, {b};", "f32", (0x3F800000, 0x3F800000), 0x80000000),
    ("fma.rm.f32 {d}, {a}, {b}, {c};", "f32", (0xBF800000, 0x3F800000, 0x3F800000), 0x80000000),
    ("fma.rm.f64 {d}, {a}, {b}, {c};", "f64", (0xBFF << 52, 0x3FF << 52, 0x3FF << 52), 1 << 63),
    ("fma.rm.f64 {d}, {a}, {b}, {c};", "f64", (0x3FF << 52, 0xBFF << 52, 0x3FF << 52), 1 << 63),
    ("fma.rm.f64 {d}, {a}, {b}, {c};", "f64", (0xBFF << 52, 0xBFF << 52, 0xBFF << 52), 1 << 63),
    ("add.rn.bf16 {d}, {a}, {b};", "bf16", (0x3F80, 0x3F80), 0x4000),
    ("sub.rn.bf16 {d}, {a}, {b};", "bf16", (0x4040, 0x3F80), 0x4000),
    ("mul.rn.bf16 {d}, {a}, {b};", "bf16", (0x4000, 0x4040), 0x40C0),
    ("mov.f32 {d}, 0d3FF0000000000000; add.f32 {d}, {d}, {a};", "f32", (0,), 0x3F800000),
    ("min.f32 {d}, {a}, {b};", "f32", (0x80000000, 0), 0x80000000),  # -0 is less than +0
    ("min.f32 {d}, {a}, {b};", "f32", (0, 0x80000000), 0x80000000),
    ("max.f32 {d}, {a}, {b};", "f32", (0x80000000, 0), 0),
    ("max.f32 {d}, {a}, {b};", "f32", (0, 0x80000000), 0),
    ("copysign.f32 {d}, {a}, {b};", "f32", (0x80000000, 0x3F800000), 0xBF800000),
    ("copysign.f32 {d}, {a}, {b};", "f32", (0x3F800000, 0xC0000000), 0x40000000),
    ("slct.f32.f32 {d}, {a}, {b}, {c};", "f32", (0x3F800000, 0x40000000, 0x80000001), 0x40000000),
    ("slct.ftz.f32.f32 {d}, {a}, {b}, {c};", "f32", (0x3F800000, 0x40000000, 0x80000001), 0x3F800000),
    ("max.bf16 {d}, {a}, {b};", "bf16", (INF16, 0x3F80), INF16),
    ("max.NaN.bf16 {d}, {a}, {b};", "bf16", (0x7F81, 0x3F80), NAN16),
    ("max.bf16 {d}, {a}, {b};", "bf16", (0x7F81, 0x3F80), 0x3F80),
    ("abs.bf16 {d}, {a};", "bf16", (0x7F81,), NAN16),
    ("abs.bf16 {d}, {a};", "bf16", (0xFF80,), INF16),
    ("fma.rn.relu.f16 {d}, {a}, {b}, {c};", "f16", (0x8001, 0x2CAF, 0), 0),  # -0 before the clamp
    ("fma.rn.relu.bf16 {d}, {a}, {b}, {c};", "bf16", (0x8001, 0x0080, 0x8000), 0),
]


@pytest.mark.parametrize(("instruction", "kind", "operands", "result"), FLOATS)
def test_floats(instruction: str, kind: str, operands: tuple[int, ...], result: int) -> None:
    assert execute(instruction, (kind,) * (1 + len(operands)), *operands) == result


CONVERSIONS = [
    ("cvt.rn.f32.u64 {d}, {a};", ("f32", "b64"), (1 << 40) + (1 << 16), 0x53800000),  # a tie, to even
    ("cvt.rn.f32.u64 {d}, {a};", ("f32", "b64"), (1 << 40) + (1 << 16) + 1, 0x53800001),
    ("cvt.rz.f64.s64 {d}, {a};", ("f64", "b64"), 2**64 - (2**53 + 1), 0xC340000000000000),
    ("cvt.rm.f64.s64 {d}, {a};", ("f64", "b64"), 2**64 - (2**53 + 1), 0xC340000000000001),
    ("cvt.rp.f64.s64 {d}, {a};", ("f64", "b64"), 2**64 - (2**53 + 1), 0xC340000000000000),
    ("cvt.rz.f64.s64 {d}, {a};", ("f64", "b64"), 2**53 + 3, 0x4340000000000001),
    ("cvt.rp.f64.s64 {d}, {a};", ("f64", "b64"), 2**53 + 1, 0x4340000000000001),
    ("cvt.rm.f64.s64 {d}, {a};", ("f64", "b64"), 2**53 + 3, 0x4340000000000001),
    ("cvt.rz.f32.s32 {d}, {a};", ("f32", "b32"), (1 << 24) + 1, 0x4B800000),
    ("cvt.rp.f32.s32 {d}, {a};", ("f32", "b32"), (1 << 24) + 1, 0x4B800001),
    ("cvt.rn.f32.s32 {d}, {a};", ("f32", "b32"), 0xFFFFFFFF, 0xBF800000),
    ("cvt.rn.f32.f64 {d}, {a};", ("f32", "f64"), 0x36A0000000000000, 1),
    ("cvt.rn.ftz.f32.f64 {d}, {a};", ("f32", "f64"), 0x36A0000000000000, 0),
    ("cvt.f32.f16 {d}, {a};", ("f32", "f16"), 1, 0x33800000),
    ("cvt.f32.bf16 {d}, {a};", ("f32", "bf16"), 1, 0x00010000),
    ("mov.b64 {d}, 0d3FF0000000000000; add.u64 {d}, {d}, {a};", ("b64", "b64"), 1, 0x3FF0000000000001),
    ("cvt.sat.s32.u32 {d}, {a};", ("b32", "b32"), 0xFFFFFFFF, MAX32),
    ("cvt.sat.s8.u32 {d}, {a};", ("b32", "b32"), 200, 127),
    # A wider register holds the bits of a float, extended by zeros.
    ("cvt.rn.f16.f32 {d}, {a};", ("b32", "f32"), 0xBFC00000, 0xBE00),
    ("cvt.rn.f16.f64 {d}, {a};", ("b64", "f64"), 0xBFF8 << 48, 0xBE00),
    ("cvt.rn.f32.s32 {d}, {a};", ("b64", "b32"), 3, 0x40400000),
    ("st.global.f32 [%q1], {a}; ld.global.f32 {d}, [%q1];", ("b64", "b32"), 0xBFC00000, 0xBFC00000),
    # NaNs on an H100: the payload stays, made quiet.
    ("cvt.rn.f16.f64 {d}, {a};", ("f16", "f64"), 0xFFF5D51392B20DB4, 0xFF75),
    ("cvt.rp.f16.f64 {d}, {a};", ("f16", "f64"), 0x7FF9AC6C158CFBD8, 0x7E6B),
    ("cvt.rz.bf16.f64 {d}, {a};", ("bf16", "f64"), 0xFFF64175332E3B38, 0xFFF2),
    ("cvt.rn.bf16.f64 {d}, {a};", ("bf16", "f64"), 0x7FF8B85DCEC8D1C0, 0x7FC5),
    ("cvt.rn.sat.f16.f64 {d}, {a};", ("f16", "f64"), 0x7FF8B85DCEC8D1C0, 0),
    ("cvt.ftz.f64.f32 {d}, {a};", ("f64", "f32"), 0xFF983DB5, 0x7FFFFFFFE0000000),
    ("cvt.rn.tf32.f32 {d}, {a};", ("b32", "f32"), 0xFFA3496C, 0x7FFFE000),
    ("cvt.rz.tf32.f32 {d}, {a};", ("b32", "f32"), 0x7F873103, 0x7FFFE000),
    ("cvt.rn.relu.tf32.f32 {d}, {a};", ("b32", "f32"), 0x7FC00000, 0x7FFFE000),
    # -0 saturates and rectifies to +0 there.
    ("cvt.sat.f32.f32 {d}, {a};", ("f32", "f32"), 0x80000000, 0),
    ("cvt.ftz.sat.f32.f32 {d}, {a};", ("f32", "f32"), 0x80103832, 0),
    ("cvt.sat.f64.f64 {d}, {a};", ("f64", "f64"), 1 << 63, 0),
    ("cvt.rn.relu.bf16.f32 {d}, {a};", ("bf16", "f32"), 0x80000000, 0),
    ("cvt.rn.relu.tf32.f32 {d}, {a};", ("b32", "f32"), 0x80000000, 0),
    ("cvt.rn.relu.f16x2.e4m3x2 {d}, {a};", ("f16x2", "b16"), 0x801A, 0x2D00),
    ("cvta.const.u64 {d}, {a};", ("b64", "b64"), 0x1234, 0x1234),
    ("cvta.global.u64 {d}, {a};", ("b64", "b64"), 0x1234, 0x1234),
]


@pytest.mark.parametrize(("instruction", "types", "operand", "result"), CONVERSIONS)
def test_conversions(instruction: str, types: tuple[str, str], operand: int, result: int) -> None:
    assert execute(instruction, types, operand) == result


@pytest.mark.parametrize("space", ["shared", "local", "global", "const"])
def test_a_generic_address_and_back_is_the_same(space: str) -> None:
    text = f"cvta.{space}.u64 %q0, {{a}}; cvta.to.{space}.u64 %q0, %q0; mov.u64 {{d}}, %q0; mov.u64 %q0, %p0;"
    there = f"{text} mul.wide.u32 %o0, %i2, 8; add.s64 %q0, %p0, %o0;"
    assert execute(there, ("b64", "b64"), 0x40) == 0x40


@pytest.mark.parametrize("space", ["shared", "local", "global"])
@pytest.mark.parametrize("asked", ["shared", "local", "global"])
def test_the_space_of_a_generic_address(space: str, asked: str) -> None:
    text = f"cvta.{space}.u64 {{a}}, {{a}}; isspacep.{asked} %pr0, {{a}}; selp.b32 {{d}}, 1, 0, %pr0;"
    assert execute(text, ("b32", "b64"), 0x40) == (space == asked)


@pytest.mark.parametrize(("narrow", "one"), [("f16", 0x3C00), ("bf16", 0x3F80)])
def test_narrow_operands_of_a_wide_sum(narrow: str, one: int) -> None:
    """`add.f32.f16 d, a, c`: a is f16, c and d are f32 (PTX ISA, mixed precision)."""
    types = ("f32", narrow, "f32")
    assert execute(f"add.rn.f32.{narrow} {{d}}, {{a}}, {{b}};", types, one, 0x40000000, target="sm_100") == 0x40400000
    text = f"fma.rn.f32.{narrow} {{d}}, {{a}}, {{a}}, {{b}};"
    assert execute(text, types, one, 0x40000000, target="sm_100") == 0x40400000


@pytest.mark.parametrize(("mask", "lanes"), [("0xffffffff", 32), ("0xf", 4)])
def test_redux_and_match_without_a_predicate(mask: str, lanes: int) -> None:
    body = f"""
    mov.u32 %r3, 0; setp.lt.u32 %p1, %r0, {lanes}; @!%p1 bra END;
    redux.sync.add.u32 %r3, %r0, {mask}; mov.u32 %r5, 7; match.all.sync.b32 %r6, %r5, {mask}; add.u32 %r3, %r3, %r6;
    END:
    """
    wanted = (sum(range(lanes)) + (1 << lanes) - 1) % (1 << 32)
    assert run_elements(kernel(body), np.uint32).tolist() == [wanted] * lanes + [0] * (32 - lanes)


def test_a_sink_takes_the_other_predicate() -> None:
    assert execute("setp.lt.u32 %pr0|_, {a}, {b}; selp.b32 {d}, 1, 0, %pr0;", ("b32", "b32", "b32"), 1, 2) == 1


def fractions_of(exponents: range) -> list[float]:
    """Doubles of either sign with few and with many digits, ties of every shorter format among them."""
    generator = new_generator()
    size = np.ldexp(1 + generator.integers(0, 1 << 14, 600) / (1 << 14), generator.choice(list(exponents), 600))
    more = np.ldexp(1 + generator.random(200), generator.choice(list(exponents), 200))
    near = np.nextafter(size[:200], np.inf)
    values = np.concatenate([size, more, near])
    return (values * generator.choice([-1.0, 1.0], len(values))).tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "function"), [("bf16", to_bf16), ("f16", to_f16), ("f32", to_f32)])
def test_rounding_of_doubles_by_its_definition(kind: str, function: object, mode: str) -> None:
    values = fractions_of(range(-12, 12))
    assert callable(function)
    got = function(np.array(values), mode)
    bits = got.view(f"u{got.dtype.itemsize}").tolist()
    assert bits == [round_to(Fraction(value), kind, mode) for value in values]


@pytest.mark.parametrize("mode", ["rn", "rna"])
def test_rounding_to_tf32(mode: str) -> None:
    """11 significant bits: units of 2^-10 of the power of two below; rna takes a tie away from zero."""
    values = fractions_of(range(-3, 3))
    got = to_tf32(np.array(values), mode).view(np.float32).astype(np.float64).tolist()
    for value, found in zip(values, got, strict=True):
        unit = Fraction(2) ** (int(np.frexp(value)[1]) - 1 - 10)
        units = abs(Fraction(value)) / unit
        low, rest = divmod(units, 1)
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and (mode == "rna" or low % 2 == 1))
        assert abs(Fraction(found)) == (low + up) * unit, value
        assert (found < 0) == (value < 0)


@pytest.mark.parametrize(("name", "largest"), [("e4m3", 0x7E), ("e5m2", 0x7B)])
def test_rounding_to_8_bits_takes_ties_to_even(name: str, largest: int) -> None:
    """Halfway between neighbors the even code; a quarter off, the nearer."""
    bias, mantissa = (7, 3) if name == "e4m3" else (15, 2)

    def value(code: int) -> float:
        exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
        return float(np.ldexp(fraction / (1 << mantissa) + (exponent > 0), max(exponent, 1) - bias))

    for code in range(largest):
        low, high = value(code), value(code + 1)
        points = np.array([low, (3 * low + high) / 4, (low + high) / 2, (low + 3 * high) / 4, high])
        assert to_f8(points, name).tolist() == [code, code, code + code % 2, code + 1, code + 1]
    assert to_f8(np.array([value(largest) * 2, -np.inf, -0.0]), name).tolist() == [largest, largest | 0x80, 0x80]


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("%lanemask_eq", lambda lane: 1 << lane),
        ("%lanemask_lt", lambda lane: sum(1 << i for i in range(lane))),
        ("%lanemask_le", lambda lane: sum(1 << i for i in range(lane + 1))),
        ("%lanemask_ge", lambda lane: sum(1 << i for i in range(lane, 32))),
        ("%lanemask_gt", lambda lane: sum(1 << i for i in range(lane + 1, 32))),
        ("%laneid", lambda lane: lane),
    ],
)
def test_special_registers_of_lanes(name: str, bits: object) -> None:
    assert callable(bits)
    assert run_elements(kernel(f"mov.u32 %r3, {name};"), np.uint32).tolist() == [bits(lane) for lane in range(32)]


@pytest.mark.parametrize(
    ("old", "limit", "left"), [(0, 5, 5), (1, 5, 0), (5, 5, 4), (6, 5, 5), (3, 0, 0)], ids=lambda x: str(x)
)
def test_an_atomic_decrement_wraps_to_its_limit(old: int, limit: int, left: int) -> None:
    """`dec`: ((old == 0) || (old > b)) ? b : old - 1 (PTX ISA, atom)."""
    body = f"st.global.u32 [%rd1], {old}; atom.global.dec.u32 %r4, [%rd1], {limit}; ld.global.u32 %r3, [%rd1];"
    assert (run_elements(kernel(body), np.uint32) == left).all()


@pytest.mark.parametrize(("old", "limit", "left"), [(0, 5, 1), (4, 5, 5), (5, 5, 0), (6, 5, 0)], ids=lambda x: str(x))
def test_an_atomic_increment_wraps_to_zero(old: int, limit: int, left: int) -> None:
    """`inc`: (old >= b) ? 0 : old + 1 (PTX ISA, atom)."""
    body = f"st.global.u32 [%rd1], {old}; atom.global.inc.u32 %r4, [%rd1], {limit}; ld.global.u32 %r3, [%rd1];"
    assert (run_elements(kernel(body), np.uint32) == left).all()


def test_an_atomic_of_some_lanes_gives_each_its_own_old_value() -> None:
    body = "mov.u32 %r3, 0; setp.ge.u32 %p1, %r0, 20; @%p1 atom.global.add.u32 %r3, [%rd1], 1;"
    out = np.arange(32, dtype=np.uint32)
    Program.parse(kernel(body)).launch("k", grid=1, block=32, args=[out])
    assert out.tolist() == [0] * 20 + list(range(20, 32))


@pytest.mark.parametrize("lanes", [2, 3])
def test_match_all_wants_one_value_in_every_lane(lanes: int) -> None:
    """Among `lanes` lanes one that differs leaves neither the mask nor the predicate."""
    member = (1 << lanes) - 1
    for value, wanted in (("7", member | 1 << 31), ("%r0", 0)):
        body = f"""
        mov.u32 %r3, 0;
        mov.u32 %r5, 7; setp.lt.u32 %p1, %r0, {lanes};
        @!%p1 bra END;
        mov.u32 %r5, {value};
        match.all.sync.b32 %r3|%p2, %r5, {member};
        @%p2 or.b32 %r3, %r3, 0x80000000;
        END:
        """
        found = run_elements(kernel(body), np.uint32)
        assert found.tolist() == [wanted] * lanes + [0] * (32 - lanes)


REFUSED = [
    ("xor.b32.b32 %r3, %r0, %r0;", "b32"),
    ("xor.foo.b32 %r3, %r0, %r0;", "foo"),
    ("lop3.b32 %r3, %r0, %r0, %r0, %r0;", "integer literal"),
    ("membar.gpu;", "membar.cta"),
    ("membar;", "membar.cta"),
    ("red.global.add.bf16 [%rd1], %h0;", "noftz"),
    ("max.xorsign.abs.f32 %f0, %f1, %f2;", "xorsign"),
    ("max.abs.f32 %f0, %f1, %f2;", "not supported"),
    ("dp4a.lo.u32.u32 %r3, %r0, %r0, %r0;", "lo"),
    ("mul.rn.f32.f16 %f0, %h0, %f1;", "f16"),
    ("cvta.to.shared.u64 %rd2, %rd1, %rd1;", "operands"),
    ("mov.u32 {%r3, %r4}, %r0, %r0;", "operands"),
    (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.e4m3.s32 {%r3, %r4, %r5, %r6}, {%r0, %r0, %r0, %r0}, {%r0, %r0},"
        "{%r0, %r0, %r0, %r0};",
        r"mma of types \.s32 \.s8 \.e4m3 \.s32",
    ),
    ("ld.global.v8.u64 {_, _, _, _, _, _, _, _}, [%rd1];", "8 x .u64 does not exist"),
]


@pytest.mark.parametrize(("body", "reason"), REFUSED)
def test_what_the_isa_does_not_have_is_refused(body: str, reason: str) -> None:
    with pytest.raises(PtxSyntaxError, match=reason):
        run_elements(kernel(body), np.uint32)
