"""Rows of kernels with `tcgen05`: products with block factors, A in tensor memory, loads and stores by shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tcgen05_kernels import HEAD_BYTES, K_OF_STEP, UNWRITTEN, Product, kernel, parsed
from tcgen05_operands import Array, Idesc

from cutegen.ptx import LaunchReport

ATOM_BYTES = 512
"""Factors of 128 rows, 4 each (CuTe, `BlockScaledBasicChunk`)."""
_SCALES = {"ue8m0": {126: 0.5, 127: 1.0, 128: 2.0, 129: 4.0}, "ue4m3": {0x30: 0.5, 0x38: 1.0, 0x40: 2.0, 0x44: 3.0}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled(Product):
    """A product with `blocks` factors per row and step, which `tcgen05.cp` brings to tensor memory."""

    factors: str = "ue8m0"
    blocks: int = 1

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{Product.name.fget(self)}-{self.factors}-{self.blocks}"  # type: ignore[attr-defined]

    @property
    def atoms(self) -> int:
        """Atoms along K."""
        return -(-self.blocks * self.steps // 4)

    @property
    def halves(self) -> bool:
        """Whether B's factors are split between the halves of the lanes."""
        return self.ctas == 2 and self.m == 128

    @property
    def allocated(self) -> int:
        """Columns of tensor memory: D, then A's factors, then B's."""
        return max(32, 1 << (self.first_factor + self.atoms * (4 + self.b_columns) - 1).bit_length())

    @property
    def first_factor(self) -> int:
        """The column of the first factor."""
        return -(-self.columns // 32) * 32

    @property
    def b_columns(self) -> int:
        """Columns of B's factors of one atom along K."""
        return 4 if self.halves else 4 * -(-self.n // 128)

    def codes(self) -> tuple[Array, Array]:
        """The factors' codes (rows, blocks) of A and B."""
        rng = np.random.default_rng(self.seed + 1)
        codes = list(_SCALES[self.factors])
        return tuple(rng.choice(codes, (rows, self.blocks * self.steps)) for rows in (self.m, self.n))  # type: ignore[return-value]

    def expected(self) -> Array:
        """The product (m, n) of the scaled operands in float64."""
        width = K_OF_STEP[self.kind] // self.blocks
        scaled = []
        for values, codes, negated in zip(self.operands(), self.codes(), self.negated, strict=True):
            factors = np.vectorize(lambda code: _SCALES[self.factors][code], otypes=[np.float64])(codes)
            scaled.append((-1) ** negated * values * np.repeat(factors, width, axis=1))
        return scaled[0] @ scaled[1].T

    def image(self) -> Array:
        """The operands, A's atoms and B's atoms of each CTA."""
        operands = Product.image(self)
        return np.concatenate([operands, np.stack([self._atoms(rank) for rank in range(self.ctas)])], axis=1)

    def _atoms(self, rank: int) -> Array:
        a, b = self.codes()
        rows = self.m // self.ctas
        parts = [a[rank * rows : rank * rows + rows]]
        parts += np.split(b, 2) if self.halves else [b[i : i + 128] for i in range(0, self.n, 128)]
        found = np.full((len(parts), self.atoms, ATOM_BYTES), 0xFF, np.uint8)
        for index, part in enumerate(parts):
            for row in range(len(part)):
                for k in range(part.shape[1]):
                    found[index, k // 4, row % 32 * 16 + row // 32 * 4 + k % 4] = part[row, k]
        if self.halves:  # one copy takes the atoms of both halves
            found[1:] = found[1:].transpose(1, 0, 2).reshape(2, self.atoms, ATOM_BYTES)
        return found.reshape(-1)

    def idesc(self, ids: tuple[int, int] = (0, 0)) -> int:
        """The instruction descriptor."""
        return Idesc(
            kind=self.kind, m=self.m, n=self.n, a=self.a, b=self.b, d=self.d, factors=self.factors, ids=ids,
            negated=self.negated, mn_major=(not self.k_major[0], not self.k_major[1]),
        ).bits()  # fmt: skip

    def text(self) -> str:
        """The PTX."""
        steps = "".join(self._step(step) for step in range(self.steps))
        return kernel(self, self.copies() + steps)

    def copies(self) -> str:
        """The copies of all factors."""
        text, at = "// factors\n", HEAD_BYTES + Product.image(self).shape[1]
        tails = range(-(-self.n // 128)) if not self.halves else range(2)
        for part in range(1 + len(tails)):
            for atom in range(self.atoms):
                if part == 0:
                    column, shape = self.first_factor + 4 * atom, "32x128b.warpx4"
                    first = at + atom * ATOM_BYTES
                elif self.halves:
                    column, shape = self.first_factor + 4 * (self.atoms + atom), "64x128b.warpx2::01_23"
                    first = at + (self.atoms + 2 * atom) * ATOM_BYTES
                    if part == 2:
                        continue
                else:
                    column = self.first_factor + 4 * self.atoms + atom * self.b_columns + 4 * (part - 1)
                    first, shape = at + (part * self.atoms + atom) * ATOM_BYTES, "32x128b.warpx4"
                text += (
                    f"    add.u32 %r40, %r63, {first}; shr.u32 %r40, %r40, 4; and.b32 %r40, %r40, 0x3FFF;"
                    f" cvt.u64.u32 %rd12, %r40; or.b64 %rd12, %rd12, {8 << 32 | 1 << 46:#x};"
                    f" add.u32 %r41, %r20, {column};\n"
                    f"    @%p1 tcgen05.cp.cta_group::{self.ctas}.{shape} [%r41], %rd12;\n"
                )
        return text

    def _step(self, step: int) -> str:
        plain = Product._step(self, step)
        block = self.blocks * step
        ids = (block % 4, block % 4)
        a = self.first_factor + block // 4 * 4
        b = self.first_factor + self.atoms * 4 + block // 4 * self.b_columns
        size = {1: ".block32", 2: ".block32", 4: ".block16"}[self.blocks] if self.kind != "mxf4" else ""
        old = f"kind::{self.kind} [%r20], %rd10, %rd11, {self.idesc():#x},"
        new = f"kind::{self.kind}.block_scale{size} [%r20], %rd10, %rd11, {self.idesc(ids):#x}, [%r42], [%r43],"
        assert old in plain
        return f"    add.u32 %r42, %r20, {a}; add.u32 %r43, %r20, {b};\n" + plain.replace(old, new)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTensorMemory(Product):
    """A product whose A the threads store to tensor memory: one row in each lane, behind D."""

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{Product.name.fget(self)}-a-in-tensor-memory"  # type: ignore[attr-defined]

    @property
    def allocated(self) -> int:
        """Columns of D and of A."""
        return max(32, 1 << (self.columns + 8 * self.steps - 1).bit_length())

    def text(self) -> str:
        """The PTX."""
        tile = self.tiles()[0][0]
        assert tile.swizzle == 0, "a row's chunks are read by address"
        stores = "// operands\n    shl.b32 %r24, %r1, 21; add.u32 %r24, %r24, %r20;\n"
        across = tile.matrix.nbytes // len(tile.matrix) // 16
        rows = len(tile.matrix)
        if self.m == 64:  # layout F: 16 rows in each quarter
            stores += "    shl.b32 %r30, %r1, 4; and.b32 %r31, %r0, 15; or.b32 %r30, %r30, %r31;\n"
        else:
            stores += f"    and.b32 %r30, %r0, {rows - 1};\n"
        stores += "    shr.u32 %r31, %r30, 3; and.b32 %r32, %r30, 7;\n"
        stores += f"    mul.lo.u32 %r31, %r31, {across * 128};\n"
        stores += "    shl.b32 %r32, %r32, 4; add.u32 %r31, %r31, %r32; add.u32 %r31, %r31, %r63;\n"
        for step in range(self.steps):
            for half in range(2):
                names = ", ".join(f"%d{4 * half + i}" for i in range(4))
                stores += f"    ld.shared.v4.b32 {{{names}}}, [%r31+{HEAD_BYTES + (2 * step + half) * 128}];\n"
            names = ", ".join(f"%d{i}" for i in range(8))
            stores += f"    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r24+{self.columns + 8 * step}], {{{names}}};\n"
        meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if self.ctas == 2 else "bar.sync 0;"
        stores += "    tcgen05.wait::st.sync.aligned;\n    tcgen05.fence::before_thread_sync;\n"
        stores += f"    {meet}\n    tcgen05.fence::after_thread_sync;\n"
        return kernel(self, stores + "".join(self._step(step) for step in range(self.steps)))

    def _step(self, step: int) -> str:
        plain = Product._step(self, step)
        return f"    add.u32 %r44, %r20, {self.columns + 8 * step};\n" + plain.replace(
            "%rd10, %rd11,", "[%r44], %rd11,"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked(Product):
    """A product whose steps after the first leave lanes `first` to `last` of D as they are."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{Product.name.fget(self)}-without-{self.first}-{self.last}"  # type: ignore[attr-defined]

    def expected(self) -> Array:
        """The product of the first step alone in those lanes; the lanes of a pair count on."""
        depth = K_OF_STEP[self.kind]
        found, (a, b) = Product.expected(self), self.operands()
        found[self.first : self.last + 1] = a[self.first : self.last + 1, :depth] @ b[:, :depth].T
        return found

    def _step(self, step: int) -> str:
        plain, idesc = Product._step(self, step), f"{self.idesc():#x},"
        if step == 0:
            return plain
        mask = sum(1 << lane for lane in range(self.first, self.last + 1))
        words = [mask >> 32 * i & 0xFFFFFFFF for i in range(4 * self.ctas)]
        moves = " ".join(f"mov.b32 %d{i}, {word:#x};" for i, word in enumerate(words))
        names = ", ".join(f"%d{i}" for i in range(len(words)))
        return f"    {moves}\n" + plain.replace(idesc, f"{idesc} {{{names}}},")


# Lane and column of register r of lane l, by shape: the figures of the PTX ISA as CuTe's copy traits state them.
SHAPES = {
    "32x32b": (1, lambda lane, r: (lane, r)),
    "16x64b": (1, lambda lane, r: (8 * (lane % 2) + lane // 4, 2 * r + lane // 2 % 2)),
    "16x128b": (2, lambda lane, r: (lane // 4 + 8 * (r % 2), 4 * (r // 2) + lane % 4)),
    "16x256b": (4, lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * (lane % 4) + r % 2)),
    "16x32bx2": (1, lambda lane, r: (lane % 16, r + (lane >= 16) * 8)),
}
_ROUND_TRIP = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 out)
{
    .shared .align 16 .b8 smem[16];
    .reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .b32 %d<128>;
    ld.param.u64 %rd0, [words]; ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r63, smem; setp.eq.u32 %p2, %r1, 0;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r63], 64;
    bar.sync 0;
    ld.shared.b32 %r20, [%r63]; shl.b32 %r24, %r1, 21; add.u32 %r24, %r24, %r20;
    mul.lo.u32 %r21, %r0, 256; cvt.u64.u32 %rd7, %r21; add.s64 %rd8, %rd0, %rd7; add.s64 %rd7, %rd1, %rd7;
    BODY
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 64;
    ret;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """Each thread's words are stored by one shape and loaded by another: 32x32b is one of them."""

    shape: str
    times: int
    stores: bool
    packed: bool = False

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{'st' if self.stores else 'ld'}-{self.shape}-x{self.times}" + "-packed" * self.packed

    @property
    def registers(self) -> int:
        """Registers of the shape's access."""
        return SHAPES[self.shape][0] * self.times

    def _access(self, name: str, shape: str, times: int, lane: int, first: int, *, packed: bool) -> str:
        count = SHAPES[shape][0] * times
        names = ", ".join(f"%d{first + i}" for i in range(count))
        pack = {"ld": ".pack::16b", "st": ".unpack::16b"}[name] if packed else ""
        opcode = f"tcgen05.{name}.sync.aligned.{shape}.x{times}{pack}.b32"
        second = ", 8" if shape == "16x32bx2" else ""
        address = f"[%r24+{lane << 16}]{second}"
        return f"    {opcode} " + (f"{{{names}}}, {address};\n" if name == "ld" else f"{address}, {{{names}}};\n")

    def text(self) -> str:
        """The PTX."""
        lanes = (0,) if self.shape == "32x32b" else (0, 16)
        count = self.registers * len(lanes)

        def shaped(name: str) -> str:
            return "".join(
                self._access(name, self.shape, self.times, lane, i * self.registers, packed=self.packed)
                for i, lane in enumerate(lanes)
            )

        def plain(name: str) -> str:
            return self._access(name, "32x32b", 64, 0, 0, packed=False)

        read = "".join(f"    ld.global.b32 %d{i}, [%rd8+{4 * i}];\n" for i in range(64))
        clear = "".join(f"    mov.b32 %d{i}, 0;\n" for i in range(64))
        write = "".join(f"    st.global.b32 [%rd7+{4 * i}], %d{i};\n" for i in range(64 if self.stores else count))
        wait = "    tcgen05.wait::{}.sync.aligned;\n"
        if self.stores:
            body = clear + plain("st") + wait.format("st") + read + shaped("st") + wait.format("st")
            body += plain("ld") + wait.format("ld") + write
        else:
            body = read + plain("st") + wait.format("st") + shaped("ld") + wait.format("ld") + write
        return _ROUND_TRIP.replace("BODY", body)

    def words(self) -> Array:
        """(128, 64) words, all different."""
        return np.random.default_rng(3).permutation(128 * 64 * 4)[: 128 * 64].astype(np.uint32).reshape(128, 64) * 77

    def launch(self, text: str | None = None, **options: Any) -> tuple[Array, LaunchReport]:
        """(out, report)."""
        out = np.full((128, 64), UNWRITTEN, np.uint32)
        program = parsed(self.text() if text is None else text)
        return out, program.launch("k", grid=1, block=128, args=[self.words().reshape(-1), out.reshape(-1)], **options)

    def error(self, out: Array) -> float:
        """How many words are not where they belong."""
        given, expected = self.words(), np.zeros((128, 64), np.uint32)
        lanes = (0,) if self.shape == "32x32b" else (0, 16)
        if not self.stores:
            expected = np.full((128, 64), UNWRITTEN, np.uint32)
        for thread in range(128):
            for part, first in enumerate(lanes):
                for r in range(self.registers):
                    lane, column = SHAPES[self.shape][1](thread % 32, r)
                    lane, register = thread // 32 * 32 + first + lane, part * self.registers + r
                    if self.stores and self.packed:
                        expected[lane, 2 * column] = given[thread, register] & 0xFFFF
                        expected[lane, 2 * column + 1] = given[thread, register] >> 16
                    elif self.stores:
                        expected[lane, column] = given[thread, register]
                    elif self.packed:
                        low, high = given[lane, 2 * column] & 0xFFFF, given[lane, 2 * column + 1] & 0xFFFF
                        expected[thread, register] = low | high << 16
                    else:
                        expected[thread, register] = given[lane, column]
        return float(np.count_nonzero(out != expected))


def scaled() -> Iterator[Scaled]:
    """Every kind with factors, both groups, the split factors of a pair with M = 128."""
    for ctas, m, n in ((1, 128, 64), (1, 128, 192), (2, 256, 64), (2, 128, 64), (2, 256, 256)):
        yield Scaled(kind="mxf8f6f4", m=m, n=n, a="e4m3", b="e4m3", ctas=ctas)
    yield Scaled(kind="mxf8f6f4", m=128, n=32, a="e2m1", b="e5m2")
    yield Scaled(kind="mxf8f6f4", m=128, n=32, a="e3m2", b="e2m3", negated=(False, True))
    yield Scaled(kind="mxf4", m=128, n=64, a="e2m1", b="e2m1", blocks=2)
    yield Scaled(kind="mxf4nvf4", m=128, n=64, a="e2m1", b="e2m1", blocks=2)
    for ctas, m, n in ((1, 128, 64), (2, 256, 128), (2, 128, 128)):
        yield Scaled(kind="mxf4nvf4", m=m, n=n, a="e2m1", b="e2m1", blocks=4, factors="ue4m3", ctas=ctas)
    yield Scaled(kind="mxf4nvf4", m=128, n=16, a="e2m1", b="e2m1", blocks=4, factors="ue8m0")


def from_tensor_memory() -> Iterator[FromTensorMemory]:
    """A in tensor memory: its widths, both groups."""
    swizzles = (0, 128)
    yield FromTensorMemory(kind="f16", m=128, n=64, a="f16", b="f16", swizzles=swizzles)
    yield FromTensorMemory(kind="tf32", m=128, n=32, a="tf32", b="tf32", swizzles=swizzles)
    yield FromTensorMemory(kind="f8f6f4", m=128, n=32, a="e4m3", b="e5m2", swizzles=swizzles)
    yield FromTensorMemory(kind="i8", m=128, n=32, a="s8", b="s8", d="s32", swizzles=swizzles)
    yield FromTensorMemory(kind="f16", m=64, n=32, a="f16", b="f16", swizzles=swizzles)
    yield FromTensorMemory(kind="f16", m=256, n=64, a="bf16", b="bf16", swizzles=swizzles, ctas=2)
    yield FromTensorMemory(kind="f16", m=128, n=64, a="f16", b="f16", swizzles=swizzles, ctas=2)


def masked() -> Iterator[Masked]:
    """Disabled lanes, of one CTA and of a pair."""
    yield Masked(kind="f16", m=128, n=32, a="f16", b="f16", first=40, last=70)
    yield Masked(kind="f16", m=256, n=32, a="f16", b="f16", ctas=2, first=100, last=140)


def round_trips() -> Iterator[RoundTrip]:
    """Loads and stores of every shape, packed and not."""
    for stores in (False, True):
        for shape, times in (("32x32b", 32), ("16x64b", 16), ("16x128b", 8), ("16x256b", 4), ("16x32bx2", 8)):
            yield RoundTrip(shape=shape, times=times, stores=stores)
        for shape, times in (("32x32b", 32), ("16x64b", 8), ("16x128b", 8), ("16x256b", 4), ("16x32bx2", 8)):
            yield RoundTrip(shape=shape, times=times, stores=stores, packed=True)


RIGHT = (*scaled(), *from_tensor_memory(), *masked(), *round_trips())
