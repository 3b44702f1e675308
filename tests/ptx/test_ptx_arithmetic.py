"""Scalar instructions against references that share no code with them: Python integers, fractions, torch's casts."""

from __future__ import annotations

import itertools
import math
import zlib
from fractions import Fraction

import numpy as np
import pytest
from kernels import kernel, run_elements
from micro_kernels import Elementwise, size_bytes
from micro_table import ATOMICS, ELEMENTWISE

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import Program

ROWS = {row.name: row for row in ELEMENTWISE}
COUNT = 1024
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


def execute(row: Elementwise, count: int = COUNT) -> tuple[np.ndarray, list[np.ndarray]]:
    """Results and operands of one instruction on fresh random bits."""
    operands = row.operands(np.random.default_rng(zlib.crc32(row.name.encode())), count)
    out = np.zeros(count, f"u{size_bytes(row.types[0])}")
    Program.parse(row.ptx()).launch(row.name, grid=count // 128, block=128, args=[out, *operands])
    return out, operands


def value_of(bits: int, kind: str) -> Fraction | float:
    """What the bits of a float mean: a fraction, an infinity or NaN."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    mantissa = bits & ((1 << mantissa_bits) - 1)
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    sign = -1 if bits >> (exponent_bits + mantissa_bits) & 1 else 1
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if mantissa else sign * math.inf
    significand = mantissa + ((1 << mantissa_bits) if exponent else 0)
    bias = (1 << (exponent_bits - 1)) - 1
    return sign * significand * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)


def round_to(value: Fraction, kind: str, mode: str) -> int:
    """The bits (without a zero's sign) of the fraction rounded to a format, from the definition of rounding."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    bias = (1 << (exponent_bits - 1)) - 1
    size, negative = abs(value), value < 0
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, 1 - bias)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = size / Fraction(2) ** (exponent - mantissa_bits)
    low = math.floor(units)
    rest = units - low
    away = {"rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1), "rz": False}
    away |= {"rm": negative and rest > 0, "rp": not negative and rest > 0}
    low += away[mode]
    bits = low + (exponent + bias - 1) * (1 << mantissa_bits) if low else 0
    limit = ((1 << exponent_bits) - 1) << mantissa_bits
    if bits >= limit:
        overflows = mode == "rn" or (mode == "rm" and negative) or (mode == "rp" and not negative)
        bits = limit if overflows else limit - 1
    return bits | (negative << (exponent_bits + mantissa_bits))


def magnitude(bits: int, kind: str) -> int:
    """The bits, with both zeros alike."""
    sign = 1 << sum(FORMATS[kind])
    return 0 if bits == sign else bits


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b if b else None,
    "rcp": lambda a: 1 / a if a else None,
}


ROUNDED = [row for row in itertools.product(EXACT, ("rn", "rz", "rm", "rp"), FORMATS) if "_".join(row) in ROWS]


@pytest.mark.parametrize(("name", "mode", "kind"), ROUNDED)
def test_rounded_arithmetic_is_exact_to_the_bit(name: str, mode: str, kind: str) -> None:
    result, operands = execute(ROWS[f"{name}_{mode}_{kind}"])
    checked = 0
    for got, *bits in zip(result.tolist(), *(operand.tolist() for operand in operands), strict=True):
        values = [value_of(b, kind) for b in bits]
        exact = EXACT[name](*values) if all(isinstance(v, Fraction) for v in values) else None
        if exact is not None:
            assert magnitude(got, kind) == magnitude(round_to(exact, kind, mode), kind), (name, mode, kind, bits)
            checked += 1
    assert checked > COUNT // 2


def _halves(bits: np.ndarray, kind: str) -> list[int]:
    return bits.view(np.uint16 if kind.endswith("x2") else bits.dtype).tolist()


@pytest.mark.parametrize("row", ATOMICS, ids=lambda row: row.name)
def test_atomic_sums_are_exact_to_the_bit(row: Elementwise) -> None:
    """PTX ISA, atom and red: of f32 in global memory subnormal operands and sums are zeros, elsewhere they are kept."""
    result, (old, added) = execute(row, count := 512)
    result = result ^ old if row.name.startswith("atom") else result
    kind = row.types[1].removesuffix("x2")
    least = Fraction(2) ** -126 if kind == "f32" and "global" in row.name else 0
    checked = 0
    for got, *bits in zip(*(_halves(each, row.types[1]) for each in (result, old, added)), strict=True):
        values = [value_of(b, kind) for b in bits]
        if all(isinstance(value, Fraction) for value in values):
            total = sum(value if abs(value) >= least else Fraction(0) for value in values)
            wanted = round_to(total if abs(total) >= least else Fraction(0), kind, "rn")
            assert magnitude(got, kind) == magnitude(wanted, kind), (row.name, bits)
            checked += 1
    assert checked > count // 2


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_square_roots_are_the_nearest_value_of_their_rounding(kind: str, mode: str) -> None:
    result, (operand,) = execute(ROWS[f"sqrt_{mode}_{kind}"])
    for got, bits in zip(result.tolist(), operand.tolist(), strict=True):
        square = value_of(bits, kind)
        if isinstance(square, Fraction) and square > 0:
            root, above, below = (value_of(b, kind) for b in (got, got + 1, got - 1))
            if mode in ("rz", "rm"):
                assert root**2 <= square < above**2
            elif mode == "rp":
                assert below**2 < square <= root**2
            else:
                assert ((root + below) / 2) ** 2 <= square <= ((root + above) / 2) ** 2


def test_special_values_follow_ieee_and_nans_are_canonical() -> None:
    for name in ("add_rn_f32", "mul_rn_f32", "fma_rn_f32"):
        result, operands = execute(ROWS[name])
        with np.errstate(all="ignore"):
            values = [operand.view(np.float32).astype(np.float64) for operand in operands]
            a, b = values[:2]
            wide = a + b if name[:3] == "add" else a * b if name[:3] == "mul" else a * b + values[2]
        assert (result[np.isnan(wide)] == 0x7FFFFFFF).all()
        infinite = np.isinf(wide)
        assert (result[infinite].view(np.float32) == wide[infinite]).all()
        assert np.isnan(wide).any()
        assert infinite.any()


@pytest.mark.parametrize(
    ("name", "operands", "result"),
    [
        ("abs_f32", (0xFFC794B3,), 0x7FFFFFFF),
        ("neg_f32", (0x7F9D4EC5,), 0x7FFFFFFF),
        ("abs_f16x2", (0xFC1A4BB0,), 0x7FFF4BB0),
        ("abs_bf16x2", (0xCC907FA1,), 0x4C907FFF),
        ("abs_f64", (0xFFF0927C3F0B9428,), 0xFFF8927C3F0B9428),
        ("neg_f64", (0x7FF6D7D69A9A31B6,), 0x7FFED7D69A9A31B6),
        ("cvt_f32_bf16", (0xFFAD,), 0xFFAD0000),
        ("cvt_rn_f32_f64", (0xFFF007E0A45BE67E,), 0xFFC03F05),
        ("cvt_rz_f32_f64", (0x7FF501D69B6DAC3D,), 0x7FE80EB4),
        ("cvt_rna_tf32_f32", (0xFF96DB59,), 0xFF96C000),
        ("add_rn_f64", (0x7FF70149FF02463C, 0x7FF3C01C3DF718D5), 0x7FFBC01C3DF718D5),
        ("mul_rn_f64", (0xFFF38CF872D949BF, 0xFFFF2F77AFA2C5EA), 0xFFFF2F77AFA2C5EA),
        ("max_f64", (0x7FF87820F50739CC, 0xFFF326301A4218DF), 0xFFFB26301A4218DF),
        ("fma_rn_f64", (0x7FF608456FD075E1, 0xBFAA13992F26476A, 0xFFFA2C71490FE34B), 0xFFFA2C71490FE34B),
        ("fma_rn_f64", (0x8980AEDF17ADA9C8, 0x7FF0A3E3155F4861, 0xFFF26C10A99FF463), 0x7FF8A3E3155F4861),
        ("fma_rn_f64", (0xDFC401D31CAABEB9, 0xE879E907EAD0CCCD, 0xFFF0000000000000), 0xFFF0000000000000),
    ],
)
def test_nans_are_those_of_an_h200(name: str, operands: tuple[int, ...], result: int) -> None:
    row = ROWS[name]
    arrays = [np.full(128, bits, f"u{size_bytes(kind)}") for bits, kind in zip(operands, row.types[1:], strict=True)]
    out = np.zeros(128, f"u{size_bytes(row.types[0])}")
    Program.parse(row.ptx()).launch(row.name, grid=1, block=128, args=[out, *arrays])
    assert (out == result).all()


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_pairs_hold_the_first_source_in_the_upper_half(to: str) -> None:
    torch = pytest.importorskip("torch")
    result, (high, low) = execute(ROWS[f"cvt_rn_{to}x2_f32"])
    dtype = torch.float16 if to == "f16" else torch.bfloat16
    for shift, source in ((16, high), (0, low)):
        expected = torch.from_numpy(source.view(np.float32)).to(dtype).view(torch.int16).numpy().view(np.uint16)
        got = (result >> np.uint32(shift)).astype(np.uint16)
        nan = np.isnan(source.view(np.float32))
        assert (got[~nan] == expected[~nan]).all()
        assert (got[nan] == 0x7FFF).all()


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_8_bit_floats_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = torch.float8_e4m3fn if name == "e4m3" else torch.float8_e5m2
    limit = torch.finfo(dtype).max
    result, (high, low) = execute(ROWS[f"cvt_rn_satfinite_{name}x2_f32"])
    for shift, source in ((8, high), (0, low)):
        values = torch.from_numpy(source.view(np.float32))
        expected = values.clamp(-limit, limit).to(dtype).view(torch.uint8).numpy()
        number = ~np.isnan(source.view(np.float32))
        assert ((result >> np.uint16(shift)).astype(np.uint8)[number] == expected[number]).all()
    back, (pairs,) = execute(ROWS[f"cvt_rn_f16x2_{name}x2"])
    expected = torch.from_numpy(pairs.view(np.uint8).copy()).view(dtype).to(torch.float16).numpy()
    got = back.view(np.float16)
    assert ((got == expected) | (np.isnan(got) & np.isnan(expected))).all()


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("to", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("source", ["f32", "f16", "f64"])
def test_floats_become_clamped_integers(source: str, to: str, mode: str) -> None:
    result, (operand,) = execute(ROWS[f"cvt_{mode}_{to}_{source}"])
    bits, signed = int(to[1:]), to[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    rounding = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    for got, raw in zip(result.tolist(), operand.tolist(), strict=True):
        value = value_of(raw, source)
        if isinstance(value, Fraction):
            assert got == min(max(rounding(value), low), high) & ((1 << bits) - 1)
        elif math.isnan(value):
            assert got == (1 << (bits - 1) if source == "f64" or bits == 64 else 0)
        else:
            assert got == (high if value > 0 else low) & ((1 << bits) - 1)


CASTS = [
    row
    for row in itertools.product(("rn", "rz", "rm", "rp"), ("f32", "f64", "f16"), ("s32", "u32", "s64", "u64"))
    if "cvt_" + "_".join(row) in ROWS
]


@pytest.mark.parametrize(("mode", "to", "source"), CASTS)
def test_integers_become_floats(mode: str, to: str, source: str) -> None:
    result, (operand,) = execute(ROWS[f"cvt_{mode}_{to}_{source}"])
    bits = int(source[1:])
    for got, raw in zip(result.tolist(), operand.tolist(), strict=True):
        value = _signed(raw, bits) if source[0] == "s" else raw
        assert got == round_to(Fraction(value), to, mode)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul_lo": lambda a, b: a * b,
    "div": _truncated_quotient,
    "rem": lambda a, b: a - _truncated_quotient(a, b) * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", [*INTEGER, "mul_hi"])
def test_integer_arithmetic(name: str, kind: str) -> None:
    result, (a, b) = execute(ROWS[f"{name}_{kind}"])
    bits = int(kind[1:])
    for got, x, y in zip(result.tolist(), a.tolist(), b.tolist(), strict=True):
        left, right = (_signed(v, bits) if kind[0] == "s" else v for v in (x, y))
        if name in ("div", "rem") and right == 0:
            continue
        exact = left * right >> bits if name == "mul_hi" else INTEGER[name](left, right)
        assert got == exact & ((1 << bits) - 1)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields(kind: str) -> None:
    bits = int(kind[1:])
    result, (a, position, length) = execute(ROWS[f"bfe_{kind}"])
    for got, x, p, n in zip(result.tolist(), a.tolist(), position.tolist(), length.tolist(), strict=True):
        extended = _signed(x, bits) if kind[0] == "s" else x
        field = (extended >> p) & ((1 << n) - 1)
        if kind[0] == "s" and n and field >> (n - 1) & 1:
            field -= 1 << n
        assert got == field & ((1 << bits) - 1)


@pytest.mark.parametrize("table", [0x80, 0x96, 0xE8, 0x1B, 0xFE])
def test_lop3_is_its_truth_table(table: int) -> None:
    result, operands = execute(ROWS[f"lop3_{table}"])
    rows = [np.unpackbits(values.view(np.uint8), bitorder="little").astype(int) for values in (*operands, result)]
    assert (rows[3] == (table >> (rows[0] * 4 + rows[1] * 2 + rows[2])) & 1).all()


@pytest.mark.parametrize("mode", ["l_wrap", "l_clamp", "r_wrap", "r_clamp"])
def test_funnel_shifts(mode: str) -> None:
    result, (a, b, c) = execute(ROWS[f"shf_{mode}_b32"])
    for got, low, high, n in zip(result.tolist(), a.tolist(), b.tolist(), c.tolist(), strict=True):
        amount = n % 32 if mode.endswith("wrap") else min(n, 32)
        both = high << 32 | low
        assert got == ((both << amount) >> 32 if mode[0] == "l" else both >> amount) & 0xFFFFFFFF


def test_prmt_picks_bytes_and_replicates_signs() -> None:
    result, (a, b, selector) = execute(ROWS["prmt_b32"])
    for got, x, y, s in zip(result.tolist(), a.tolist(), b.tolist(), selector.tolist(), strict=True):
        octets = (y << 32 | x).to_bytes(8, "little")
        picks = [s >> shift & 15 for shift in (0, 4, 8, 12)]
        chosen = [(0xFF if octets[p & 7] >> 7 else 0) if p & 8 else octets[p & 7] for p in picks]
        assert got == int.from_bytes(bytes(chosen), "little")


def test_counting_bits() -> None:
    for kind in ("b32", "b64"):
        bits = int(kind[1:])
        for name, reference in (("popc", int.bit_count), ("clz", lambda x, n=bits: n - x.bit_length())):
            result, (a,) = execute(ROWS[f"{name}_{kind}"])
            assert result.tolist() == [reference(x) for x in a.tolist()]
        result, (a,) = execute(ROWS[f"brev_{kind}"])
        assert result.tolist() == [int(f"{x:0{bits}b}"[::-1], 2) for x in a.tolist()]


def test_carries_ripple() -> None:
    result, (a, b, c) = execute(ROWS["carry_chain"])
    mask = (1 << 32) - 1
    for got, x, y, z in zip(result.tolist(), a.tolist(), b.tolist(), c.tolist(), strict=True):
        wide = ((x << 32 | x) + (z << 32 | y)) & (1 << 64) - 1
        wide = (wide - (y << 32 | z)) & (1 << 64) - 1
        assert got == (wide >> 32 ^ wide) & mask


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
@pytest.mark.parametrize("control", ["0", "31", "0x1f00", "0x181f", "0x1c07"])
def test_shuffles_follow_the_pseudo_code_of_the_isa(mode: str, control: str) -> None:
    result, (a, b) = execute(ROWS[f"shfl_{mode}_{control}"], 128)
    c = int(control, 0)
    segment, clamp = c >> 8 & 31, c & 31
    for i, got in enumerate(result.tolist()):
        lane, base, offset = i % 32, i - i % 32, int(b[i]) & 31
        highest = (lane & segment) | (clamp & ~segment & 31)
        j = {
            "up": lane - offset,
            "down": lane + offset,
            "bfly": lane ^ offset,
            "idx": (lane & segment) | (offset & ~segment & 31),
        }[mode]
        valid = j >= highest if mode == "up" else j <= highest
        value = int(a[base + (j if valid else lane)])
        assert got == (value if valid else value ^ 0xFFFFFFFF)


@pytest.mark.parametrize("modifiers", ["rn", "rz", "rn.ftz"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_a_pair_of_f32_is_two_of_them(op: str, modifiers: str) -> None:
    """On sm_100 and later the compiler adds two sums at once; each half is what the scalar instruction makes of it."""
    operands = (
        ("%rd2, %rd3", "%r4, %r6", "%r5, %r7")
        if op != "fma"
        else ("%rd2, %rd3, %rd2", "%r4, %r6, %r4", "%r5, %r7, %r5")
    )
    body = f"""
        mul.lo.u32 %r4, %r0, 0x9E3779B1; mul.lo.u32 %r5, %r0, 0x85EBCA6B;
        mul.lo.u32 %r6, %r0, 0xC2B2AE35; mul.lo.u32 %r7, %r0, 0x27D4EB2F;
        mov.b64 %rd2, {{%r4, %r5}}; mov.b64 %rd3, {{%r6, %r7}};
        {op}.{modifiers}.f32x2 %rd4, {operands[0]};
        {op}.{modifiers}.f32 %r8, {operands[1]}; {op}.{modifiers}.f32 %r9, {operands[2]};
        mov.b64 %rd5, {{%r8, %r9}}; xor.b64 %rd6, %rd4, %rd5; mov.b64 {{%r10, %r11}}, %rd6; or.b32 %r3, %r10, %r11;"""
    assert (run_elements(kernel(body), np.uint32, block=256) == 0).all()


@pytest.mark.parametrize("narrow", ["f16", "bf16"])
@pytest.mark.parametrize("modifiers", ["rn", "rz", "rn.sat"])
@pytest.mark.parametrize(("op", "operands"), [("add", 1), ("sub", 1), ("fma", 2)])
def test_narrow_operands_of_f32_instructions_are_widened_first(
    op: str, operands: int, modifiers: str, narrow: str
) -> None:
    """On sm_100 and later the compiler leaves out conversions from f16 and bf16, which are exact."""
    narrow_ones, wide_ones = ", ".join(("%h1", "%h2")[:operands]), ", ".join(("%r5", "%r6")[:operands])
    body = f"""
        mul.lo.u32 %r4, %r0, 0x9E3779B1; mul.lo.u32 %r7, %r0, 0x85EBCA6B; mov.b32 {{%h1, %h2}}, %r4;
        cvt.f32.{narrow} %r5, %h1; cvt.f32.{narrow} %r6, %h2;
        {op}.{modifiers}.f32.{narrow} %r8, {narrow_ones}, %r7;
        {op}.{modifiers}.f32 %r9, {wide_ones}, %r7;
        xor.b32 %r3, %r8, %r9;"""
    assert (run_elements(kernel(body), np.uint32, block=256) == 0).all()


def test_only_arithmetic_is_done_on_pairs_of_f32() -> None:
    with pytest.raises(PtxSyntaxError, match=r"f32x2"):
        Program.parse(kernel("min.f32x2 %rd2, %rd3, %rd4;")).prepare("k")


@pytest.mark.parametrize("name", ["min", "max"])
def test_a_negative_extreme_of_s32_may_become_zero(name: str) -> None:
    body = f"sub.s32 %r4, %r0, 16; mov.b32 %r5, 7; {name}.relu.s32 %r3, %r4, %r5;"
    numbers = np.arange(32) - 16
    expected = np.maximum((np.minimum if name == "min" else np.maximum)(numbers, 7), 0)
    assert (run_elements(kernel(body), np.int32) == expected).all()
    with pytest.raises(PtxSyntaxError, match=r"relu"):
        Program.parse(kernel(body.replace("relu.s32", "relu.u32"))).prepare("k")
