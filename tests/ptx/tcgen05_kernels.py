"""Kernels with `tcgen05` as rows: what each multiplies, its PTX, its launch, and the product that it must give.

Every kernel takes an image of each CTA's shared memory and writes its tensor memory to `out`: (CTAs, 128, columns)
words. A row has a `name`, its `text()`, `launch(text)` and the `error` of what that wrote. `RIGHT` lists them;
`tcgen05_wrong.py` lists changes of their texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from tcgen05_operands import Array, Idesc, Tile, codes_of, stored, values_of

from cutegen.ptx import LaunchReport, Program

HEAD_BYTES = 1024
"""Bytes before the image: the mbarrier at 0, the address of tensor memory at 16."""
UNWRITTEN = 0xABABABAB
K_OF_STEP = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


@lru_cache(maxsize=4)
def parsed(text: str) -> Program:
    """The program, which launches of one text in several orders share."""
    return Program.parse(text)


class Kernel(Protocol):
    """A right kernel."""

    @property
    def name(self) -> str:
        """A short name for the test."""

    def text(self) -> str:
        """The PTX."""

    def launch(self, text: str | None = None, **options: Any) -> tuple[Array, LaunchReport]:
        """(what it wrote, report) of the kernel, or of another `text` in its place."""

    def error(self, out: Array) -> float:
        """How far `out` is from what it must write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A @ B.T of `steps` instructions of `kind`, by `ctas` CTAs that multiply together.

    `swizzles` and `k_major` of A and B. `accumulates`: D begins with what a first product left there.
    """

    kind: str
    m: int
    n: int
    a: str
    b: str
    d: str = "f32"
    ctas: int = 1
    steps: int = 4
    swizzles: tuple[int | str, int | str] = (128, 128)
    k_major: tuple[bool, bool] = (True, True)
    negated: tuple[bool, bool] = (False, False)
    saturates: bool = False
    lane: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """A short name for the test."""
        majors = "".join("k" if major else "m" for major in self.k_major)
        swizzles = "-".join(str(each).replace("/", "by") for each in self.swizzles)
        return f"{self.kind}-{self.m}x{self.n}-{self.a}-{self.b}-{self.d}-{self.ctas}cta-{majors}-{swizzles}" + (
            "-negated" * any(self.negated) + "-saturates" * self.saturates + f"-lane{self.lane}" * (self.lane > 0)
        )

    @property
    def columns(self) -> int:
        """Columns that D takes."""
        return self.n // 2 if self.ctas == 2 and self.m == 128 else self.n

    @property
    def allocated(self) -> int:
        """Columns of tensor memory that the kernel allocates."""
        return max(32, 1 << (self.columns - 1).bit_length())

    def operands(self) -> tuple[Array, Array]:
        """The values (m, K) and (n, K)."""
        rng, depth = np.random.default_rng(self.seed), K_OF_STEP[self.kind] * self.steps
        return values_of(self.a, (self.m, depth), rng), values_of(self.b, (self.n, depth), rng)

    def expected(self) -> Array:
        """The product (m, n) in float64."""
        a, b = self.operands()
        return (a * (-1) ** self.negated[0]) @ (b * (-1) ** self.negated[1]).T

    def tiles(self) -> list[tuple[Tile, Tile]]:
        """A's and B's part of each CTA."""
        found = []
        for rank in range(self.ctas):
            pair, at = [], 0
            for index, (name, values) in enumerate(zip((self.a, self.b), self.operands(), strict=True)):
                rows = len(values) // self.ctas
                part = codes_of(name, values[rank * rows : rank * rows + rows])
                matrix = stored(name, part, packed=self.kind in ("mxf4", "mxf4nvf4"))
                tile = Tile(matrix=matrix, swizzle=self.swizzles[index], k_major=self.k_major[index], at=at)
                at += -(-tile.size_bytes // 1024) * 1024
                pair.append(tile)
            found.append((pair[0], pair[1]))
        return found

    def image(self) -> Array:
        """(CTAs, bytes) of shared memory after the head; a NaN of every format where no operand is."""
        size = sum(-(-tile.size_bytes // 1024) * 1024 for tile in self.tiles()[0])
        image = np.full((self.ctas, size), 0xFF, np.uint8)
        for rank, pair in enumerate(self.tiles()):
            for tile in pair:
                tile.write(image[rank])
        return image

    def idesc(self) -> int:
        """The instruction descriptor."""
        return Idesc(
            kind=self.kind,
            m=self.m,
            n=self.n,
            a=self.a,
            b=self.b,
            d=self.d,
            mn_major=(not self.k_major[0], not self.k_major[1]),
            negated=self.negated,
            saturates=self.saturates,
        ).bits()

    def text(self) -> str:
        """The PTX."""
        return kernel(self, "".join(self._step(step) for step in range(self.steps)))

    def _step(self, step: int) -> str:
        pair = self.tiles()[0]
        a, b = (descriptor(tile.descriptor(step), name) for tile, name in zip(pair, ("%rd10", "%rd11"), strict=True))
        p = "%p7" if step == 0 else "%p0"
        opcode = f"tcgen05.mma.cta_group::{self.ctas}.kind::{self.kind}"
        return f"    {a}\n    {b}\n    @%p1 {opcode} [%r20], %rd10, %rd11, {self.idesc():#x}, {p};\n"

    def launch(self, text: str | None = None, **options: Any) -> tuple[Array, LaunchReport]:
        """(out, report) of the kernel, or of another `text` in its place."""
        words = self.columns // (2 if self.m == 64 else 1)
        out = np.full((self.ctas, 128, words), UNWRITTEN, np.uint32)
        image = self.image()
        report = parsed(self.text() if text is None else text).launch(
            "k",
            grid=self.ctas,
            block=128,
            args=[image.reshape(-1), out.reshape(-1)],
            dynamic_smem_bytes=HEAD_BYTES + image.shape[1],
            **options,
        )
        return out, report

    def error(self, out: Array) -> float:
        """The largest difference from the product; infinite where there are NaNs."""
        found = matrix_of(self, out)
        return float(np.nan_to_num(np.abs(found - self.expected()), nan=np.inf).max())


def descriptor(fields: tuple[int, int], register: str) -> str:
    """Computes a descriptor from shared memory's address, %r63."""
    first, rest = fields
    return (
        f"add.u32 %r40, %r63, {HEAD_BYTES + first}; shr.u32 %r40, %r40, 4; and.b32 %r40, %r40, 0x3FFF;"
        f" cvt.u64.u32 {register}, %r40; or.b64 {register}, {register}, {rest:#x};"
    )


def dump(product: Product) -> str:
    """Each warp writes the words of its quarter to `out`, as (CTAs, 128, columns)."""
    shape, per = ("16x64b", 2) if product.m == 64 else ("32x32b", 1)
    text, column = "", 0
    while column < product.columns:
        count = min(32, product.columns - column)
        count = 1 << (count.bit_length() - 1)
        registers = count // per
        names = ", ".join(f"%d{i}" for i in range(registers))
        text += f"    tcgen05.ld.sync.aligned.{shape}.x{registers}.b32 {{{names}}}, [%r24+{column}];\n"
        text += "    tcgen05.wait::ld.sync.aligned;\n"
        text += "".join(f"    st.global.b32 [%rd7+{4 * (column // per + i)}], %d{i};\n" for i in range(registers))
        column += count
    return text


def matrix_of(product: Product, out: Array) -> Array:
    """(CTAs, 128 threads, words) -> (m, n), by the data paths and the shapes of loads of the PTX ISA."""
    kinds = {"f32": np.float32, "s32": np.int32}
    words = out if product.d == "f16" else out.view(kinds[product.d])
    found = np.full((product.m, product.n), np.nan)
    rows = product.m // product.ctas
    for m in range(product.m):
        rank, row = divmod(m, rows)
        for n in range(product.n):
            if product.m == 64:  # layout F, through .16x64b
                quarter, lane = divmod(row, 16)
                thread = next(t for t in range(32) if 8 * (t % 2) + t // 4 == lane and t // 2 % 2 == n % 2)
                word = words[rank, 32 * quarter + thread, n // 2]
            elif rows == 64:  # layout B
                word = words[rank, row + 64 * (n // (product.n // 2)), n % (product.n // 2)]
            else:
                word = words[rank, row, n]
            found[m, n] = np.uint16(word & 0xFFFF).view(np.float16) if product.d == "f16" else word
    return found


def kernel(product: Product, multiply: str) -> str:
    """An entry `k` of (image, out) around `multiply`.

    %r0 is the thread, %r1 its warp, %r2 the CTA's rank, %r63 shared memory, %r20 the address of D; %p0 is true, %p1 in
    the thread that multiplies, %p7 false.
    """
    group, size = product.ctas, product.image().shape[1]
    g, words = f"cta_group::{group}", product.columns // (2 if product.m == 64 else 1)
    cluster = group == 2
    target = ".multicast::cluster.b64 [%r63], %rs1" if cluster else ".b64 [%r63]"
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if cluster else "bar.sync 0;"
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 image, .param .u64 out)
{".reqnctapercluster 2, 1, 1" if cluster else ""}
{{
    .reg .pred %p<8>; .reg .b16 %rs<4>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .b32 %d<128>;
    ld.param.u64 %rd0, [image]; ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, %cluster_ctarank; mov.u32 %r9, 2048;
    setp.eq.b32 %p0, %r0, %r0; setp.ne.b32 %p7, %r0, %r0; mov.u32 %r63, smem; mov.b16 %rs1, 3;
    or.b32 %r3, %r0, %r2; setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r0, 0;
// fill
    mul.lo.u32 %r4, %r2, {size}; cvt.u64.u32 %rd2, %r4; add.s64 %rd0, %rd0, %rd2;
    shl.b32 %r5, %r0, 4; cvt.u64.u32 %rd3, %r5; add.s64 %rd3, %rd0, %rd3; add.u32 %r6, %r63, %r5; mov.u32 %r7, %r5;
MORE:
    setp.ge.u32 %p4, %r7, {size}; @%p4 bra FILLED;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd3];
    st.shared.v4.b32 [%r6+{HEAD_BYTES}], {{%r10, %r11, %r12, %r13}};
    add.u32 %r6, %r6, %r9; add.u32 %r7, %r7, %r9; add.s64 %rd3, %rd3, 2048; bra MORE;
FILLED:
    fence.proxy.async.shared::cta;
// init
    @%p3 mbarrier.init.shared.b64 [%r63], 1;
    @%p3 fence.mbarrier_init.release.cluster;
    {meet}
// alloc
    @!%p2 bra ALLOCATED;
    tcgen05.alloc.{g}.sync.aligned.shared::cta.b32 [%r63+16], {product.allocated};
    tcgen05.relinquish_alloc_permit.{g}.sync.aligned;
ALLOCATED:
    {meet}
    ld.shared.b32 %r20, [%r63+16]; add.u32 %r20, %r20, {product.lane << 16};
// multiply
{multiply}
// commit
    @%p1 tcgen05.commit.{g}.mbarrier::arrive::one.shared::cluster{target};
// wait
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r63], 0; @!%p5 bra WAIT;
    tcgen05.fence::after_thread_sync;
// store
    shl.b32 %r21, %r2, 7; add.u32 %r21, %r21, %r0; mul.lo.u32 %r21, %r21, {4 * words};
    cvt.u64.u32 %rd7, %r21; add.s64 %rd7, %rd1, %rd7;
    shl.b32 %r24, %r1, 21; add.u32 %r24, %r24, %r20;
{dump(product)}
// free
    tcgen05.fence::before_thread_sync;
    {meet}
    tcgen05.fence::after_thread_sync;
    ld.shared.b32 %r20, [%r63+16];
    @%p2 tcgen05.dealloc.{g}.sync.aligned.b32 %r20, {product.allocated};
    {meet if cluster else ""}
    ret;
}}
"""


def products() -> Iterator[Product]:
    """Every kind, both groups, every layout of D, both majors, every swizzle."""
    for ctas, m, n in ((1, 128, 64), (1, 64, 32), (2, 128, 64), (2, 256, 48), (1, 128, 8), (1, 64, 256)):
        yield Product(kind="f16", m=m, n=n, a="f16", b="f16", ctas=ctas)
    yield Product(kind="f16", m=128, n=256, a="bf16", b="bf16", ctas=2)
    yield Product(kind="f16", m=128, n=64, a="f16", b="f16", d="f16")
    yield Product(kind="f16", m=64, n=32, a="f16", b="f16", lane=16)
    yield Product(kind="f16", m=128, n=64, a="f16", b="bf16", negated=(True, False))
    yield Product(kind="f16", m=128, n=64, a="f16", b="f16", negated=(True, True), ctas=2)
    for k_major in ((False, False), (True, False), (False, True)):
        yield Product(kind="f16", m=128, n=64, a="f16", b="f16", k_major=k_major)
    for swizzles in ((0, 0), (32, 64), (64, 32), (0, 128)):
        yield Product(kind="f16", m=128, n=64, a="f16", b="f16", swizzles=swizzles)
        yield Product(kind="f16", m=128, n=64, a="f16", b="f16", swizzles=swizzles, k_major=(False, False))
    yield Product(kind="f16", m=256, n=128, a="f16", b="f16", k_major=(False, False), ctas=2)
    yield Product(kind="tf32", m=128, n=32, a="tf32", b="tf32")
    yield Product(kind="tf32", m=256, n=64, a="tf32", b="tf32", ctas=2)
    atoms: tuple[str, str] = ("128/32", "128/32")
    yield Product(kind="tf32", m=128, n=32, a="tf32", b="tf32", swizzles=atoms, k_major=(False, False))
    yield Product(kind="tf32", m=128, n=32, a="tf32", b="tf32", swizzles=(64, "128/32"), k_major=(True, False))
    for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e4m3"), ("e2m3", "e3m2"), ("e2m1", "e2m1")):
        yield Product(kind="f8f6f4", m=128, n=32, a=a, b=b)
    yield Product(kind="f8f6f4", m=128, n=128, a="e4m3", b="e5m2", k_major=(False, False))
    yield Product(kind="f8f6f4", m=64, n=16, a="e4m3", b="e4m3", d="f16")
    yield Product(kind="f8f6f4", m=256, n=64, a="e4m3", b="e3m2", ctas=2)
    for a, b in (("s8", "s8"), ("u8", "s8"), ("s8", "u8")):
        yield Product(kind="i8", m=128, n=32, a=a, b=b, d="s32")
    yield Product(kind="i8", m=256, n=64, a="s8", b="s8", d="s32", ctas=2, saturates=True)
    yield Product(kind="i8", m=64, n=24, a="u8", b="u8", d="s32", k_major=(False, True), swizzles=(64, 128))


RIGHT = tuple(products())
