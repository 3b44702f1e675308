"""Asks a GPU where `wgmma` reads each element, for random matrix descriptors: its addresses, kept for tests elsewhere.

python -m tests.gpu.descriptors --store tests/hardware/golden/h200_descriptors.npz

Shared memory holds the number of each half in two launches, its low and its high ten bits. The other operand is the
identity, so that the products are the numbers of the halves that were read, each with its row and k.
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

import numpy as np

from cutegen.run.driver import Driver, load_driver

DATA_BYTES = 128 * 1024
NUMBER_BITS = 10
IDENTITY = DATA_BYTES >> 4 | 8 << 16 | 16 << 32
"""The descriptor of 64 x 16 halves behind the data, 16 rows of the identity first: no swizzle, K-major."""
REPEATS = 40
# (operand, whether its M or N is contiguous, N)
FORMS = [("a", False, 16), ("a", True, 16), ("b", False, 24), ("b", True, 24), ("b", False, 64), ("b", True, 64)]
ENTRY = "read_by_descriptor"

_FILL = """
    mov.u32 %r0, %tid.x; mov.u32 %base, data; ld.param.u32 %r6, [shift];
    mov.u32 %r1, %r0;
NUMBERS:
    shr.u32 %r2, %r1, %r6; and.b32 %r2, %r2, 1023; cvt.rn.f16.u32 %h0, %r2;
    shl.b32 %r3, %r1, 1; add.u32 %r3, %r3, %base; st.shared.b16 [%r3], %h0;
    add.u32 %r1, %r1, 128; setp.lt.u32 %p1, %r1, HALVES; @%p1 bra NUMBERS;
    mov.u32 %r1, %r0;
ONES:
    shr.u32 %r2, %r1, 3; and.b32 %r2, %r2, 7; shr.u32 %r3, %r1, 7; shl.b32 %r3, %r3, 3; or.b32 %r2, %r2, %r3;
    and.b32 %r4, %r1, 7; shr.u32 %r3, %r1, 6; and.b32 %r3, %r3, 1; shl.b32 %r3, %r3, 3; or.b32 %r4, %r4, %r3;
    setp.eq.u32 %p1, %r2, %r4; selp.u32 %r2, 1, 0, %p1; cvt.rn.f16.u32 %h0, %r2;
    shl.b32 %r3, %r1, 1; add.u32 %r3, %r3, %base; st.shared.b16 [%r3 + DATA], %h0;
    add.u32 %r1, %r1, 128; setp.lt.u32 %p1, %r1, 1024; @%p1 bra ONES;
    fence.proxy.async.shared::cta; bar.sync 0;
"""


def ptx(operand: str, turned: bool, n: int) -> str:
    """A kernel of one warpgroup that multiplies once for each descriptor."""
    values = [f"%f{i}" for i in range(n // 2)]
    operands = "%rd3, %rd4" if operand == "a" else "%rd4, %rd3"
    transposed = f"{int(turned and operand == 'a')}, {int(turned and operand == 'b')}"
    stores = " ".join(f"st.global.f32 [%rd5 + {4 * i}], {value};" for i, value in enumerate(values))
    fill = _FILL.replace("HALVES", str(DATA_BYTES // 2)).replace("DATA", str(DATA_BYTES))
    return f""".version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 data[];
.visible .entry {ENTRY}(.param .u64 descriptors, .param .u64 out, .param .u32 count, .param .u32 shift)
{{
    .reg .b32 %r<16>, %base; .reg .b64 %rd<12>; .reg .b16 %h<2>; .reg .f32 %f<{n // 2}>; .reg .pred %p<4>;
    {fill}
    ld.param.u64 %rd1, [descriptors]; ld.param.u64 %rd5, [out]; ld.param.u32 %r7, [count];
    mul.wide.u32 %rd6, %r0, {4 * len(values)}; add.u64 %rd5, %rd5, %rd6;
    shr.u32 %r8, %base, 4; cvt.u64.u32 %rd7, %r8;
    mov.b64 %rd4, {IDENTITY}; add.u64 %rd4, %rd4, %rd7;
    setp.ne.u32 %p2, %r0, %r0;
EACH:
    ld.global.u64 %rd3, [%rd1]; add.u64 %rd3, %rd3, %rd7;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {{{", ".join(values)}}}, {operands}, %p2, 1, 1, {transposed};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    {stores}
    add.u64 %rd1, %rd1, 8; add.u64 %rd5, %rd5, {128 * 4 * len(values)};
    sub.u32 %r7, %r7, 1; setp.ne.u32 %p1, %r7, 0; @%p1 bra EACH;
    ret;
}}
"""


def descriptors(seed: int) -> np.ndarray:
    """Random ones whose addresses end before the data does: every swizzle, start, base offset, stride."""
    random = np.random.default_rng(seed)
    start, leading, stride = (random.integers(0, most // 16, REPEATS).astype(np.uint64) for most in (32768, 8192, 8192))
    base_offset = np.where(random.random(REPEATS) < 0.5, 0, random.integers(0, 8, REPEATS)).astype(np.uint64)
    mode = np.arange(REPEATS, dtype=np.uint64) % np.uint64(4)
    placed = ((start, 0), (leading, 16), (stride, 32), (base_offset, 49), (mode, 62))
    return np.bitwise_or.reduce([field << np.uint64(at) for field, at in placed])


def numbers(products: np.ndarray, operand: str, n: int) -> np.ndarray:
    """[descriptor, row, k] of the operand out of [descriptor, thread, value] of the accumulators."""
    thread, value = np.ogrid[:128, : n // 2]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (value // 2 % 2)
    column = 8 * (value // 4) + 2 * (thread % 4) + value % 2
    matrix = np.zeros((len(products), 64, n), np.float32)
    matrix[:, row, column] = products
    return matrix if operand == "a" else matrix[:, :16].transpose(0, 2, 1)


def in_vectors(read: np.ndarray, turned: bool) -> np.ndarray:
    """The first byte of each vector of 8 halves along the contiguous mode; the others follow it."""
    along = 1 if turned else 2
    first = read.take(range(0, read.shape[along], 8), along)
    follow = np.tile(2 * np.arange(8), first.shape[along])
    assert np.array_equal(read, first.repeat(8, along) + (follow[:, None] if turned else follow))
    return first


def ask(driver: Driver, operand: str, turned: bool, n: int, words: np.ndarray) -> np.ndarray:
    """[descriptor, row, k] -> the byte that was read, counted from the start of shared data."""
    import torch

    given = torch.from_numpy(words.view(np.int64)).cuda()
    found = np.zeros((len(words), 64 if operand == "a" else n, 16), np.int64)
    with driver.current(driver.primary_context(0)):
        library = driver.call("cuLibraryLoadData", ptx(operand, turned, n).encode() + b"\0", [], [], 0, [], [], 0)
        function = driver.call("cuKernelGetFunction", driver.call("cuLibraryGetKernel", library, ENTRY.encode()))
        smem_bytes = DATA_BYTES + 2048
        limit = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.call("cuFuncSetAttribute", function, limit, smem_bytes)
        for shift in (0, NUMBER_BITS):
            out = torch.full((len(words), 128, n // 2), float("nan"), device="cuda")
            slots = (ctypes.c_uint64 * 4)(given.data_ptr(), out.data_ptr(), len(words), shift)
            pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(slots) + 8 * i for i in range(4)))
            torch.cuda.synchronize()
            driver.call("cuLaunchKernel", function, 1, 1, 1, 128, 1, 1, smem_bytes, 0, ctypes.addressof(pointers), 0)
            torch.cuda.synchronize()
            found += 2 * (numbers(out.cpu().numpy(), operand, n).astype(np.int64) << shift)
    return found


def main() -> None:
    """Write the descriptors of each form and what was read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    store = parser.parse_args().store
    driver = load_driver()
    kept: dict[str, np.ndarray] = {}
    for seed, (operand, turned, n) in enumerate(FORMS):
        words = descriptors(seed)
        name = f"{operand}_{'mn' if turned else 'k'}_{n}"
        kept[f"{name}_descriptors"] = words
        kept[f"{name}_vectors"] = in_vectors(ask(driver, operand, turned, n, words), turned).astype(np.int32)
    np.savez_compressed(store, **kept)


if __name__ == "__main__":
    main()
