"""The table of one-instruction kernels: conversions, arithmetic, integer and bit operations, shuffles."""

from __future__ import annotations

from micro_kernels import Elementwise

_R = ["rn", "rz", "rm", "rp"]


def _cvt() -> list[Elementwise]:
    rows = []
    for mode in ("rn", "rz"):
        for to in ("f16", "bf16"):
            rows.append((f"cvt_{mode}_{to}_f32", f"cvt.{mode}.{to}.f32 {{d}}, {{a}};", (to, "f32")))
            rows.append(
                (f"cvt_{mode}_{to}x2_f32", f"cvt.{mode}.{to}x2.f32 {{d}}, {{a}}, {{b}};", (f"{to}x2", "f32", "f32"))
            )
    rows += [(f"cvt_{mode}_f32_f64", f"cvt.{mode}.f32.f64 {{d}}, {{a}};", ("f32", "f64")) for mode in _R]
    rows += [
        ("cvt_rn_relu_f16", "cvt.rn.relu.f16.f32 {d}, {a};", ("f16", "f32")),
        ("cvt_f32_f16", "cvt.f32.f16 {d}, {a};", ("f32", "f16")),
        ("cvt_f32_bf16", "cvt.f32.bf16 {d}, {a};", ("f32", "bf16")),
        ("cvt_f64_f32", "cvt.f64.f32 {d}, {a};", ("f64", "f32")),
        ("cvt_rna_tf32", "cvt.rna.tf32.f32 {d}, {a};", ("f32", "f32")),
        ("cvt_rni_f32", "cvt.rni.f32.f32 {d}, {a};", ("f32", "f32")),
        ("cvt_rzi_f16", "cvt.rzi.f16.f16 {d}, {a};", ("f16", "f16")),
        ("cvt_sat_f32", "cvt.sat.f32.f32 {d}, {a};", ("f32", "f32")),
        ("cvt_rn_ftz_f16", "cvt.rn.f16.f32 {d}, {a};", ("f16", "f32")),
        ("cvt_e4m3x2", "cvt.rn.satfinite.e4m3x2.f32 {d}, {a}, {b};", ("e4m3x2", "f32", "f32")),
        ("cvt_e5m2x2", "cvt.rn.satfinite.e5m2x2.f32 {d}, {a}, {b};", ("e5m2x2", "f32", "f32")),
        ("cvt_f16x2_e4m3x2", "cvt.rn.f16x2.e4m3x2 {d}, {a};", ("f16x2", "e4m3x2")),
        ("cvt_f16x2_e5m2x2", "cvt.rn.f16x2.e5m2x2 {d}, {a};", ("f16x2", "e5m2x2")),
    ]
    table = [_floats(*row) for row in rows]
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for to in ("s32", "u32", "s64", "u64"):
            for source in ("f32", "f16", "f64"):
                name, text = f"cvt_{mode}_{to}_{source}", f"cvt.{mode}.{to}.{source} {{d}}, {{a}};"
                table.append(Elementwise(name=name, instruction=text, types=(to, source), values=("floats",)))
    for mode in _R:
        for source in ("s32", "u32", "s64", "u64"):
            for to in ("f32", "f64", "f16"):
                if to == "f64" and source.endswith("32") and mode != "rn":
                    continue
                name, text = f"cvt_{mode}_{to}_{source}", f"cvt.{mode}.{to}.{source} {{d}}, {{a}};"
                table.append(Elementwise(name=name, instruction=text, types=(to, source), values=("bits",)))
    for to, source in (("s8", "s32"), ("u8", "s32"), ("s16", "s32"), ("s32", "s64"), ("u16", "u64")):
        wide = f"b{max(16, int(to[1:]))}"
        name, text = f"cvt_sat_{to}_{source}", f"cvt.sat.{to}.{source} {{d}}, {{a}};"
        table.append(Elementwise(name=name, instruction=text, types=(wide, source), values=("bits",)))
    return table


def _floats(name: str, instruction: str, types: tuple[str, ...], tolerance: int | None = 0) -> Elementwise:
    target = "sm_90" if "e4m3" in instruction or "e5m2" in instruction or "bf16" in instruction else "sm_80"
    values = ("floats",) * (len(types) - 1)
    return Elementwise(
        name=name,
        instruction=instruction,
        types=types,
        values=values,
        tolerance_ulp=tolerance,
        float_result=types[0],
        target=target,
    )


def _arithmetic() -> list[Elementwise]:
    table = []
    for kind in ("f32", "f64"):
        for mode in _R:
            for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("div", 2), ("sqrt", 1), ("rcp", 1)):
                operands = ", ".join(f"{{{letter}}}" for letter in "abc"[:count])
                table.append(
                    _floats(f"{op}_{mode}_{kind}", f"{op}.{mode}.{kind} {{d}}, {operands};", (kind,) * (count + 1))
                )
    for op, count in (("add", 2), ("mul", 2), ("fma", 3)):
        operands = ", ".join(f"{{{letter}}}" for letter in "abc"[:count])
        table.append(_floats(f"{op}_rn_ftz_f32", f"{op}.rn.ftz.f32 {{d}}, {operands};", ("f32",) * (count + 1)))
        table.append(_floats(f"{op}_rn_sat_f32", f"{op}.rn.sat.f32 {{d}}, {operands};", ("f32",) * (count + 1)))
        for kind in ("f16", "f16x2", "bf16", "bf16x2"):
            table.append(_floats(f"{op}_rn_{kind}", f"{op}.rn.{kind} {{d}}, {operands};", (kind,) * (count + 1)))
    table.append(_floats("fma_relu_f16x2", "fma.rn.relu.f16x2 {d}, {a}, {b}, {c};", ("f16x2",) * 4))
    for op in ("min", "max"):
        for kind in ("f32", "f64", "f16", "f16x2", "bf16x2", "NaN.f32", "ftz.f32", "NaN.f16"):
            register = kind.rpartition(".")[2]
            table.append(
                _floats(f"{op}_{kind.replace('.', '_')}", f"{op}.{kind} {{d}}, {{a}}, {{b}};", (register,) * 3)
            )
    for op in ("abs", "neg"):
        for kind in ("f32", "f16", "f16x2", "bf16x2"):
            table.append(_floats(f"{op}_{kind}", f"{op}.{kind} {{d}}, {{a}};", (kind,) * 2))
    for op in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"):
        table.append(_floats(f"{op}_approx_f32", f"{op}.approx.f32 {{d}}, {{a}};", ("f32",) * 2, None))
    table.append(_floats("tanh_approx_f32", "tanh.approx.f32 {d}, {a};", ("f32",) * 2, None))
    table.append(_floats("div_full_f32", "div.full.f32 {d}, {a}, {b};", ("f32",) * 3, None))
    for comparison in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        for kind in ("f32", "f16"):
            text = f"setp.{comparison}.{kind} %pr0, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %pr0;"
            values = ("floats", "floats")
            table.append(
                Elementwise(
                    name=f"setp_{comparison}_{kind}", instruction=text, types=("u32", kind, kind), values=values
                )
            )
    return table


def _integer() -> list[Elementwise]:
    rows: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = []
    for bits in ("16", "32", "64"):
        for sign in "us":
            kind = f"{sign}{bits}"
            for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
                rows.append(
                    (f"{op}_{kind}".replace(".", "_"), f"{op}.{kind} {{d}}, {{a}}, {{b}};", (kind,) * 3, ("bits",) * 2)
                )
            rows.append((f"shr_{kind}", f"shr.{kind} {{d}}, {{a}}, {{b}};", (kind, kind, "u32"), ("bits", "small")))
        rows.append(
            (f"shl_b{bits}", f"shl.b{bits} {{d}}, {{a}}, {{b}};", (f"b{bits}", f"b{bits}", "u32"), ("bits", "small"))
        )
    for kind, wide in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")):
        rows.append((f"mul_wide_{kind}", f"mul.wide.{kind} {{d}}, {{a}}, {{b}};", (wide, kind, kind), ("bits",) * 2))
        rows.append(
            (
                f"mad_wide_{kind}",
                f"mad.wide.{kind} {{d}}, {{a}}, {{b}}, {{c}};",
                (wide, kind, kind, wide),
                ("bits",) * 3,
            )
        )
        rows.append((f"mad_hi_{kind}", f"mad.hi.{kind} {{d}}, {{a}}, {{b}}, {{c}};", (kind,) * 4, ("bits",) * 3))
    for kind in ("u32", "s32", "u64", "s64"):
        rows.append(
            (
                f"bfe_{kind}",
                f"bfe.{kind} {{d}}, {{a}}, {{b}}, {{c}};",
                (kind, kind, "u32", "u32"),
                ("bits", "small", "small"),
            )
        )
        rows.append((f"bfind_{kind}", f"bfind.{kind} {{d}}, {{a}};", ("u32", kind), ("bits",)))
        rows.append((f"bfind_shiftamt_{kind}", f"bfind.shiftamt.{kind} {{d}}, {{a}};", ("u32", kind), ("bits",)))
    for kind in ("b32", "b64"):
        text = f"bfi.{kind} {{d}}, {{a}}, {{b}}, {{c}}, 11;"
        rows.append((f"bfi_{kind}", text, (kind, kind, kind, "u32"), ("bits", "bits", "small")))
        for op, result in (("popc", "u32"), ("clz", "u32"), ("brev", kind)):
            rows.append((f"{op}_{kind}", f"{op}.{kind} {{d}}, {{a}};", (result, kind), ("bits",)))
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        rows.append(
            (
                f"prmt{mode}".replace(".", "_"),
                f"prmt.b32{mode} {{d}}, {{a}}, {{b}}, {{c}};",
                ("b32",) * 4,
                ("bits",) * 3,
            )
        )
    for table in (0x80, 0x96, 0xE8, 0x1B, 0xFE):
        rows.append((f"lop3_{table}", f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};", ("b32",) * 4, ("bits",) * 3))
    for mode in ("l.wrap", "l.clamp", "r.wrap", "r.clamp"):
        name = f"shf_{mode}".replace(".", "_")
        rows.append((name, f"shf.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};", ("b32",) * 4, ("bits", "bits", "small")))
    for kind in ("u32", "s32"):
        rows.append((f"dp4a_{kind}", f"dp4a.{kind}.{kind} {{d}}, {{a}}, {{b}}, {{c}};", (kind,) * 4, ("bits",) * 3))
        rows.append(
            (f"dp2a_hi_{kind}", f"dp2a.hi.{kind}.{kind} {{d}}, {{a}}, {{b}}, {{c}};", (kind,) * 4, ("bits",) * 3)
        )
        rows.append((f"sad_{kind}", f"sad.{kind} {{d}}, {{a}}, {{b}}, {{c}};", (kind,) * 4, ("bits",) * 3))
        rows.append((f"mul24_{kind}", f"mul24.lo.{kind} {{d}}, {{a}}, {{b}};", (kind,) * 3, ("bits",) * 2))
        rows.append((f"mad24_hi_{kind}", f"mad24.hi.{kind} {{d}}, {{a}}, {{b}}, {{c}};", (kind,) * 4, ("bits",) * 3))
    rows.append(("add_sat_s32", "add.sat.s32 {d}, {a}, {b};", ("s32",) * 3, ("bits",) * 2))
    rows.append(("abs_s32", "abs.s32 {d}, {a};", ("s32",) * 2, ("bits",)))
    carry = (
        "add.cc.u32 %t0, {a}, {b}; addc.u32 %t1, {a}, {c}; "
        "sub.cc.u32 %t2, %t0, {c}; subc.u32 %t3, %t1, {b}; xor.b32 {d}, %t2, %t3;"
    )
    rows.append(("carry_chain", carry, ("u32",) * 4, ("bits",) * 3))
    return [Elementwise(name=name, instruction=text, types=types, values=values) for name, text, types, values in rows]


def _across_lanes() -> list[Elementwise]:
    rows: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = []
    for mode in ("idx", "up", "down", "bfly"):
        for control in ("0", "31", "0x1f00", "0x181f", "0x1c07"):
            text = f"shfl.sync.{mode}.b32 {{d}}|%pr0, {{a}}, {{b}}, {control}, -1; @!%pr0 not.b32 {{d}}, {{d}};"
            rows.append((f"shfl_{mode}_{control}", text, ("b32", "b32", "u32"), ("bits", "small")))
    rows.append(("match_any", "match.any.sync.b32 {d}, {a}, -1;", ("b32", "b32"), ("small",)))
    votes = "setp.lt.u32 %pr0, {a}, 40; vote.sync.ballot.b32 {d}, %pr0, -1;"
    rows.append(("vote_ballot", votes, ("b32", "b32"), ("small",)))
    for op, kind in (("add", "u32"), ("min", "s32"), ("max", "u32"), ("xor", "b32")):
        rows.append((f"redux_{op}", f"redux.sync.{op}.{kind} {{d}}, {{a}}, -1;", ("b32", "b32"), ("bits",)))
    return [Elementwise(name=name, instruction=text, types=types, values=values) for name, text, types, values in rows]


ELEMENTWISE: tuple[Elementwise, ...] = (*_cvt(), *_arithmetic(), *_integer(), *_across_lanes())
