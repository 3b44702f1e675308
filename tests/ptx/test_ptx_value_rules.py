"""Results that the PTX ISA states in a sentence: fields, classes, halves, rounding, votes."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
from kernels import kernel, run_elements
from test_ptx_known_values import execute

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, ViolationKind
from cutegen.ptx.arithmetic.rounding import canonical, to_bf16
from cutegen.ptx.text.syntax import scalar_type

MIN32 = 0x80000000


def bits64(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


INTEGERS = [
    ("bfe.s32 {d}, {a}, {b}, {c};", (MIN32, 40, 3), 0xFFFFFFFF),  # "if pos >= 32, the sign fills the field"
    ("bfe.s32 {d}, {a}, {b}, {c};", (MIN32, 30, 9), 0xFFFFFFFE),
    ("bfe.s32 {d}, {a}, {b}, {c};", (0x60, 5, 2), 0xFFFFFFFF),
    ("bfe.s32 {d}, {a}, {b}, {c};", (0x60, 5, 3), 3),
    ("bfe.s32 {d}, {a}, {b}, {c};", (MIN32, 5, 0), 0),
    ("bfe.u32 {d}, {a}, {b}, {c};", (MIN32, 40, 3), 0),
    ("bfind.u32 {d}, {a};", (0x00010000,), 16),
    ("bfind.u32 {d}, {a};", (0,), 0xFFFFFFFF),
    ("bfind.s32 {d}, {a};", (0xFFFFFFFF,), 0xFFFFFFFF),
    ("bfind.s32 {d}, {a};", (0xFFFFFF7F,), 7),
    ("bfind.shiftamt.u32 {d}, {a};", (0x00010000,), 15),
    ("bfind.shiftamt.u32 {d}, {a};", (MIN32,), 0),
    ("bfind.shiftamt.u32 {d}, {a};", (0,), 0xFFFFFFFF),
    ("slct.b32.s32 {d}, {a}, {b}, {c};", (7, 8, 0xFFFFFFFF), 8),
    ("slct.b32.s32 {d}, {a}, {b}, {c};", (7, 8, 1), 7),
    ("slct.b32.f32 {d}, {a}, {b}, {c};", (7, 8, 0xBF000000), 8),
    ("slct.b32.f32 {d}, {a}, {b}, {c};", (7, 8, 0x80000000), 7),  # -0 >= 0
    ("cnot.b32 {d}, {a};", (0,), 1),
    ("cnot.b32 {d}, {a};", (5,), 0),
    ("mul24.hi.s32 {d}, {a}, {b};", (0x00800000, 0x00020000), 0xFF000000),
    ("dp2a.hi.s32.s32 {d}, {a}, {b}, {c};", (0xFFFF0002, 0x40302010, 5), (2 * 0x30 - 0x40 + 5) & 0xFFFFFFFF),
]


@pytest.mark.parametrize(("instruction", "operands", "result"), INTEGERS)
def test_integers(instruction: str, operands: tuple[int, ...], result: int) -> None:
    assert execute(instruction, ("b32",) * (1 + len(operands)), *operands) == result


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("value", [3.0, -7.0, 0.1, 1e-300, 4.0, -0.5])
def test_a_double_reciprocal_is_rounded_as_it_says(value: float, mode: str) -> None:
    """`rcp.rnd.f64` is correctly rounded: the neighbor of 1/x on the side that the mode names."""
    found = struct.unpack(
        "<d", execute(f"rcp.{mode}.f64 {{d}}, {{a}};", ("f64", "f64"), bits64(value)).to_bytes(8, "little")
    )[0]
    exact = 1 / Fraction(value)
    below = max(f for f in (np.nextafter(1 / value, -np.inf), 1 / value) if Fraction(float(f)) <= exact)
    above = below if Fraction(float(below)) == exact else np.nextafter(below, np.inf)
    nearest = below if exact - Fraction(float(below)) <= Fraction(float(above)) - exact else above
    towards_zero = below if value > 0 else above
    assert found == {"rn": nearest, "rz": towards_zero, "rm": below, "rp": above}[mode]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("bits", [1 << 63 | 1, (1 << 63) - 1, (1 << 53) + 1, (1 << 54) + 3, (1 << 62) + (1 << 38) + 1])
def test_a_64_bit_integer_is_rounded_once(bits: int, mode: str) -> None:
    """Through a double it would be rounded twice."""
    for kind, digits in (("f32", 24), ("f64", 53)):
        found = execute(f"cvt.{mode}.{kind}.u64 {{d}}, {{a}};", (kind, "b64"), bits)
        value = np.array([found], f"u{4 if kind == 'f32' else 8}").view(f"f{4 if kind == 'f32' else 8}")[0]
        unit = 1 << max(0, bits.bit_length() - digits)
        below = bits // unit * unit
        above = below + unit if bits % unit else below
        half_up = 2 * (bits - below) > unit or (2 * (bits - below) == unit and below // unit % 2 == 1)
        assert int(value) == {"rn": above if half_up else below, "rz": below, "rm": below, "rp": above}[mode]


def test_relu_of_a_pair_clamps_what_is_below_zero() -> None:
    """`cvt.rn.relu.f16x2.f32 d, a, b`: a in the upper half."""
    one, minus_two = 0x3F800000, 0xC0000000
    assert execute("cvt.rn.relu.f16x2.f32 {d}, {a}, {b};", ("b32", "f32", "f32"), one, minus_two) == 0x3C000000
    assert execute("cvt.rn.relu.f16x2.f32 {d}, {a}, {b};", ("b32", "f32", "f32"), minus_two, one) == 0x00003C00


def test_a_nan_of_an_extreme_is_the_canonical_one() -> None:
    """PTX ISA, min and max: the result of two NaN is the canonical NaN; doubles keep their payload elsewhere."""
    for kind, nan, wanted in (
        ("f32", 0x7FC00123, 0x7FFFFFFF),
        ("f16", 0x7E01, 0x7FFF),
    ):
        found = execute(f"min.{kind} {{d}}, {{a}}, {{b}};", (kind,) * 3, nan, nan)
        assert found == wanted
    signalling = np.array([0x7FF0000000000123, 0xFFF8000000000123], np.uint64).view(np.float64)
    quiet = canonical(signalling, scalar_type("f64")).view(np.uint64).tolist()
    assert quiet == [0x7FF8000000000123, 0xFFF8000000000123]


@pytest.mark.parametrize(
    ("value", "classes"),
    [
        (0x00000001, "finite number subnormal"),
        (0x80000001, "finite number subnormal"),
        (0x00800000, "finite number normal"),
        (0xBF800000, "finite number normal"),
        (0x00000000, "finite number normal"),  # "positive and negative zero are considered normal numbers"
        (0x80000000, "finite number normal"),
        (0x7F800000, "infinite number"),
        (0xFFC00000, "notanumber"),
    ],
)
def test_classes_of_floats(value: int, classes: str) -> None:
    for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        instruction = f"testp.{name}.f32 %pr0, {{a}}; selp.b32 {{d}}, 1, 0, %pr0;"
        assert execute(instruction, ("b32", "f32"), value) == (name in classes.split())


def test_four_bytes_make_a_word_and_come_apart_again() -> None:
    body = """
    mov.b16 %h0, 0x11; mov.b16 %h1, 0x22; mov.b16 %h2, 0x33; mov.b16 %h3, 0x44;
    mov.b32 %r4, {%h0, %h1, %h2, %h3};
    mov.b32 {%h4, %h5, %h6, %h7}, %r4;
    mov.b32 %r3, {%h7, %h6, %h5, %h4};
    """
    assert (run_elements(kernel(body), np.uint32) == 0x11223344).all()


@pytest.mark.parametrize(("limit", "wanted"), [(0, (0, 0)), (16, (0, 1)), (32, (1, 1))])
def test_votes_of_a_part_of_the_warp(limit: int, wanted: tuple[int, int]) -> None:
    body = f"""
    setp.lt.u32 %p0, %r0, {limit};
    vote.sync.all.pred %p1, %p0, 0xffffffff; vote.sync.any.pred %p2, %p0, 0xffffffff;
    selp.u32 %r4, 1, 0, %p1; selp.u32 %r5, 2, 0, %p2; or.b32 %r3, %r4, %r5;
    """
    found = run_elements(kernel(body), np.uint32)
    assert (found == wanted[0] + 2 * wanted[1]).all()


@pytest.mark.parametrize(("limit", "uniform"), [(0, 1), (7, 0), (20, 1)])
def test_lanes_that_left_have_no_vote_though_the_mask_names_them(limit: int, uniform: int) -> None:
    body = "mov.u32 %r3, 2; setp.ge.u32 %p0, %r0, 20; @%p0 st.global.b32 [%rd1], %r3; @%p0 ret;"
    body += f"setp.lt.u32 %p1, %r0, {limit}; vote.sync.uni.pred %p2, %p1, 0xffffffff; selp.u32 %r3, 1, 0, %p2;"
    assert run_elements(kernel(body), np.uint32).tolist() == [uniform] * 20 + [2] * 12


def test_lanes_that_left_are_not_in_the_active_mask() -> None:
    body = "mov.u32 %r3, 0; setp.ge.u32 %p0, %r0, 20; @%p0 bra END; activemask.b32 %r3; END:"
    found = run_elements(kernel(body), np.uint32)
    assert found.tolist() == [(1 << 20) - 1] * 20 + [0] * 12


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("elect.sync %r3, 0xffffffff;", "d|p"),
        ("add.foo.u32 %r3, %r0, %r0;", "foo"),
        ("mul24.wide.u32 %rd2, %r0, %r0;", "the nearest that is: mul24.lo.u32"),
        ("mul24.lo.u16 %h0, %h1, %h2;", "the nearest that is: mul24.lo.u32"),
        ("add.u16 %h0, %r0, %h1;", "%r0 has 32 bits, type .u16 has 16"),
        ("add.u32 %r3, %h0, %r0;", "%h0 has 16 bits, type .u32 has 32"),
        ("add.u32 %r3, %r0, %rd0;", "%rd0 has 64 bits, type .u32 has 32"),
        ("mov.b32 %r3, {%r0, %r1, %r2, %r4};", "%r0 has 32 bits, type .b8 has 8"),
        ("mov.b64 %rd2, {%h0, %h1, %h2};", "cannot be 3 parts"),
        ("bra END, END; END:", "expected 1 operands, found 2"),
        ("mbarrier;", "expected mbarrier"),
        ("brx.idx %r0, TARGETS;", "no .branchtargets TARGETS is visible here"),
        ("TARGETS: .branchtargets A, B; brx.idx %r0, TARGETS; A:", "no label B"),
        ("setp.eq.u32 %p0, %r0, %r0, %p1;", "a third source and one of .and .or .xor go together"),
        ("setp.eq.and.u32 %p0, %r0, %r0;", "a third source and one of .and .or .xor go together"),
        ("ld.global.u32 %r3, [%rd1+x];", "expected a number, found 'x'"),
    ],
)
def test_what_no_form_has_is_refused(body: str, reason: str) -> None:
    with pytest.raises(PtxSyntaxError, match=reason):
        run_elements(kernel(body), np.uint32)


@pytest.mark.parametrize(("kind", "register"), [("u8", "%r0"), ("b16", "%r0"), ("u8", "%rd2"), ("b32", "%rd2")])
def test_a_store_takes_the_low_bits_of_a_wider_register(kind: str, register: str) -> None:
    """PTX ISA, "Operand Size Exceeding Instruction-Type Size": the source of st may be wider."""
    body = f"mov.u32 %r3, 0; st.global.b32 [%rd1], %r3; cvt.u64.u32 %rd2, %r0; st.global.{kind} [%rd1], {register};"
    body += "ld.global.b32 %r3, [%rd1];"
    assert run_elements(kernel(body), np.uint32).tolist() == list(range(32))


def test_a_store_without_a_space_goes_where_its_variable_is() -> None:
    body = ".shared .align 4 .b32 mine[32]; mov.u32 %r4, mine; shl.b32 %r5, %r0, 2; add.u32 %r4, %r4, %r5;"
    body += "setp.eq.u32 %p0, %r0, 3; @%p0 st.u32 [mine+12], %r0; mov.u32 %r3, 0; @%p0 ld.shared.u32 %r3, [%r4];"
    assert run_elements(kernel(body), np.uint32).tolist() == [0] * 3 + [3] + [0] * 28


@pytest.mark.parametrize(
    ("a", "b", "result"), [(0.0, -0.0, 0.0), (-0.0, 0.0, -0.0), (3.0, 3.0, -0.0), (-3.0, -3.0, -0.0)]
)
def test_a_difference_that_is_zero_has_the_sign_of_ieee(a: float, b: float, result: float) -> None:
    """IEEE 754, 6.3: zeros of one sign keep it; rounding down makes x - x negative."""
    assert execute("sub.rm.f64 {d}, {a}, {b};", ("f64",) * 3, bits64(a), bits64(b)) == bits64(result)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_lies_just_beside_a_tie_is_no_tie(sign: float) -> None:
    """1 + 2^-8 lies between two bfloat16; beside it the 40th bit decides, which float32 does not hold."""
    values = sign * np.array([1 + 2**-8 - 2**-40, 1 + 2**-8, 1 + 2**-8 + 2**-40, 1 + 2**-40])
    least = 0x3F80 | (0x8000 if sign < 0 else 0)
    assert (to_bf16(values, "rn") - least).tolist() == [0, 0, 1, 0]
    away, towards = ("rp", "rm") if sign > 0 else ("rm", "rp")
    assert (to_bf16(values, away) - least).tolist() == [1, 1, 1, 1]
    assert (to_bf16(values, towards) - least).tolist() == [0, 0, 0, 0]
    assert (to_bf16(values, "rz") - least).tolist() == [0, 0, 0, 0]


def test_mma_needs_every_lane_of_its_warp() -> None:
    body = "mov.u32 %r4, 0; mov.u32 %r3, 0;"
    body += "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r4, %r4}, {%r4},"
    body += "{%f4, %f4, %f4, %f4};"
    text = kernel("mov.f32 %f4, 0f00000000;" + body)
    assert run_elements(text, np.uint32).tolist() == [0] * 32
    with pytest.raises(ExecutionFault, match="it needs all 32 lanes of the warp") as caught:
        run_elements(text, np.uint32, block=16)
    assert caught.value.violation.kind is ViolationKind.DIVERGENCE
