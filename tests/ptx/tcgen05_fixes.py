"""Kernels in the shape of public fixes, before and after, and one that shifts rows.

* CUTLASS #3643: a pair multiplies, and its leader does not wait for the factors that the other CTA has loaded; the
  other CTA's arrival has the scope of its CTA, although it publishes data (of bulk copies, and of threads).
* QuACK c8ec317: of a pair with M = 128 the sums of a row are in two warps, which write one slot of shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tcgen05_kernels import HEAD_BYTES, UNWRITTEN, Product, parsed
from tcgen05_more import Scaled
from tcgen05_operands import Array
from tcgen05_wrong import CLUSTER, PAIR_COMMIT, K, Wrong, wrong

from cutegen.ptx import LaunchReport

_HAND_OVER = "@%p6 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r44];"
_PEER = "PEER: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r63+24], 0; @!%p5 bra PEER;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Scaled):
    """A pair's product whose operands and factors each CTA loads by a bulk copy; the leader waits for both."""

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{Scaled.name.fget(self)}-loaded"  # type: ignore[attr-defined]

    def text(self) -> str:
        """The PTX."""
        text, size = Scaled.text(self), self.image().shape[1]
        first, last = text.index("// fill"), text.index("// init")
        text = text[:first] + text[last:]
        one = "    @%p3 mbarrier.init.shared.b64 [%r63], 1;\n"
        assert one in text
        text = text.replace(one, one + one.replace("[%r63]", "[%r63+8]") + one.replace("[%r63]", "[%r63+24]"))
        copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        load = f"""// load
    @%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r63+8], {size};
    mul.lo.u32 %r4, %r2, {size}; cvt.u64.u32 %rd2, %r4; add.s64 %rd0, %rd0, %rd2;
    add.u32 %r5, %r63, {HEAD_BYTES}; add.u32 %r6, %r63, 8; add.u32 %r7, %r63, 24;
    @%p3 {copy} [%r5], [%rd0], {size}, [%r6];
OWN: mbarrier.try_wait.parity.shared.b64 %p5, [%r63+8], 0; @!%p5 bra OWN;
    setp.eq.u32 %p6, %r2, 1; and.pred %p6, %p6, %p3; mapa.shared::cluster.u32 %r44, %r7, 0;
    {_HAND_OVER}
    @!%p1 bra HAVE;
{_PEER}
HAVE:
"""
        return text.replace("// multiply\n", load + "// multiply\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed(Loaded):
    """The same, and the threads of each CTA store its operands and factors to shared memory."""

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{Scaled.name.fget(self)}-handed"  # type: ignore[attr-defined]

    def text(self) -> str:
        """The PTX."""
        text, filling = Loaded.text(self), Scaled.text(self)
        filling = filling[filling.index("// fill") : filling.index("// init")]
        first, last = text.index("// load"), text.index("    setp.eq.u32 %p6, %r2, 1;")
        return text[:first] + filling + "    bar.sync 0; add.u32 %r7, %r63, 24;\n" + text[last:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(Product):
    """The product of a pair with M = 128: each warp puts its columns of a row into shared memory before they leave."""

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{Product.name.fget(self)}-staged"  # type: ignore[attr-defined]

    def text(self) -> str:
        """The PTX."""
        text = Product.text(self)
        count = self.columns
        stores = "".join(f"    st.global.b32 [%rd7+{4 * i}], %d{i};\n" for i in range(count))
        assert stores in text
        staged = f"    and.b32 %r50, %r0, 63; mul.lo.u32 %r50, %r50, {8 * count}; add.u32 %r50, %r50, %r63;\n"
        staged += f"    shr.u32 %r51, %r0, 6; mul.lo.u32 %r51, %r51, {4 * count}; add.u32 %r50, %r50, %r51;\n"
        staged += "".join(f"    st.shared.b32 [%r50+{HEAD_BYTES + 4 * i}], %d{i};\n" for i in range(count))
        staged += "    bar.sync 0;\n"
        staged += "".join(f"    ld.shared.b32 %d{i}, [%r50+{HEAD_BYTES + 4 * i}];\n" for i in range(count))
        return text.replace(stores, staged + stores)


_LAST = f"    {CLUSTER}\n    ret;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced(Product):
    """A pair's product whose leader commits once more to both CTAs, and waits for it; the other CTA does not."""

    @property
    def name(self) -> str:
        """A short name for the test."""
        return f"{Product.name.fget(self)}-announced"  # type: ignore[attr-defined]

    def text(self) -> str:
        """The PTX."""
        text, one = Product.text(self), "    @%p3 mbarrier.init.shared.b64 [%r63], 1;\n"
        assert text.count(one) == text.count(_LAST) == 1
        again = f"""    {PAIR_COMMIT.replace("[%r63]", "[%r63+8]")}
    @!%p1 bra TOLD;
HEARD: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r63+8], 0; @!%p5 bra HEARD;
TOLD:
    bar.warp.sync -1;
"""
        return text.replace(one, one + one.replace("[%r63]", "[%r63+8]")).replace(_LAST, again + _LAST)


_SHIFT = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 out)
{
    .shared .align 16 .b8 smem[32];
    .reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .b32 %d<8>;
    ld.param.u64 %rd0, [words]; ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r63, smem; setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r0, 0;
    @%p3 mbarrier.init.shared.b64 [%r63], 1;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r63+16], 32;
    bar.sync 0;
    ld.shared.b32 %r20, [%r63+16]; shl.b32 %r24, %r1, 21; add.u32 %r24, %r24, %r20;
    mul.wide.u32 %rd7, %r0, 32; add.s64 %rd8, %rd0, %rd7; add.s64 %rd7, %rd1, %rd7;
    ld.global.v4.b32 {%d0, %d1, %d2, %d3}, [%rd8]; ld.global.v4.b32 {%d4, %d5, %d6, %d7}, [%rd8+16];
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r24], {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    @%p3 tcgen05.shift.cta_group::1.down [%r20];
    @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r63];
WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [%r63], 0; @!%p5 bra WAIT;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, [%r24];
    tcgen05.wait::ld.sync.aligned;
    st.global.v4.b32 [%rd7], {%d0, %d1, %d2, %d3}; st.global.v4.b32 [%rd7+16], {%d4, %d5, %d6, %d7};
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 32;
    ret;
}
"""


@dataclass(frozen=True, slots=True)
class Shift:
    """Rows of 32 bytes, one in each lane, that move by one within each 32."""

    name: str = "shift"

    def text(self) -> str:
        """The PTX."""
        return _SHIFT

    def launch(self, text: str | None = None, **options: Any) -> tuple[Array, LaunchReport]:
        """(out, report)."""
        out, words = np.full((128, 8), UNWRITTEN, np.uint32), np.arange(1024, dtype=np.uint32).reshape(128, 8)
        arguments = [words.reshape(-1), out.reshape(-1)]
        return out, parsed(text or _SHIFT).launch("k", grid=1, block=128, args=arguments, **options)

    def error(self, out: Array) -> float:
        """How many rows are not the next one."""
        words = np.arange(1024, dtype=np.uint32).reshape(4, 32, 8)
        expected = np.concatenate([words[:, 1:], words[:, -1:]], axis=1).reshape(128, 8)
        return float((out != expected).any(axis=1).sum())


LOADED = Loaded(kind="mxf8f6f4", m=256, n=64, a="e4m3", b="e4m3", ctas=2)
HANDED = Handed(kind="mxf8f6f4", m=256, n=64, a="e4m3", b="e4m3", ctas=2)
STAGED = Staged(kind="f16", m=128, n=32, a="f16", b="f16", ctas=2)
ANNOUNCED = Announced(kind="f16", m=256, n=32, a="f16", b="f16", ctas=2)
SHIFT = Shift()
RIGHT = (LOADED, Loaded(kind="mxf8f6f4", m=128, n=64, a="e4m3", b="e4m3", ctas=2), HANDED, STAGED, ANNOUNCED, SHIFT)


def fixes() -> Iterator[Wrong]:
    """What the fixes mend."""
    says = "bulk copy"
    alone, early = (_PEER, ""), (K.UNINITIALIZED,)
    yield wrong("a leader that does not wait for the peer", K.ASYNC_COPY, says, alone, right=LOADED, also=early)
    arrival = (_HAND_OVER, _HAND_OVER.replace(".release.cluster", ""))
    wait = (_PEER, _PEER.replace(".acquire.cluster", ""))
    for right, who in ((LOADED, "bulk copy"), (HANDED, "thread")):
        says = f"after the write by {'the bulk copy' if right is LOADED else 'thread'}"
        yield wrong(f"the peer's arrival at scope cta, data of a {who}", K.RACE, says, arrival, right=right)
        yield wrong(f"the leader's wait at scope cta, data of a {who}", K.RACE, says, wait, right=right)
    half = ("    shr.u32 %r51, %r0, 6; mul.lo.u32 %r51, %r51, 64; add.u32 %r50, %r50, %r51;\n", "")
    yield wrong("two warps write one slot", K.RACE, "write", half, right=STAGED)
    exits = (_LAST, "    ret;")
    yield wrong("a CTA that exits while its peer commits to it", K.RACE, "exit", exits, right=ANNOUNCED)
    meet = "bar.sync 0; tcgen05.fence::after_thread_sync;\n    @%p3 tcgen05.shift"
    alone = (meet, meet.replace("bar.sync 0; ", ""))
    yield wrong(
        "a shift of rows that others store",
        K.TENSOR_MEMORY,
        "may still write",
        alone,
        right=SHIFT,
        also=(K.UNINITIALIZED,),
    )
    commit = ("    @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r63];\n", "")
    yield wrong("a shift without a commit", K.BARRIER, "waits for", commit, right=SHIFT)
    yield wrong("no shift", None, "", ("    @%p3 tcgen05.shift.cta_group::1.down [%r20];\n", ""), right=SHIFT)
    lane = ("tcgen05.shift.cta_group::1.down [%r20]", "tcgen05.shift.cta_group::1.down [%r20+65536]")
    yield wrong("a shift at lane 1", K.TENSOR_MEMORY, "expected a lane of 0", lane, right=SHIFT)
