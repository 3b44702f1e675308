"""Kernels of one CTA that multiply with `wgmma`, and an independent statement of how their operands lie in memory.

Shared memory is filled from an image that Python lays out (`Image`): A and B as a tensor map would leave them, which is
stated by rows and chunks of the CUDA driver's swizzles, not by descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.ptx import LaunchReport, Program

Array = np.ndarray[Any, Any]
SMEM_BYTES = 49152
SMEM_BASE = 1024
"""The address of a kernel's first shared byte."""
PERIOD_BYTES = 1024

# PTX ISA, "Swizzling modes": in which 16-byte chunk of its line (of 128, 64 or 32 bytes) chunk c of line r lies.
PATTERNS = {
    128: lambda line, chunk: chunk ^ line % 8,
    64: lambda line, chunk: chunk ^ line // 2 % 4,
    32: lambda line, chunk: chunk ^ line // 4 % 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A matrix (rows, K) in shared memory, as boxes of `swizzle_bytes` wide lines, one after the other.

    K-major, a line is one row's part of K; else one k's part of the rows. Without swizzle there are core matrices of 8
    lines of 16 bytes, those that follow each other along K first, unless `rows_first`.
    """

    matrix: Array
    swizzle_bytes: int
    k_major: bool = True
    at: int = 0
    rows_first: bool = False

    def __post_init__(self) -> None:
        assert self.at % PERIOD_BYTES == 0

    @property
    def lines(self) -> Array:
        """The matrix with the contiguous mode last."""
        return self.matrix if self.k_major else self.matrix.T

    def write(self, image: Array) -> None:
        """Puts the matrix into an image of shared memory."""
        lines = np.ascontiguousarray(self.lines)
        chunks = lines.view(np.uint8).reshape(len(lines), -1, 16)
        for line in range(chunks.shape[0]):
            for chunk in range(chunks.shape[1]):
                place = self.at + self.place(line, chunk)
                image[place : place + 16] = chunks[line, chunk]

    def place(self, line: int, chunk: int) -> int:
        """The byte at which a chunk of a line begins."""
        count = len(self.lines)
        if self.swizzle_bytes:
            per_line = self.swizzle_bytes // 16
            box, within = divmod(chunk, per_line)
            moved = PATTERNS[self.swizzle_bytes](line, within)
            return (box * count + line) * self.swizzle_bytes + moved * 16
        across = self.lines.nbytes // count // 16
        core = chunk * (count // 8) + line // 8 if self.rows_first else line // 8 * across + chunk
        return core * 128 + line % 8 * 16

    def descriptor(self, k_byte: int = 0, *, row: int = 0) -> int:
        """The 64 bits for the rows from `row` on and the instruction's K from byte `k_byte` of a K-major row on.

        Of an operand that is not K-major, `k_byte` counts 2 bytes for each k, too.
        """
        item, lines = self.matrix.itemsize, len(self.lines)
        across = self.lines.nbytes // lines // 16
        line, chunk = (row, k_byte // 16) if self.k_major else (k_byte // item, row * item // 16)
        lead, stride = 16, 8 * self.swizzle_bytes
        if self.swizzle_bytes:
            per_line = self.swizzle_bytes // 16
            start = (chunk // per_line * lines + line) * self.swizzle_bytes + chunk % per_line * 16
            if not self.k_major:
                lead = lines * self.swizzle_bytes
        else:
            next_chunk, next_lines = (lines * 16, 128) if self.rows_first else (128, across * 128)
            start = line // 8 * next_lines + chunk * next_chunk
            lead, stride = (next_chunk, next_lines) if self.k_major else (next_lines, next_chunk)
        return descriptor(SMEM_BASE + self.at + start, lead, stride, self.swizzle_bytes)


def descriptor(start: int, lead: int, stride: int, swizzle_bytes: int, base_offset: int = 0) -> int:
    """The 64 bits of a matrix descriptor (PTX ISA, "Matrix Descriptor Format")."""
    code = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle_bytes]
    return (start >> 4 & 0x3FFF) | lead >> 4 << 16 | stride >> 4 << 32 | base_offset << 49 | code << 62


def image_of(*tiles: Tile, size_bytes: int = SMEM_BYTES) -> Array:
    """Shared memory with the tiles, and a NaN of every format elsewhere."""
    image = np.full(size_bytes, 0xFF, np.uint8)
    for tile in tiles:
        tile.write(image)
    return image


FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
PROXY_FENCE = "fence.proxy.async.shared::cta;"


def wait(groups: int = 0) -> str:
    """`wgmma.wait_group`."""
    return f"wgmma.wait_group.sync.aligned {groups};"


FILL = """
    shl.b32 %r2, %r0, 4; add.s32 %r3, %r2, %r63; cvt.u64.u32 %rd4, %r2; add.s64 %rd4, %rd0, %rd4;
    mov.u32 %r4, 0;
MORE:
    ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd4];
    st.shared.v4.b32 [%r3], {%r5, %r6, %r7, %r8};
    add.s32 %r3, %r3, %r9; cvt.u64.u32 %rd5, %r9; add.s64 %rd4, %rd4, %rd5;
    add.s32 %r4, %r4, %r9; add.s32 %r10, %r4, %r2; setp.lt.u32 %p1, %r10, BYTES; @%p1 bra MORE;
"""
"""All threads write the image to shared memory."""


def accumulators(count: int, first: int = 0) -> str:
    """A list of registers."""
    return ", ".join(f"%d{first + i}" for i in range(count))


def zero(count: int) -> str:
    """Clears accumulators."""
    return " ".join(f"mov.b32 %d{i}, 0;" for i in range(count))


def mma(
    shape: str,
    types: str,
    count: int,
    a: int | str,
    b: int | str,
    rest: str,
    *,
    adds: str = "%p0",
    first: int = 0,
) -> str:
    """One `wgmma.mma_async`; `a` and `b` are descriptors, or operands as they are written."""
    operand_a = a if isinstance(a, str) else "%da"
    operand_b = b if isinstance(b, str) else "%db"
    moves = "" if isinstance(a, str) else f"mov.b64 %da, {a};"
    moves += "" if isinstance(b, str) else f"mov.b64 %db, {b};"
    opcode = f"wgmma.mma_async.sync.aligned.{shape}.{types}"
    return f"{moves} {opcode} {{{accumulators(count, first)}}}, {operand_a}, {operand_b}, {adds}{rest};\n"


def dump(count: int) -> str:
    """Each thread writes its accumulators to `out`."""
    stores = " ".join(f"st.global.b32 [%rd7+{4 * i}], %d{i};" for i in range(count))
    return f"mul.lo.u32 %r11, %r0, {4 * count}; cvt.u64.u32 %rd7, %r11; add.s64 %rd7, %rd1, %rd7; {stores}"


def kernel(
    body: str,
    *,
    fill: str = FILL + PROXY_FENCE + "bar.sync 0;",
    registers: int = 256,
    before: str = "",
    size_bytes: int = SMEM_BYTES,
    parameters: str = "",
) -> str:
    """An entry `k` of (image, out) around `body`; %r0 is the thread, %r1 its warp, %r63 shared memory, %p0 is true."""
    return f"""
.version 8.6
.target sm_90a
.address_size 64
{before}
.visible .entry k(.param .u64 image, .param .u64 out{parameters})
{{
    .shared .align 1024 .b8 smem[{size_bytes}];
    .reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>, %da, %db; .reg .b32 %d<{registers}>;
    ld.param.u64 %rd0, [image]; ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r9, %ntid.x; shl.b32 %r9, %r9, 4;
    setp.eq.b32 %p0, %r0, %r0; mov.u32 %r63, smem;
    {fill.replace("BYTES", str(size_bytes))}
    {body}
    ret;
}}
"""


def launch(text: str, image: Array, count: int, *, block: int = 128, **options: Any) -> tuple[Array, LaunchReport]:
    """(accumulators (threads, count), report) of one CTA."""
    out = np.full((block, count), 0xABABABAB, np.uint32)
    report = Program.parse(text).launch("k", grid=1, block=block, args=[image, out], **options)
    return out, report


def matrix_of(registers: Array, columns: int, dtype: Any) -> Array:
    """(128, registers) of one warpgroup -> (64, columns), by the accumulator figure of the PTX ISA."""
    result = np.zeros((64, columns), np.float64)
    values = registers.view(dtype)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(columns // 2):
            row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
            column = 8 * (i // 4) + 2 * (lane % 4) + i % 2
            result[row, column] = values[thread, i]
    return result
