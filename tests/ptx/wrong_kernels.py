"""Kernels with one mistake each, beside the right ones: what is changed, and what the executor must say about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from bulk_kernels import READY, expect, load, store, wait
from kernels import kernel

from cutegen.ptx import Program, TensorMap, ViolationKind

SMEM_BYTES = 16384
BOX_BYTES = 16 * 32 * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A right body, the one change that makes it wrong, and what is found then."""

    name: str
    kind: ViolationKind
    right: str
    change: tuple[str, str]
    block: int = 64
    grid: int = 1
    before: str = ""
    has_map: bool = False
    says: str = ""
    also: ViolationKind | None = None
    """What some orders come to first."""

    @property
    def wrong(self) -> str:
        """The body with the mistake."""
        before, after = self.change
        assert self.right.count(before) >= 1, self.name
        return self.right.replace(before, after)

    def launch(self, body: str, policy: str) -> None:
        """Runs `body` on fresh arrays: `out` of 4,096 words, and a read-only `fixed` of 64."""
        maps = ".param .align 64 .b8 map[128], " if self.has_map else ""
        parameters = f"{maps}.param .u64 out, .param .u64 fixed"
        text = kernel(body, before=self.before, shared_bytes=SMEM_BYTES, parameters=parameters)
        fixed = np.arange(64, dtype=np.uint32)
        fixed.flags.writeable = False
        args: list[object] = [np.zeros(4096, np.uint32), fixed]
        if self.has_map:
            tensor = np.arange(32 * 64, dtype=np.uint32).reshape(32, 64)
            args.insert(0, TensorMap(array=tensor, extents=(64, 32), strides_bytes=(256,), box=(32, 16)))
        Program.parse(text).launch("k", grid=self.grid, block=self.block, args=args, policy=policy, max_steps=100_000)


SMEM = "mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; mov.u32 %r3, 0;"
FIXED = "ld.param.u64 %rd5, [fixed]; mul.wide.u32 %rd6, %r0, 4; add.s64 %rd6, %rd5, %rd6;"
OWN = "mov.u32 %r20, %ctaid.x; mad.lo.u32 %r21, %r20, 64, %r0; mul.wide.u32 %rd1, %r21, 4; add.s64 %rd1, %rd0, %rd1;"
EXCHANGE = SMEM + (
    "st.shared.u32 [%r6], %r0; bar.sync 0; xor.b32 %r7, %r5, 128; add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7];"
)
WITHIN_WARP = SMEM + (
    "st.shared.u32 [%r6], %r0; bar.warp.sync -1; xor.b32 %r7, %r5, 4; add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7];"
)
COPY = SMEM + (
    "shl.b32 %r8, %r0, 4; add.s32 %r9, %r4, %r8; mov.u64 %rd2, data; cvt.u64.u32 %rd3, %r8; add.s64 %rd2, %rd2, %rd3;"
    "cp.async.cg.shared.global [%r9], [%rd2], 16; cp.async.commit_group; cp.async.wait_group 0; {}"
    "ld.shared.u32 %r3, [%r9];"
)
DATA = ".global .align 16 .b32 data[512];\n"
TWO = ".shared .align 4 .b8 one[100];\n.shared .align 4 .b8 two[100];\n"
MATRIX = SMEM + (
    "st.shared.u32 [%r6], %r0; bar.sync 0; and.b32 %r8, %r0, 31; shl.b32 %r8, %r8, 4; and.b32 %r8, %r8, 112;"
    "add.s32 %r8, %r4, %r8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r8];"
)
K = ViolationKind


def memory_mistakes() -> Iterator[Wrong]:
    """Bounds, alignment, read-only memory, reads of nothing."""
    read = FIXED + "ld.global.u32 %r3, [%rd6];"
    yield Wrong(name="global read past the end", kind=K.OUT_OF_BOUNDS, right=read, change=("[%rd6]", "[%rd6+256]"))
    yield Wrong(
        name="global write past the end",
        kind=K.OUT_OF_BOUNDS,
        right="mov.u32 %r3, 1; st.global.u32 [%rd1+256], %r3;",
        change=("+256]", "+16384]"),
    )
    yield Wrong(
        name="vector read that is not aligned",
        kind=K.MISALIGNED,
        block=8,
        right=FIXED + "shl.b64 %rd7, %rd6, 1; sub.s64 %rd7, %rd7, %rd5; ld.global.v2.u32 {%r3, %r7}, [%rd7];",
        change=("[%rd7]", "[%rd7+4]"),
    )
    yield Wrong(
        name="a write to what is read-only",
        kind=K.READ_ONLY,
        right=read,
        change=("ld.global.u32 %r3, [%rd6]", "st.global.u32 [%rd6], %r0; mov.u32 %r3, 0"),
    )
    yield Wrong(
        name="shared write past the end",
        kind=K.OUT_OF_BOUNDS,
        right=SMEM + "st.shared.u32 [%r6+16128], %r0;",
        change=("+16128]", "+16132]"),
    )
    yield Wrong(name="shared read that is not aligned", kind=K.MISALIGNED, right=EXCHANGE, change=("[%r7]", "[%r7+2]"))
    yield Wrong(
        name="an access into the next variable",
        kind=K.OUT_OF_BOUNDS,
        before=TWO,
        block=1,
        right="mov.u32 %r3, one; st.shared.u32 [%r3+92], 1; st.shared.u32 [%r3+96], 2; mov.u32 %r3, 0;",
        change=("st.shared.u32 [%r3+96], 2;", "st.shared.v2.u32 [%r3+96], {%r0, %r0};"),
        says="end of a variable",
    )
    yield Wrong(
        name="shared memory that nobody wrote",
        kind=K.UNINITIALIZED,
        right=EXCHANGE,
        change=("st.shared.u32 [%r6], %r0;", ""),
    )
    yield Wrong(
        name="a register that only some lanes wrote",
        kind=K.UNINITIALIZED,
        right="mov.u32 %r7, 5; setp.lt.u32 %p1, %r0, 9; @%p1 mov.u32 %r7, 1; mov.u32 %r3, %r7;",
        change=("mov.u32 %r7, 5;", ""),
    )
    yield Wrong(
        name="local memory that nobody wrote",
        kind=K.UNINITIALIZED,
        before="",
        right=".local .align 4 .b8 l[8]; st.local.u32 [l], 1; st.local.u32 [l+4], 2; ld.local.u32 %r3, [l+4];",
        change=("st.local.u32 [l+4], 2;", ""),
    )
    yield Wrong(
        name="a shuffle from a lane that is not there",
        kind=K.UNINITIALIZED,
        block=32,
        right="mov.u32 %r3, 0; setp.ge.u32 %p1, %r0, 16; @%p1 bra END; "
        "shfl.sync.down.b32 %r3, %r0, 1, 0x100f, 0xffff; END:",
        change=("0x100f", "31"),
        says="does not take part",
    )


def race_mistakes() -> Iterator[Wrong]:
    """Two threads of a CTA, or of two."""
    yield Wrong(
        name="no barrier between warps",
        kind=K.RACE,
        right=EXCHANGE + "bar.sync 0; st.shared.u32 [%r6], 7;",
        change=("[%r7];bar.sync 0;", "[%r7];"),
    )
    yield Wrong(
        name="no warp barrier between lanes",
        kind=K.RACE,
        right=SMEM + "st.shared.u32 [%r6], 9; bar.sync 0;" + WITHIN_WARP,
        change=("bar.warp.sync -1;", ""),
    )
    yield Wrong(
        name="a named barrier that others are at",
        kind=K.RACE,
        block=128,
        right=SMEM + "st.shared.u32 [%r6], 1; bar.sync 0; st.shared.u32 [%r6], 2; shr.u32 %r8, %r0, 6;"
        "bar.sync 1; xor.b32 %r7, %r5, 256; add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7];",
        change=("bar.sync 1;", "add.u32 %r8, %r8, 1; bar.sync %r8, 64;"),
    )
    yield Wrong(
        name="lanes that write different values",
        kind=K.RACE,
        block=32,
        right=SMEM + "st.shared.u32 [%r4], 3;",
        change=("[%r4], 3;", "[%r4], %r0;"),
    )
    yield Wrong(
        name="an ordinary write beside atomics",
        kind=K.RACE,
        also=K.UNINITIALIZED,
        right=SMEM + "setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r4], 0; bar.sync 0;"
        "atom.shared.add.u32 %r7, [%r4], 1;",
        change=("bar.sync 0;", ""),
    )
    yield Wrong(
        name="threads that write one global word",
        kind=K.RACE,
        right="mov.u32 %r3, 0; st.global.u32 [%rd1+1024], %r0;",
        change=("[%rd1+1024]", "[%rd0+1024]"),
    )
    yield Wrong(
        name="a global read before another thread's write",
        kind=K.RACE,
        right="xor.b32 %r7, %r0, 32; mul.wide.u32 %rd2, %r7, 4; add.s64 %rd2, %rd0, %rd2;"
        "ld.global.u32 %r3, [%rd2]; bar.sync 0;",
        change=("bar.sync 0;", ""),
    )
    yield Wrong(name="CTAs that write one word", kind=K.RACE, grid=2, right=OWN + "mov.u32 %r3, 0;", change=(OWN, ""))
    yield Wrong(
        name="a CTA that reads what another writes",
        kind=K.RACE,
        grid=2,
        right=OWN + "ld.global.u32 %r3, [%rd1];",
        change=("ld.global.u32 %r3, [%rd1];", "ld.global.u32 %r3, [%rd0];"),
    )
    yield Wrong(
        name="a weak counter",
        kind=K.RACE,
        grid=2,
        right=OWN + "mov.u32 %r3, 0; red.relaxed.gpu.global.add.u32 [%rd0+4096], 1;",
        change=(
            "red.relaxed.gpu.global.add.u32 [%rd0+4096], 1;",
            "ld.global.u32 %r7, [%rd0+4096]; st.global.u32 [%rd0+4096], %r7;",
        ),
    )
    yield Wrong(
        name="atomics at scope cta of two CTAs",
        kind=K.RACE,
        grid=2,
        right=OWN + "mov.u32 %r3, 0; red.relaxed.gpu.global.add.u32 [%rd0+4096], 1;",
        change=("relaxed.gpu", "relaxed.cta"),
    )
    yield Wrong(
        name="atomics of two sizes",
        kind=K.RACE,
        block=1,
        grid=2,
        right=OWN + "mov.u32 %r3, 0; mov.u64 %rd2, 1; setp.eq.u32 %p1, %r20, 0;"
        "@%p1 red.global.add.u64 [%rd0+4096], %rd2; @!%p1 red.global.add.u64 [%rd0+4096], %rd2;",
        change=("@!%p1 red.global.add.u64 [%rd0+4096], %rd2;", "@!%p1 red.global.add.u32 [%rd0+4096], 1;"),
    )
    yield Wrong(
        name="a cached read of what the kernel writes",
        kind=K.RACE,
        right="st.global.u32 [%rd1], %r0; ld.global.u32 %r3, [%rd1];",
        change=("ld.global.", "ld.global.nc."),
    )


def copy_mistakes() -> Iterator[Wrong]:
    """`cp.async`."""
    plain = COPY.format("")
    others = COPY.format("bar.sync 0; xor.b32 %r9, %r8, 512; add.s32 %r9, %r4, %r9;")
    yield Wrong(name="no wait", kind=K.ASYNC_COPY, before=DATA, right=plain, change=("cp.async.wait_group 0;", ""))
    yield Wrong(name="a wait for too few", kind=K.ASYNC_COPY, before=DATA, right=plain, change=("group 0", "group 1"))
    yield Wrong(name="no commit", kind=K.ASYNC_COPY, before=DATA, right=plain, change=("cp.async.commit_group;", ""))
    yield Wrong(
        name="no barrier after the wait",
        kind=K.RACE,
        also=K.UNINITIALIZED,
        before=DATA,
        right=others,
        change=("bar.sync 0;", ""),
    )
    yield Wrong(
        name="a destination that others read",
        kind=K.RACE,
        before=DATA,
        right=EXCHANGE + "bar.sync 0;" + plain,
        change=("[%r7];bar.sync 0;", "[%r7];"),
    )
    late = "cp.async.wait_group 0; st.global.u32 [%rd2], 1;"
    yield Wrong(
        name="a source that is overwritten",
        kind=K.RACE,
        before=DATA,
        right=plain.replace("cp.async.wait_group 0;", late),
        change=(late, "st.global.u32 [%rd2], 1; cp.async.wait_group 0;"),
        says="may still be reading",
    )
    yield Wrong(
        name="a source that is not aligned",
        kind=K.MISALIGNED,
        before=DATA,
        right=plain,
        change=("[%rd2], 16", "[%rd2+4], 16"),
    )


def barrier_mistakes() -> Iterator[Wrong]:
    """Barriers, convergence, mbarriers."""
    yield Wrong(
        name="a barrier that one warp leaves out",
        kind=K.BARRIER,
        right="mov.u32 %r3, 0; bar.sync 0;",
        change=("bar.sync 0;", "setp.lt.u32 %p1, %r0, 32; @%p1 bra END; bar.sync 0; END: bar.sync 1, 64;"),
    )
    yield Wrong(
        name="a barrier that some lanes leave out",
        kind=K.DIVERGENCE,
        right="mov.u32 %r3, 0; bar.sync 0;",
        change=("bar.sync 0;", "setp.lt.u32 %p1, %r0, 5; @%p1 bra END; bar.sync 0; END:"),
    )
    yield Wrong(
        name="a mask with lanes that are elsewhere",
        kind=K.DIVERGENCE,
        block=32,
        right="setp.lt.u32 %p1, %r0, 16; mov.u32 %r3, 0; @!%p1 bra END;vote.sync.ballot.b32 %r3, %p1, 0xffff; END:",
        change=("0xffff", "-1"),
    )
    yield Wrong(
        name="half a warp at ldmatrix",
        kind=K.DIVERGENCE,
        right=MATRIX,
        block=32,
        change=("ldmatrix", "setp.lt.u32 %p1, %r0, 16; mov.u32 %r3, 0; @%p1 ldmatrix"),
    )
    yield Wrong(
        name="a count of threads that is no multiple of 32",
        kind=K.BARRIER,
        right="mov.u32 %r3, 0; bar.sync 1, 64;",
        change=("64;", "65;"),
    )
    two = "setp.lt.u32 %p1, %r0, 32; mov.u32 %r3, 0; @%p1 bar.sync 1, 64; @!%p1 bar.sync 1, 64;"
    unlike = ("@!%p1 bar.sync 1, 64", "@!%p1 bar.sync 1, 96")
    yield Wrong(name="two counts of threads", kind=K.BARRIER, right=two, change=unlike, says="threads here, and for")
    unlike = (unlike[0], "@!%p1 bar.red.popc.u32 %r3, 1, 64, %p1")
    yield Wrong(name="a reduction beside a barrier", kind=K.BARRIER, right=two, change=unlike, says="is a reduction")
    arrive = READY + "@%p0 mbarrier.arrive.shared.b64 _, [%r5];" + wait()
    yield Wrong(
        name="an mbarrier that was not made",
        kind=K.BARRIER,
        right=arrive,
        change=("@%p0 mbarrier.init.shared.b64 [%r5], 1;", ""),
    )
    yield Wrong(
        name="an mbarrier without a barrier behind",
        kind=K.RACE,
        also=K.BARRIER,
        right=arrive,
        change=("fence.mbarrier_init.release.cluster; bar.sync 0;", "fence.mbarrier_init.release.cluster;"),
    )
    yield Wrong(name="an arrival too few", kind=K.BARRIER, right=arrive, change=("[%r5], 1;", "[%r5], 2;"))
    yield Wrong(
        name="an arrival too many",
        kind=K.BARRIER,
        right=arrive,
        change=("@%p0 mbarrier.arrive", "mbarrier.arrive"),
        says="has not seen the phase before",
    )
    yield Wrong(
        name="an arrival of another warp that has not waited",
        kind=K.BARRIER,
        right=arrive + "setp.eq.u32 %p2, %r0, 32; @%p2 mbarrier.arrive.shared.b64 _, [%r5];" + wait(1, name="AGAIN1"),
        change=(wait(), ""),
        says="has not seen the phase before",
    )
    lane = (
        READY + "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4; st.shared.u32 [%r6], %r0; bar.warp.sync -1;"
        "@%p0 mbarrier.arrive.shared.b64 _, [%r5]; setp.lt.u32 %p2, %r0, 32; @%p2 bra W;"
        + wait()
        + "setp.lt.u32 %p2, %r0, 32; @%p2 bra END; ld.shared.u32 %r3, [%r6+-128]; END:"
    )
    yield Wrong(
        name="a lane that arrives for its warp",
        kind=K.RACE,
        right=lane,
        change=("bar.warp.sync -1;", ""),
        says="for which another lane arrived",
    )


def bulk_mistakes() -> Iterator[Wrong]:
    """Bulk tensor copies; thread 0 issues them, all read."""
    read = "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4; ld.shared.b32 %r3, [%r6];"
    loads = READY + expect(BOX_BYTES) + load((0, 0)) + wait() + read
    fill = "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4;" + "".join(
        f"st.shared.b32 [%r6+{256 * i}], %r0;" for i in range(BOX_BYTES // 256)
    )
    stores = READY + fill + "fence.proxy.async; bar.sync 0;" + store((0, 0)) + "@%p0 cp.async.bulk.wait_group.read 0;"
    bulk = {"has_map": True, "block": 64}
    yield Wrong(
        name="a load that is not waited for",
        kind=K.ASYNC_COPY,
        also=K.UNINITIALIZED,
        right=loads,
        change=(wait(), ""),
        **bulk,
    )
    yield Wrong(
        name="a load with too few bytes expected",
        kind=K.BARRIER,
        right=loads,
        change=(f", {BOX_BYTES};", f", {BOX_BYTES + 16};"),
        **bulk,
    )
    yield Wrong(
        name="a load onto what others read",
        kind=K.RACE,
        right=READY
        + fill
        + "bar.sync 0;"
        + read
        + "fence.proxy.async; bar.sync 0;"
        + expect(BOX_BYTES)
        + load((0, 0))
        + wait(),
        change=("fence.proxy.async; bar.sync 0;", "fence.proxy.async;"),
        **bulk,
    )
    yield Wrong(
        name="a load whose box is not aligned", kind=K.MISALIGNED, right=loads, change=("[%r4+0]", "[%r4+16]"), **bulk
    )
    yield Wrong(
        name="a store without a proxy fence",
        kind=K.RACE,
        right=stores,
        change=("fence.proxy.async;", ""),
        says="no fence.proxy.async",
        **bulk,
    )
    yield Wrong(
        name="a store without a barrier",
        kind=K.RACE,
        also=K.UNINITIALIZED,
        right=stores,
        change=("async; bar.sync 0;", "async;"),
        **bulk,
    )
    yield Wrong(
        name="a store that is not waited for",
        kind=K.ASYNC_COPY,
        right=stores,
        change=("@%p0 cp.async.bulk.wait_group.read 0;", ""),
        **bulk,
    )
    again = "bar.sync 0; st.shared.b32 [%r6], 1;"
    yield Wrong(
        name="a store's source that is written again",
        kind=K.ASYNC_COPY,
        right=stores + again,
        change=("@%p0 cp.async.bulk.wait_group.read 0;" + again, again + "@%p0 cp.async.bulk.wait_group.read 0;"),
        **bulk,
    )
    whole = READY + fill + "fence.proxy.async; bar.sync 0;" + store((0, 0)) + "@%p0 cp.async.bulk.wait_group 0;"
    loaded = whole + "bar.sync 0;" + expect(BOX_BYTES) + load((0, 0)) + wait()
    yield Wrong(
        name="a load of what a store still writes",
        kind=K.RACE,
        right=loaded,
        change=("wait_group 0;", "wait_group.read 0;"),
        **bulk,
    )
    twice = stores.replace("@%p0 cp.async.bulk.wait_group.read 0;", "") + store((0, 16), guard="@%p6")
    twice = twice.replace("bar.sync 0;", "bar.sync 0; setp.eq.u32 %p6, %r0, 33;")
    twice += "@%p0 cp.async.bulk.wait_group 0; @%p6 cp.async.bulk.wait_group 0;"
    yield Wrong(name="two stores to one place", kind=K.RACE, right=twice, change=("{0, 16}", "{0, 0}"), **bulk)


WRONG = tuple(
    wrong
    for group in (memory_mistakes, race_mistakes, copy_mistakes, barrier_mistakes, bulk_mistakes)
    for wrong in group()
)
