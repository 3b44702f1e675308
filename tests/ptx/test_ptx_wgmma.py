"""`wgmma` against float64: every type, shape, major, swizzle and source of its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from warpgroup_kernels import (
    COMMIT,
    FENCE,
    Tile,
    dump,
    image_of,
    kernel,
    launch,
    matrix_of,
    mma,
    wait,
    zero,
)

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import Program, ViolationKind

Array = np.ndarray[Any, Any]
POLICIES = ("in-order", "reversed", "random:1", "random:2")
B_AT = 16384


def bf16(values: Array) -> tuple[Array, Array]:
    bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def tf32(values: Array) -> tuple[Array, Array]:
    bits = values.astype(np.float32).view(np.uint32)
    return bits, (bits & 0xFFFFE000).view(np.float32).astype(np.float64)


def small_float(codes: Array, mantissa: int, bias: int) -> Array:
    """IEEE-like 8-bit floats, without their special values."""
    exponent, fraction = codes >> mantissa & (1 << 7 - mantissa) - 1, codes & (1 << mantissa) - 1
    normal = exponent > 0
    value = (fraction / (1 << mantissa) + normal) * 2.0 ** (np.maximum(exponent, 1).astype(float) - bias)
    return np.where(codes & 0x80, -value, value)


def operand(name: str, rng: np.random.Generator, rows: int, k: int) -> tuple[Array, Array]:
    """(elements as they lie in memory, their values)."""
    if name == "f16":
        values = rng.standard_normal((rows, k)).astype(np.float16)
        return values.view(np.uint16), values.astype(np.float64)
    if name in ("bf16", "tf32"):
        return {"bf16": bf16, "tf32": tf32}[name](rng.standard_normal((rows, k)))
    if name in ("s8", "u8"):
        values = rng.integers(-128, 128, (rows, k)).astype(np.int8 if name == "s8" else np.uint8)
        return values.view(np.uint8), values.astype(np.float64)
    signs = rng.integers(0, 2, (rows, k)) << 7
    mantissa, bias, limit = (3, 7, 0x60) if name == "e4m3" else (2, 15, 0x50)
    codes = (rng.integers(0x20, limit, (rows, k)) | signs).astype(np.uint8)
    return codes, small_float(codes.astype(np.int64), mantissa, bias)


def tolerance(name: str, d: str, scale: Array, steps: int) -> Array:
    """What an instruction may lose: a step of the accumulator, or of the sum of 8-bit floats, of the largest term."""
    if d == "s32":
        return np.zeros_like(scale)
    step = 2.0**-10 if d == "f16" else 2.0**-12 if name in ("e4m3", "e5m2") else 2.0**-21
    return step * scale * steps


DTYPES = {"f32": np.float32, "s32": np.int32, "f16": np.float16}
ITEM_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}


def product(
    names: tuple[str, str, str],
    columns: int,
    *,
    swizzles: tuple[int, int] = (128, 128),
    majors: tuple[bool, bool] = (True, True),
    signs: tuple[int, int] = (1, 1),
    rows_first: bool = False,
    policy: str = "in-order",
    steps: int = 4,
    adds: bool = False,
) -> None:
    """Multiplies 64 x K by K x columns in `steps` instructions, and holds the sum against float64."""
    d, a_name, b_name = names
    rng = np.random.default_rng([columns, *swizzles, *majors, steps])
    bits = ITEM_BITS[a_name]
    depth, k = 256 // bits, 256 // bits * steps
    a_bits, a_values = operand(a_name, rng, 64, k)
    b_bits, b_values = operand(b_name, rng, columns, k)
    a = Tile(matrix=a_bits, swizzle_bytes=swizzles[0], k_major=majors[0], rows_first=rows_first)
    b = Tile(matrix=b_bits, swizzle_bytes=swizzles[1], k_major=majors[1], at=B_AT, rows_first=rows_first)
    registers = columns // (4 if d == "f16" else 2)
    rest = "" if d == "s32" else f", {signs[0]}, {signs[1]}"
    if bits == 16:
        rest += f", {int(not majors[0])}, {int(not majors[1])}"
    body = (zero(registers) if adds else "setp.ne.b32 %p0, %r0, %r0;") + FENCE
    for step in range(steps):
        where = step * 32 if bits != 16 else step * depth * 2
        types = f"{d}.{a_name}.{b_name}"
        body += mma(f"m64n{columns}k{depth}", types, registers, a.descriptor(where), b.descriptor(where), rest)
        body += "setp.eq.b32 %p0, %r0, %r0;"
    out, _ = launch(kernel(body + COMMIT + wait() + dump(registers)), image_of(a, b), registers, policy=policy)
    found = matrix_of(out, columns, DTYPES[d])
    expected = signs[0] * signs[1] * (a_values @ b_values.T)
    scale = np.abs(a_values) @ np.abs(b_values).T
    assert (np.abs(found - expected) <= tolerance(a_name, d, scale, steps)).all()
    assert np.abs(found).max() > 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "names",
    [
        ("f32", "f16", "f16"),
        ("f16", "f16", "f16"),
        ("f32", "bf16", "bf16"),
        ("f32", "tf32", "tf32"),
        ("f32", "e4m3", "e4m3"),
        ("f32", "e4m3", "e5m2"),
        ("f32", "e5m2", "e4m3"),
        ("f16", "e5m2", "e5m2"),
        ("s32", "s8", "s8"),
        ("s32", "u8", "s8"),
        ("s32", "s8", "u8"),
        ("s32", "u8", "u8"),
    ],
    ids="-".join,
)
def test_each_type(names: tuple[str, str, str], policy: str) -> None:
    product(names, 64, policy=policy)


@pytest.mark.parametrize("columns", [8, 16, 24, 40, 88, 128, 136, 192, 248, 256])
def test_each_number_of_columns(columns: int) -> None:
    product(("f32", "f16", "f16"), columns)
    product(("f16", "f16", "f16"), columns, swizzles=(64, 32))


@pytest.mark.parametrize("columns", [8, 16, 24, 32, 48, 112, 224])
def test_columns_of_integers(columns: int) -> None:
    product(("s32", "s8", "u8"), columns)


@pytest.mark.parametrize("a_swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("b_swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("majors", [(True, True), (True, False), (False, True), (False, False)])
def test_each_swizzle_and_major(majors: tuple[bool, bool], a_swizzle: int, b_swizzle: int) -> None:
    product(("f32", "f16", "f16"), 128, swizzles=(a_swizzle, b_swizzle), majors=majors)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("name", ["bf16", "tf32", "e4m3", "s8"])
def test_swizzles_of_other_types(name: str, swizzle: int) -> None:
    d = "s32" if name == "s8" else "f32"
    product((d, name, name), 48, swizzles=(swizzle, 128), steps=8)
    product((d, name, name), 48, swizzles=(128, swizzle), steps=8)


@pytest.mark.parametrize("majors", [(True, True), (True, False), (False, True), (False, False)])
def test_core_matrices_in_either_order(majors: tuple[bool, bool]) -> None:
    product(("f32", "bf16", "bf16"), 40, swizzles=(0, 0), majors=majors, rows_first=True)


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (-1, -1)])
def test_negated_operands(signs: tuple[int, int]) -> None:
    product(("f32", "f16", "f16"), 32, signs=signs)
    product(("f32", "tf32", "tf32"), 32, signs=signs)
    product(("f32", "e4m3", "e5m2"), 32, signs=signs)


def test_accumulators_may_start_from_registers() -> None:
    product(("f32", "f16", "f16"), 64, adds=True)
    product(("f16", "f16", "f16"), 64, adds=True)
    product(("s32", "s8", "s8"), 64, adds=True)


A_FRAGMENT = {
    # Elements of register r of a lane of warp w: (row, first column), by the figures of the PTX ISA.
    32: lambda w, lane, r: (16 * w + lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2)),
    16: lambda w, lane, r: (16 * w + lane // 4 + 8 * (r % 2), 2 * (lane % 4) + 8 * (r // 2)),
    8: lambda w, lane, r: (16 * w + lane // 4 + 8 * (r % 2), 4 * (lane % 4) + 16 * (r // 2)),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "names",
    [
        ("f32", "f16", "f16"),
        ("f32", "bf16", "bf16"),
        ("f32", "tf32", "tf32"),
        ("f16", "e4m3", "e5m2"),
        ("s32", "u8", "s8"),
    ],
    ids="-".join,
)
def test_a_from_registers(names: tuple[str, str, str], policy: str) -> None:
    d, a_name, b_name = names
    bits, rng = ITEM_BITS[a_name], np.random.default_rng(7)
    k = 256 // bits
    a_bits, a_values = operand(a_name, rng, 64, k)
    b_bits, b_values = operand(b_name, rng, 24, k)
    b = Tile(matrix=b_bits, swizzle_bytes=32, at=B_AT)
    image = image_of(b)
    fragments = np.zeros((128, 4), np.uint32)
    for thread in range(128):
        for register in range(4):
            row, column = A_FRAGMENT[bits](thread // 32, thread % 32, register)
            fragments[thread, register] = a_bits[row, column : column + 32 // bits].copy().view(np.uint32)[0]
    image[:2048] = fragments.view(np.uint8).reshape(-1)
    registers = 24 // (4 if d == "f16" else 2)
    rest = {"s32": "", "f16": ", 1, 1", "f32": ", -1, 1"}[d] + (", 0" if bits == 16 else "")
    load = "shl.b32 %r12, %r0, 4; add.u32 %r12, %r12, %r63; ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r12];"
    body = load + zero(registers) + FENCE
    types = f"{d}.{a_name}.{b_name}"
    body += mma(f"m64n24k{k}", types, registers, "{%r20, %r21, %r22, %r23}", b.descriptor(), rest)
    out, _ = launch(kernel(body + COMMIT + wait() + dump(registers)), image, registers, policy=policy)
    expected = (-1 if d == "f32" else 1) * (a_values @ b_values.T)
    found = matrix_of(out, 24, DTYPES[d])
    assert (np.abs(found - expected) <= tolerance(a_name, d, np.abs(a_values) @ np.abs(b_values).T, 1)).all()


def test_integers_clamp_only_with_satfinite() -> None:
    ones = np.full((64, 32), 127, np.int8).view(np.uint8)
    a, b = Tile(matrix=ones, swizzle_bytes=32), Tile(matrix=ones[:8].copy(), swizzle_bytes=32, at=B_AT)
    start = "mov.b32 %d0, 0x7fffff00; mov.b32 %d1, 5; mov.b32 %d2, 0x7fffff00; mov.b32 %d3, -5;"
    for word, large in (("", -(1 << 31) - 256 + 127 * 127 * 32), (".satfinite", (1 << 31) - 1)):
        body = start + FENCE + mma("m64n8k32", f"s32.s8.s8{word}", 4, a.descriptor(), b.descriptor(), "")
        out, _ = launch(kernel(body + COMMIT + wait() + dump(4)), image_of(a, b), 4)
        assert (out.view(np.int32) == [large, 5 + 127 * 127 * 32, large, 127 * 127 * 32 - 5]).all()


def test_infinities_and_nans_go_where_they_belong() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((64, 16)).astype(np.float16)
    values[3, 5], values[17, 0], values[40, 2] = np.inf, np.nan, -np.inf
    a = Tile(matrix=values.view(np.uint16), swizzle_bytes=32)
    other = np.abs(rng.standard_normal((8, 16))).astype(np.float16) + np.float16(0.1)
    b = Tile(matrix=other.view(np.uint16), swizzle_bytes=32, at=B_AT)
    body = zero(4) + FENCE + mma("m64n8k16", "f32.f16.f16", 4, a.descriptor(), b.descriptor(), ", 1, 1, 0, 0")
    out, _ = launch(kernel(body + COMMIT + wait() + dump(4)), image_of(a, b), 4)
    found = matrix_of(out, 8, np.float32)
    assert (found[3] == np.inf).all()
    assert np.isnan(found[17]).all()
    assert (found[40] == -np.inf).all()
    rest = np.delete(np.arange(64), [3, 17, 40])
    exact = values[rest].astype(float) @ other.astype(float).T
    scale = np.abs(values[rest]).astype(float) @ np.abs(other).astype(float).T
    assert (np.abs(found[rest] - exact) <= tolerance("f16", "f32", scale, 1)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_two_warpgroups_share_b(policy: str) -> None:
    rng = np.random.default_rng(9)
    a_bits, a_values = operand("f16", rng, 128, 64)
    b_bits, b_values = operand("f16", rng, 64, 64)
    a, b = Tile(matrix=a_bits, swizzle_bytes=128), Tile(matrix=b_bits, swizzle_bytes=128, at=B_AT)
    body = f"shr.u32 %r12, %r0, 7; mul.lo.u32 %r12, %r12, {64 * 128 >> 4}; cvt.u64.u32 %rd10, %r12;" + zero(32) + FENCE
    for k_byte in range(0, 128, 32):
        body += f"add.s64 %da, %rd10, {a.descriptor(k_byte)};"
        body += mma("m64n64k16", "f32.f16.f16", 32, "%da", b.descriptor(k_byte), ", 1, 1, 0, 0")
    out, report = launch(kernel(body + COMMIT + wait() + dump(32)), image_of(a, b), 32, block=256, policy=policy)
    found = np.concatenate([matrix_of(part, 64, np.float32) for part in (out[:128], out[128:])])
    scale = np.abs(a_values) @ np.abs(b_values).T
    assert (np.abs(found - a_values @ b_values.T) <= tolerance("f16", "f32", scale, 4)).all()
    assert report.executed("wgmma.mma_async") == 2 * 4 * 4
    assert report.shared_bytes("wgmma.mma_async") == 2 * 4 * (64 + 64) * 32


@pytest.mark.parametrize("policy", POLICIES)
def test_groups_retire_in_order_and_chains_go_on(policy: str) -> None:
    rng = np.random.default_rng(11)
    a_bits, a_values = operand("bf16", rng, 64, 64)
    b_bits, b_values = operand("bf16", rng, 32, 64)
    a, b = Tile(matrix=a_bits, swizzle_bytes=64), Tile(matrix=b_bits, swizzle_bytes=64, at=B_AT)

    def step(k: int, first: int) -> str:
        where = a.descriptor(32 * k), b.descriptor(32 * k)
        return mma("m64n32k16", "f32.bf16.bf16", 16, *where, ", 1, 1, 0, 0", first=first)

    body = zero(32) + FENCE + step(0, 0) + COMMIT + step(1, 16) + COMMIT + step(2, 0) + COMMIT
    body += wait(1) + "mov.b32 %r30, %d16;" + FENCE + step(3, 0) + COMMIT + wait(0) + dump(32)
    out, _ = launch(kernel(body), image_of(a, b), 32, policy=policy)
    parts = [a_values[:, 16 * k : 16 * k + 16] @ b_values[:, 16 * k : 16 * k + 16].T for k in range(4)]
    first, second = (matrix_of(np.ascontiguousarray(half), 32, np.float32) for half in (out[:, :16], out[:, 16:]))
    allowed = tolerance("bf16", "f32", np.abs(a_values) @ np.abs(b_values).T, 3)
    assert (np.abs(first - (parts[0] + parts[2] + parts[3])) <= allowed).all()
    assert (np.abs(second - parts[1]) <= allowed).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {D6}, %da, %db, %p0, 1, 1, 0, 0;", "m64n12k16"),
        ("wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16 {D132}, %da, %db, %p0, 1, 1, 0, 0;", "m64n264k16"),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.f16.f16 {D4}, %da, %db, %p0, 1, 1, 0, 0;", "m64n8k32"),
        ("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {D20}, %da, %db, %p0;", "m64n40k32"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {D2}, %da, %db, %p0, 1, 1, 0, 0;", "bf16"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {D4}, %da, %db, %p0, 1, 1, 0, 0;", "f16 .bf16"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D4}, %da, %db, %p0, 1, 1, 0;", "8 operands, found 7"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D3}, %da, %db, %p0, 1, 1, 0, 0;", "vector of 4"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D4}, %da, %db, %p0, 2, 1, 0, 0;", "-1 or 1"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D4}, %da, %db, %p0, 1, 1, 0, 2;", "0 or 1"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d0, D2}, %da, %db, %p0, 1, 1, 0, 0;", "different"),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {D4}, %da, %db, %p0, 1, 1, 0, 0;", "6 operands"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {D4}, %da, %db, %p0, 1, 1, 0, 0;", "sparse"),
        ("wgmma.mma_async.sync.aligned.m64n8k32.satfinite.f32.e4m3.e4m3 {D4}, %da, %db, %p0, 1, 1;", "e4m3"),
        ("wgmma.wait_group.sync.aligned %r0;", "immediate"),
        ("wgmma.commit_group.sync;", "aligned"),
        ("wgmma.something;", "expected wgmma.fence"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused(text: str, message: str) -> None:
    for count in (2, 3, 4, 6, 20, 132):
        text = text.replace(f"D{count}}}", ", ".join(f"%d{i}" for i in range(count)) + "}")
    with pytest.raises(PtxSyntaxError, match=message):
        Program.parse(kernel(text)).prepare("k")


@pytest.mark.parametrize("policy", ["in-order", "reversed"])
def test_a_launch_without_shared_memory_is_out_of_bounds(policy: str) -> None:
    """The violation is collected and the product goes on."""
    text = """
    .version 8.0
    .target sm_90a
    .address_size 64
    .extern .shared .align 1024 .b8 smem[];
    .visible .entry k() {
        .reg .pred %p<2>; .reg .f32 %f<4>; .reg .b64 %rd<2>; .reg .b32 %r<2>;
        mov.u32 %r0, %tid.x; setp.ne.u32 %p1, %r0, %r0; mov.b64 %rd0, 64;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd0, %p1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        ret;
    }
    """
    report = Program.parse(text).launch("k", grid=1, block=128, args=[], policy=policy, raise_on=())
    assert {found.kind for found in report.violations} == {ViolationKind.OUT_OF_BOUNDS}
    assert "the 0 bytes of shared memory" in str(report.violations[0])
