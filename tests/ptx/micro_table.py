"""The table of one-instruction kernels: conversions, arithmetic, integer and bit operations, shuffles, atomics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from micro_kernels import Elementwise, atomic_sum

ROUNDINGS = ("rn", "rz", "rm", "rp")


def _row(
    instruction: str,
    types: tuple[str, ...],
    values: str | tuple[str, ...],
    *,
    tolerance_ulp: int | None = 0,
    name: str = "",
) -> Elementwise:
    """A row; its name is the opcode unless given, one word in `values` holds for all operands."""
    opcode = instruction.split()[0]
    wants_sm_90 = any(kind in instruction for kind in ("e4m3", "e5m2", "bf16"))
    is_float = types[0].startswith(("f", "bf")) and values == "floats"
    return Elementwise(
        name=(name or opcode).replace(".", "_"),
        instruction=instruction,
        types=types,
        values=(values,) * (len(types) - 1) if isinstance(values, str) else values,
        tolerance_ulp=tolerance_ulp,
        float_result=types[0] if is_float else None,
        target="sm_90" if wants_sm_90 else "sm_80",
    )


def _same(opcode: str, kind: str, sources: int, values: str, tolerance_ulp: int | None = 0) -> Elementwise:
    """`opcode d, a, ...` with all operands of one type."""
    operands = ", ".join(f"{{{letter}}}" for letter in "dabc"[: sources + 1])
    return _row(f"{opcode} {operands};", (kind,) * (sources + 1), values, tolerance_ulp=tolerance_ulp)


def _conversions() -> Iterator[Elementwise]:
    for mode, to in product(("rn", "rz"), ("f16", "bf16")):
        yield _row(f"cvt.{mode}.{to}.f32 {{d}}, {{a}};", (to, "f32"), "floats")
        yield _row(f"cvt.{mode}.{to}x2.f32 {{d}}, {{a}}, {{b}};", (f"{to}x2", "f32", "f32"), "floats")
    for mode in ROUNDINGS:
        yield _row(f"cvt.{mode}.f32.f64 {{d}}, {{a}};", ("f32", "f64"), "floats")
    yield _row("cvt.rn.relu.f16.f32 {d}, {a};", ("f16", "f32"), "floats")
    yield _row("cvt.f32.f16 {d}, {a};", ("f32", "f16"), "floats")
    yield _row("cvt.f32.bf16 {d}, {a};", ("f32", "bf16"), "floats")
    yield _row("cvt.f64.f32 {d}, {a};", ("f64", "f32"), "floats")
    yield _row("cvt.rna.tf32.f32 {d}, {a};", ("f32", "f32"), "floats")
    yield _row("cvt.rni.f32.f32 {d}, {a};", ("f32", "f32"), "floats")
    yield _row("cvt.rzi.f16.f16 {d}, {a};", ("f16", "f16"), "floats")
    yield _row("cvt.sat.f32.f32 {d}, {a};", ("f32", "f32"), "floats")
    for small in ("e4m3x2", "e5m2x2"):
        yield _row(f"cvt.rn.satfinite.{small}.f32 {{d}}, {{a}}, {{b}};", (small, "f32", "f32"), "floats")
        yield _row(f"cvt.rn.f16x2.{small} {{d}}, {{a}};", ("f16x2", small), "floats")
    for mode, to, kind in product(("rni", "rzi", "rmi", "rpi"), ("s32", "u32", "s64", "u64"), ("f32", "f16", "f64")):
        yield _row(f"cvt.{mode}.{to}.{kind} {{d}}, {{a}};", (to, kind), "floats")
    for mode, kind, to in product(ROUNDINGS, ("s32", "u32", "s64", "u64"), ("f32", "f64", "f16")):
        if to != "f64" or kind.endswith("64") or mode == "rn":
            yield _row(f"cvt.{mode}.{to}.{kind} {{d}}, {{a}};", (to, kind), "bits")
    for to, kind in (("s8", "s32"), ("u8", "s32"), ("s16", "s32"), ("s32", "s64"), ("u16", "u64")):
        yield _row(f"cvt.sat.{to}.{kind} {{d}}, {{a}};", (f"b{max(16, int(to[1:]))}", kind), "bits")


def _arithmetic() -> Iterator[Elementwise]:
    sources = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "sqrt": 1, "rcp": 1}
    for kind, mode, op in product(("f32", "f64"), ROUNDINGS, sources):
        yield _same(f"{op}.{mode}.{kind}", kind, sources[op], "floats")
    for op in ("add", "mul", "fma"):
        yield _same(f"{op}.rn.ftz.f32", "f32", sources[op], "floats")
        yield _same(f"{op}.rn.sat.f32", "f32", sources[op], "floats")
        for kind in ("f16", "f16x2", "bf16", "bf16x2"):
            yield _same(f"{op}.rn.{kind}", kind, sources[op], "floats")
    yield _same("fma.rn.relu.f16x2", "f16x2", 3, "floats")
    for op, kind in product(("min", "max"), ("f32", "f64", "f16", "f16x2", "bf16x2", "NaN.f32", "ftz.f32", "NaN.f16")):
        yield _same(f"{op}.{kind}", kind.rpartition(".")[2], 2, "floats")
    for op, kind in product(("abs", "neg"), ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")):
        yield _same(f"{op}.{kind}", kind, 1, "floats")
    for op in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"):
        yield _same(f"{op}.approx.f32", "f32", 1, "floats", None)
    yield _same("div.full.f32", "f32", 2, "floats", None)
    comparisons = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
    for comparison, kind in product(comparisons, ("f32", "f16")):
        text = f"setp.{comparison}.{kind} %pr0, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %pr0;"
        yield _row(text, ("u32", kind, kind), "floats")


def _integers() -> Iterator[Elementwise]:
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield _same(f"{op}.{kind}", kind, 2, "bits")
        yield _row(f"shr.{kind} {{d}}, {{a}}, {{b}};", (kind, kind, "u32"), ("bits", "small"))
    for kind in ("b16", "b32", "b64"):
        yield _row(f"shl.{kind} {{d}}, {{a}}, {{b}};", (kind, kind, "u32"), ("bits", "small"))
    for kind, wide in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")):
        yield _row(f"mul.wide.{kind} {{d}}, {{a}}, {{b}};", (wide, kind, kind), "bits")
        yield _row(f"mad.wide.{kind} {{d}}, {{a}}, {{b}}, {{c}};", (wide, kind, kind, wide), "bits")
        yield _same(f"mad.hi.{kind}", kind, 3, "bits")
    for kind in ("u32", "s32"):
        yield _same(f"dp4a.{kind}.{kind}", kind, 3, "bits")
        yield _same(f"dp2a.hi.{kind}.{kind}", kind, 3, "bits")
        yield _same(f"sad.{kind}", kind, 3, "bits")
        yield _same(f"mul24.lo.{kind}", kind, 2, "bits")
        yield _same(f"mad24.hi.{kind}", kind, 3, "bits")
    yield _same("add.sat.s32", "s32", 2, "bits")
    yield _same("abs.s32", "s32", 1, "bits")
    yield _row(
        "add.cc.u32 %t0, {a}, {b}; addc.u32 %t1, {a}, {c}; "
        "sub.cc.u32 %t2, %t0, {c}; subc.u32 %t3, %t1, {b}; xor.b32 {d}, %t2, %t3;",
        ("u32",) * 4,
        "bits",
        name="carry_chain",
    )


def _bits() -> Iterator[Elementwise]:
    for kind in ("u32", "s32", "u64", "s64"):
        fields = ("bits", "small", "small")
        yield _row(f"bfe.{kind} {{d}}, {{a}}, {{b}}, {{c}};", (kind, kind, "u32", "u32"), fields)
        yield _row(f"bfind.{kind} {{d}}, {{a}};", ("u32", kind), "bits")
        yield _row(f"bfind.shiftamt.{kind} {{d}}, {{a}};", ("u32", kind), "bits")
    for kind in ("b32", "b64"):
        yield _row(f"bfi.{kind} {{d}}, {{a}}, {{b}}, {{c}}, 11;", (kind, kind, kind, "u32"), ("bits", "bits", "small"))
        for op, result in (("popc", "u32"), ("clz", "u32"), ("brev", kind)):
            yield _row(f"{op}.{kind} {{d}}, {{a}};", (result, kind), "bits")
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield _same(f"prmt.b32{mode}", "b32", 3, "bits")
    for table in (0x80, 0x96, 0xE8, 0x1B, 0xFE):
        text = f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};"
        yield _row(text, ("b32",) * 4, "bits", name=f"lop3_{table}")
    for mode in ("l.wrap", "l.clamp", "r.wrap", "r.clamp"):
        yield _row(f"shf.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};", ("b32",) * 4, ("bits", "bits", "small"))


def _across_lanes() -> Iterator[Elementwise]:
    for mode, control in product(("idx", "up", "down", "bfly"), ("0", "31", "0x1f00", "0x181f", "0x1c07")):
        text = f"shfl.sync.{mode}.b32 {{d}}|%pr0, {{a}}, {{b}}, {control}, -1; @!%pr0 not.b32 {{d}}, {{d}};"
        yield _row(text, ("b32", "b32", "u32"), ("bits", "small"), name=f"shfl_{mode}_{control}")
    yield _row("match.any.sync.b32 {d}, {a}, -1;", ("b32", "b32"), "small")
    votes = "setp.lt.u32 %pr0, {a}, 40; vote.sync.ballot.b32 {d}, %pr0, -1;"
    yield _row(votes, ("b32", "b32"), "small", name="vote_ballot")
    for op, kind in (("add", "u32"), ("min", "s32"), ("max", "u32"), ("xor", "b32")):
        yield _row(f"redux.sync.{op}.{kind} {{d}}, {{a}}, -1;", ("b32", "b32"), "bits")


def _atomics() -> Iterator[Elementwise]:
    spaces = ("global", "shared")
    places = [("f32", place) for place in (*spaces, "to global", "to shared")]
    places += list(product(("f16x2", "bf16x2"), spaces))
    for (kind, place), opcode in product(places, ("red", "atom")):
        name = f"{opcode}_{place}_{kind}".replace(" ", "_")
        yield _row(atomic_sum(opcode, place, kind), ("b32", kind, kind), "tiny", name=name)


ATOMICS: tuple[Elementwise, ...] = tuple(_atomics())
ELEMENTWISE: tuple[Elementwise, ...] = (
    *_conversions(),
    *_arithmetic(),
    *_integers(),
    *_bits(),
    *_across_lanes(),
    *ATOMICS,
)
