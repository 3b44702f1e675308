"""ldmatrix, stmatrix, movmatrix and mma against the definitions of the PTX ISA and against float64."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from kernels import kernel, run_elements
from micro_kernels import MMAS, Mma, ldmatrix_ptx

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import AMPERE, HOPPER, ExecutionFault, Program, TensorCore


def run_mma(mma: Mma, operands: list[np.ndarray], core: TensorCore = HOPPER) -> np.ndarray:
    """The result registers of each warp."""
    ctas = len(operands[0])
    out = np.zeros((ctas, mma.counts[2], 32), np.uint32)
    Program.parse(mma.ptx()).launch(mma.name, grid=ctas, block=32, args=[out, *operands], tensor_core=core)
    return out


def decode(bits: np.ndarray, kind: str) -> np.ndarray:
    """float64 values of the bits of a type, through torch where numpy has no such type."""
    if kind in ("s8", "u8", "s32", "f16", "f32"):
        return bits.view({"s8": "i1", "u8": "u1", "s32": "i4", "f16": "f2", "f32": "f4"}[kind]).astype(np.float64)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    torch = pytest.importorskip("torch")
    dtype = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]
    raw = bits.view(np.int16 if kind == "bf16" else np.uint8).copy()
    return torch.from_numpy(raw).view(dtype).to(torch.float64).numpy()


def element(registers: np.ndarray, kind: str, lane: int, index: int) -> float:
    """Element `index` of the fragment that `lane` holds."""
    return float(decode(np.ascontiguousarray(registers[:, lane]), kind)[index])


def matrices(mma: Mma, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(16, K), (K, 8), (16, 8) of one warp, element by element as the figures of the ISA place them."""
    bits = 32 if mma.a_type == "tf32" else 16 if mma.a_type in ("f16", "bf16") else 8
    per = 32 // bits
    left, right, start = np.zeros((16, mma.k)), np.zeros((mma.k, 8)), np.zeros((16, 8))
    for lane in range(32):
        group, member = divmod(lane, 4)
        for i in range(len(a) * per):
            register, part = divmod(i, per)
            row = group + 8 * (register % 2)
            left[row, member * per + part + 4 * per * (register // 2)] = element(a, mma.a_type, lane, i)
        for i in range(len(b) * per):
            register, part = divmod(i, per)
            right[member * per + part + 4 * per * register, group] = element(b, mma.b_type, lane, i)
        for i in range(4):
            start[group + 8 * (i // 2), member * 2 + i % 2] = element(c, mma.c_type, lane, i)
    return left, right, start


@pytest.mark.parametrize("core", [AMPERE, HOPPER], ids=["ampere", "hopper"])
@pytest.mark.parametrize("mma", MMAS, ids=[mma.name for mma in MMAS])
def test_mma_is_the_matrix_product_of_its_fragments(mma: Mma, core: TensorCore) -> None:
    operands = mma.operands(np.random.default_rng(zlib.crc32(mma.name.encode())), 4, "normal")
    results = run_mma(mma, operands, core)
    for a, b, c, d in zip(*operands, results, strict=True):
        left, right, start = matrices(mma, a, b, c)
        exact = left @ right + start
        got = matrices(mma, a, b, d)[2]
        if mma.c_type == "s32":
            assert (got == (exact + 2.0**31) % 2.0**32 - 2.0**31).all()
            continue
        scale = np.maximum(np.abs(left) @ np.abs(right) + np.abs(start), 2.0**-14)
        assert (np.abs(got - exact) <= scale * 2.0 ** (-10 if mma.c_type == "f16" else -21)).all()


@pytest.mark.parametrize("mma", [mma for mma in MMAS if mma.c_type == "f32"], ids=lambda mma: mma.name)
def test_mma_of_small_integers_is_exact(mma: Mma) -> None:
    rng = np.random.default_rng(7)
    torch = pytest.importorskip("torch")
    names = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
    names |= {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    operands = []
    for kind, count in zip((mma.a_type, mma.b_type, "tf32"), mma.counts, strict=True):
        per = {"tf32": 1, "f16": 2, "bf16": 2}.get(kind, 4)
        values = torch.from_numpy(rng.integers(-2, 3, (1, count, 32, per)).astype(np.float32)).to(names[kind])
        operands.append(values.view(torch.uint8).numpy().view(np.uint32).reshape(1, count, 32))
    result = run_mma(mma, operands)
    left, right, start = matrices(mma, operands[0][0], operands[1][0], operands[2][0])
    assert (matrices(mma, operands[0][0], operands[1][0], result[0])[2] == left @ right + start).all()


@pytest.mark.parametrize("space", ["", ".shared", ".shared::cta"])
def test_matrices_without_a_state_space_have_generic_addresses(space: str) -> None:
    """Row l of the matrix is at byte 16 l; `stmatrix` writes it back 256 bytes further."""
    to_generic = "" if space else "cvta.shared.u64 %rd2, %rd2;"
    body = f"""
    mov.u64 %rd2, smem; {to_generic} and.b32 %r4, %r0, 7; mul.wide.u32 %rd4, %r4, 16; add.s64 %rd4, %rd2, %rd4;
    mov.u32 %r5, smem; shl.b32 %r6, %r0, 2; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5], %r0; bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x1{space}.b16 {{%r7}}, [%rd4];
    stmatrix.sync.aligned.m8n8.x1{space}.b16 [%rd4+256], {{%r7}}; bar.warp.sync -1;
    ld.shared.u32 %r3, [%r5+256];
    """
    assert (run_elements(kernel(body, shared_bytes=512), np.uint32) == np.arange(32)).all()


def test_a_matrix_may_name_its_variable() -> None:
    """All rows are row 0."""
    fill = "mov.u32 %r5, smem; shl.b32 %r6, %r0, 2; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5], %r0; bar.warp.sync -1;"
    body = fill + "ldmatrix.sync.aligned.m8n8.x1.b16 {%r3}, [smem];"
    assert (run_elements(kernel(body, shared_bytes=512), np.uint32) == np.arange(32) % 4).all()


def test_matrices_are_in_shared_memory() -> None:
    body = "ldmatrix.sync.aligned.m8n8.x1.b16 {%r3}, [table];"
    with pytest.raises(PtxSyntaxError, match="the variable is in global memory; expected shared memory"):
        run_elements(kernel(body, before=".global .align 16 .b8 table[128];"), np.uint32)


def test_mma_cuts_what_does_not_fit_the_accumulator() -> None:
    mma = MMAS[1]
    a, b, c = (np.zeros((1, count, 32), np.uint32) for count in mma.counts)
    a[0, 0, 0] = np.array([1.0, 2.0**-14], np.float16).view(np.uint32)[0]
    b[0, 0, 0] = np.array([1.0, 2.0**-12 * 1.5], np.float16).view(np.uint32)[0]
    result = run_mma(mma, [a, b, c])[0, 0, 0:1].view(np.float32)[0]
    assert result == 1.0  # 1 + 1.5 * 2^-26 lies below the two extra bits


H200 = np.load(Path(__file__).parent / "h200_mma.npz")
"""Fragments of one warp for each kind of operands, and the result of an H200 (from `gpu_compare.py`)."""


@pytest.mark.parametrize("name", sorted({key.partition("/")[0] for key in H200}))
def test_mma_gives_the_bits_of_an_h200(name: str) -> None:
    mma = next(mma for mma in MMAS if name.startswith(mma.name + "_"))
    operands = [H200[f"{name}/operand{i}"] for i in range(3)]
    assert np.array_equal(run_mma(mma, operands), H200[f"{name}/gpu"])


def test_mma_handles_special_values_as_addition_does() -> None:
    mma = MMAS[1]
    a, b, c = (np.zeros((1, count, 32), np.uint32) for count in mma.counts)
    a[0, 0, 0] = np.float16(np.inf).view(np.uint16)
    b[0, 0, 0::4] = np.float16(1).view(np.uint16)
    c[0, 0, 0] = np.float32(-np.inf).view(np.uint32)
    result = run_mma(mma, [a, b, c])[0]
    assert result[0, 0] == 0x7FFFFFFF
    assert np.isinf(result[1, 0:1].view(np.float32)[0])
    assert (result[2] == 0).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_each_lane_its_two_elements(count: int, transposed: bool) -> None:
    rng = np.random.default_rng(count + 10 * transposed)
    data = rng.integers(0, 1 << 16, 1024, np.uint16)
    rows = (rng.permutation(128)[:32] * 16).astype(np.uint32)
    out = np.zeros((count, 32), np.uint32)
    text = ldmatrix_ptx(count, transposed)
    Program.parse(text).launch(
        f"ldmatrix_x{count}{'_trans' if transposed else ''}", grid=1, block=32, args=[out, data, rows]
    )
    pairs = out.view(np.uint16).reshape(count, 32, 2)
    for matrix in range(count):
        for lane in range(32):
            for half in range(2):
                row, column = lane // 4, lane % 4 * 2 + half
                if transposed:
                    row, column = column, row
                address = int(rows[matrix * 8 + row]) // 2 + column
                assert pairs[matrix, lane, half] == data[address]


@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_transposes_bytes(count: int) -> None:
    """PTX ISA, figure of the 16x16 matrix: four neighbors in a row of the transpose, and of the row eight below."""
    rng = np.random.default_rng(count)
    data = rng.integers(0, 256, 2048, np.uint8)
    rows = (rng.permutation(128)[:32] * 16).astype(np.uint32)
    out = np.zeros((2 * count, 32), np.uint32)
    text = ldmatrix_ptx(count, transposed=True, bits=8)
    Program.parse(text).launch(f"ldmatrix_x{count}_trans", grid=1, block=32, args=[out, data, rows])
    received = out.view(np.uint8).reshape(count, 2, 32, 4)
    for matrix, half, lane, byte in np.ndindex(received.shape):
        column, row = lane // 4 + 8 * half, 4 * (lane % 4) + byte
        assert received[matrix, half, lane, byte] == data[int(rows[16 * matrix + row]) + column]


@pytest.mark.parametrize(
    "form",
    [
        "m16n16.x1.shared.b8",  # there is none that does not transpose
        "m16n16.x4.trans.shared.b8",
        "m16n16.x1.trans.shared.b16",
        "m8n8.x2.trans.shared.b8",
        "m16n16.x1.trans.shared.b8x16.b4x16_p64",
    ],
)
def test_other_forms_of_ldmatrix_are_refused(form: str) -> None:
    with pytest.raises(PtxSyntaxError):
        Program.parse(kernel(f"ldmatrix.sync.aligned.{form} {{%r4, %r5}}, [%r0];", shared_bytes=512)).prepare("k")


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_is_the_inverse_of_ldmatrix(trans: str) -> None:
    body = f"""
        mov.u32 %r4, smem; shl.b32 %r5, %r0, 4; add.s32 %r6, %r4, %r5;
        mul.lo.u32 %r7, %r0, 65537; add.u32 %r8, %r7, 99; xor.b32 %r9, %r7, 12345; not.b32 %r10, %r7;
        stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r6], {{%r7, %r8, %r9, %r10}};
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r11, %r12, %r13, %r14}}, [%r6];
        xor.b32 %r7, %r7, %r11; xor.b32 %r8, %r8, %r12; xor.b32 %r9, %r9, %r13; xor.b32 %r10, %r10, %r14;
        or.b32 %r3, %r7, %r8; or.b32 %r3, %r3, %r9; or.b32 %r3, %r3, %r10;"""
    assert (run_elements(kernel(body, shared_bytes=512), np.uint32) == 0).all()


def test_movmatrix_transposes() -> None:
    body = """
        mul.lo.u32 %r4, %r0, 0x20002; add.u32 %r4, %r4, 0x10000;
        movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r4;"""
    result = run_elements(kernel(body), np.uint32)
    matrix = np.arange(64).reshape(8, 8)
    assert (result.view(np.uint16).reshape(8, 8) == matrix.T).all()


def test_a_matrix_instruction_needs_the_whole_warp() -> None:
    body = "mov.u32 %r3, 0; setp.lt.u32 %p1, %r0, 31; @%p1 movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r0;"
    with pytest.raises(ExecutionFault, match="divergence"):
        run_elements(kernel(body), np.uint32)
    with pytest.raises(ExecutionFault, match="divergence: it needs all 32 lanes"):
        run_elements(kernel(body), np.uint32, block=16)
