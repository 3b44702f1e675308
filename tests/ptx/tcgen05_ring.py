"""A persistent GEMM with `tcgen05`: a warp that loads, one that multiplies, four that store, joined by mbarriers.

    producer --full, empty (2 stages)--> multiplier --acc_full, acc_empty (2 accumulators)--> 4 storing warps

Each tile of 128 rows has a number of k-tiles of its own, which may be 0: its sums are zeros then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tcgen05_kernels import UNWRITTEN, descriptor, parsed
from tcgen05_operands import Array, Idesc, values_of

from cutegen.ptx import LaunchReport, TensorMap

ROWS, K_TILE, STAGES = 128, 64, 2
FULL, EMPTY, SUMS_FULL, SUMS_EMPTY, ADDRESS, DATA = 0, 16, 32, 48, 64, 1024
_HIGH = 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61
"""K-major rows of 128 bytes, swizzled: the next 8 rows are 1024 bytes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Tiles of `n` columns with `k_tiles` each, in turn by `ctas` CTAs."""

    n: int = 64
    k_tiles: tuple[int, ...] = (3, 2, 4, 1, 3)
    ctas: int = 2

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"ring-{self.n}-{'-'.join(map(str, self.k_tiles))}-{self.ctas}"

    def operands(self) -> tuple[Array, Array]:
        """(rows of all tiles, K) and (n, K)."""
        rng, depth = np.random.default_rng(5), K_TILE * max(self.k_tiles)
        return values_of("f16", (ROWS * len(self.k_tiles), depth), rng), values_of("f16", (self.n, depth), rng)

    def expected(self) -> Array:
        """The product of each tile's own part of K."""
        a, b = self.operands()
        rows = [slice(ROWS * i, ROWS * i + ROWS) for i in range(len(self.k_tiles))]
        parts = [a[part, : K_TILE * k] @ b[:, : K_TILE * k].T for part, k in zip(rows, self.k_tiles, strict=True)]
        return np.concatenate(parts)

    def launch(self, text: str | None = None, **options: Any) -> tuple[Array, LaunchReport]:
        """(out, report)."""
        out = np.full((ROWS * len(self.k_tiles), self.n), UNWRITTEN, np.uint32)
        maps = [self._map(matrix, rows) for matrix, rows in zip(self.operands(), (ROWS, self.n), strict=True)]
        counts = np.array(self.k_tiles, np.int32)
        report = parsed(self.text() if text is None else text).launch(
            "k",
            grid=self.ctas,
            block=192,
            args=[*maps, counts, out.reshape(-1), len(counts)],
            dynamic_smem_bytes=DATA + STAGES * self.stage_bytes,
            **options,
        )
        return out, report

    @staticmethod
    def _map(matrix: Array, rows: int) -> TensorMap:
        array = matrix.astype(np.float16)
        return TensorMap(
            array=array,
            extents=array.shape[::-1],
            strides_bytes=(array.shape[1] * 2,),
            box=(K_TILE, rows),
            swizzle_bytes=128,
        )

    def error(self, out: Array) -> float:
        """The largest difference from the product; infinite where there are NaNs."""
        return float(np.nan_to_num(np.abs(out.view(np.float32) - self.expected()), nan=np.inf).max())

    @property
    def stage_bytes(self) -> int:
        """Bytes of A and of B of a stage."""
        return (ROWS + self.n) * K_TILE * 2

    def text(self) -> str:
        """The PTX: %r0 thread, %r1 warp, %r63 shared memory, %r20 tensor memory; %r2 tile, %r3 k-tile, %r4 count."""
        idesc = Idesc(kind="f16", m=ROWS, n=self.n, a="f16", b="f16", d="f32").bits()
        return f"""
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 counts, .param .u64 out,
                  .param .u32 tiles)
{{
    .reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .b32 %d<256>;
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r63, smem; mov.u32 %r2, %ctaid.x; mov.u32 %r62, %nctaid.x;
    ld.param.u64 %rd0, [counts]; ld.param.u64 %rd1, [out]; ld.param.u32 %r61, [tiles];
    mov.b64 %rd2, a; cvta.param.u64 %rd2, %rd2; mov.b64 %rd3, b; cvta.param.u64 %rd3, %rd3;
    setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r0, 0;
    mov.u32 %r5, 0; mov.u32 %r6, 0;
// init
{"".join(f"    @%p3 mbarrier.init.shared.b64 [%r63+{at}], {n};" + chr(10) for at, n in self._barriers())}
    @%p3 fence.mbarrier_init.release.cluster;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r63+{ADDRESS}], {2 * self.n};
    bar.sync 0;
    ld.shared.b32 %r20, [%r63+{ADDRESS}];
    setp.eq.u32 %p4, %r1, 4; @%p4 bra PRODUCER; setp.eq.u32 %p4, %r1, 5; @%p4 bra MULTIPLIER; bra STORE;
PRODUCER:
    and.b32 %r7, %r0, 31; setp.ne.u32 %p4, %r7, 0; @%p4 bra END;
P_TILE:
    setp.ge.u32 %p4, %r2, %r61; @%p4 bra END;
{self._count()}
    mov.u32 %r3, 0; shl.b32 %r10, %r2, 7;
P_K:
    setp.ge.u32 %p4, %r3, %r4; @%p4 bra P_NEXT;
    and.b32 %r7, %r5, 1; shr.u32 %r8, %r5, 1; and.b32 %r8, %r8, 1; xor.b32 %r8, %r8, 1;
    shl.b32 %r9, %r7, 3; add.u32 %r9, %r9, %r63;
P_WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [%r9+{EMPTY}], %r8; @!%p5 bra P_WAIT;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r9+{FULL}], {self.stage_bytes};
    mul.lo.u32 %r11, %r7, {self.stage_bytes}; add.u32 %r11, %r11, %r63; add.u32 %r11, %r11, {DATA};
    add.u32 %r12, %r11, {ROWS * K_TILE * 2}; shl.b32 %r13, %r3, 6; mov.u32 %r14, 0;
    {self._load("%r11", "%rd2", "%r10")}
    {self._load("%r12", "%rd3", "%r14")}
    add.u32 %r5, %r5, 1; add.u32 %r3, %r3, 1; bra P_K;
P_NEXT:
    add.u32 %r2, %r2, %r62; bra P_TILE;
MULTIPLIER:
    and.b32 %r7, %r0, 31; setp.ne.u32 %p4, %r7, 0; @%p4 bra END;
M_TILE:
    setp.ge.u32 %p4, %r2, %r61; @%p4 bra END;
{self._count()}
{self._sums()}
    xor.b32 %r8, %r8, 1;
M_WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [%r16+{SUMS_EMPTY}], %r8; @!%p5 bra M_WAIT;
    tcgen05.fence::after_thread_sync;
    mov.u32 %r3, 0; setp.ne.b32 %p6, %r0, %r0;
M_K:
    setp.ge.u32 %p4, %r3, %r4; @%p4 bra M_NEXT;
    and.b32 %r7, %r5, 1; shr.u32 %r8, %r5, 1; and.b32 %r8, %r8, 1; shl.b32 %r9, %r7, 3; add.u32 %r9, %r9, %r63;
M_FULL: mbarrier.try_wait.parity.shared.b64 %p5, [%r9+{FULL}], %r8; @!%p5 bra M_FULL;
    tcgen05.fence::after_thread_sync;
    mul.lo.u32 %r11, %r7, {self.stage_bytes}; add.u32 %r11, %r11, %r63;
{"".join(self._step(step, idesc) for step in range(4))}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r9+{EMPTY}];
    add.u32 %r5, %r5, 1; add.u32 %r3, %r3, 1; bra M_K;
M_NEXT:
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r16+{SUMS_FULL}];
    add.u32 %r6, %r6, 1; add.u32 %r2, %r2, %r62; bra M_TILE;
STORE:
    setp.ge.u32 %p4, %r2, %r61; @%p4 bra END;
{self._count()}
{self._sums()}
S_WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [%r16+{SUMS_FULL}], %r8; @!%p5 bra S_WAIT;
    tcgen05.fence::after_thread_sync;
    setp.eq.u32 %p4, %r4, 0; @%p4 bra S_ZERO;
    shl.b32 %r24, %r1, 21; add.u32 %r24, %r24, %r17;
{self._loads()}
    tcgen05.wait::ld.sync.aligned;
    bra S_RELEASE;
S_ZERO:
{"".join(f"    mov.b32 %d{i}, 0;" for i in range(self.n))}
S_RELEASE:
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.shared.b64 _, [%r16+{SUMS_EMPTY}];
    shl.b32 %r21, %r2, 7; add.u32 %r21, %r21, %r0; mul.lo.u32 %r21, %r21, {4 * self.n};
    cvt.u64.u32 %rd7, %r21; add.s64 %rd7, %rd1, %rd7;
{"".join(f"    st.global.b32 [%rd7+{4 * i}], %d{i};" + chr(10) for i in range(self.n))}
    add.u32 %r6, %r6, 1; add.u32 %r2, %r2, %r62; bra STORE;
END:
    bar.warp.sync -1;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, {2 * self.n};
    ret;
}}
"""

    @staticmethod
    def _barriers() -> list[tuple[int, int]]:
        """(place, count of arrivals) of every mbarrier."""
        counts = ((FULL, 1), (EMPTY, 1), (SUMS_FULL, 1), (SUMS_EMPTY, 128))
        return [(at + 8 * i, count) for at, count in counts for i in range(2)]

    @staticmethod
    def _count() -> str:
        """%r4: k-tiles of tile %r2."""
        return "    mul.wide.u32 %rd4, %r2, 4; add.s64 %rd4, %rd0, %rd4; ld.global.b32 %r4, [%rd4];"

    def _sums(self) -> str:
        """%r16: the mbarriers of accumulator %r6 % 2; %r17: its columns; %r8: its parity."""
        return (
            "    and.b32 %r15, %r6, 1; shl.b32 %r16, %r15, 3; add.u32 %r16, %r16, %r63;"
            f" mul.lo.u32 %r17, %r15, {self.n}; add.u32 %r17, %r17, %r20; shr.u32 %r8, %r6, 1; and.b32 %r8, %r8, 1;"
        )

    @staticmethod
    def _load(place: str, tensor: str, row: str) -> str:
        opcode = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        return f"{opcode} [{place}], [{tensor}, {{%r13, {row}}}], [%r9+{FULL}];"

    @staticmethod
    def _step(step: int, idesc: int) -> str:
        text = ""
        for register, first in (("%rd10", 32 * step), ("%rd11", ROWS * K_TILE * 2 + 32 * step)):
            text += "    " + descriptor((first, _HIGH), register).replace("%r63", "%r11") + "\n"
        opcode = f"tcgen05.mma.cta_group::1.kind::f16 [%r17], %rd10, %rd11, {idesc:#x}, %p6;"
        return text + f"    {opcode} setp.eq.b32 %p6, %r0, %r0;\n"

    def _loads(self) -> str:
        text = ""
        for first in range(0, self.n, 32):
            names = ", ".join(f"%d{first + i}" for i in range(32))
            text += f"    tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{names}}}, [%r24+{first}];\n"
        return text


RIGHT = (Ring(), Ring(n=32, k_tiles=(2, 0, 3, 0, 0, 1), ctas=1))
