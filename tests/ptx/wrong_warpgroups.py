"""Kernels with `wgmma` and one mistake each, beside the right ones."""

from __future__ import annotations

from collections.abc import Iterator

from warpgroup_kernels import COMMIT, FENCE, FILL, PROXY_FENCE, dump, mma, wait, zero
from wrong_warpgroup import ALL, B_AT, LAST_WAIT, PLAIN, READY, REGISTERS, SIZE, SKIP, TWO, A, B, Wrong, step

from cutegen.ptx import ViolationKind

K = ViolationKind


def register_mistakes() -> Iterator[Wrong]:
    """Fences, groups, and registers in flight."""
    yield Wrong(name="no fence", kind=K.ASYNC_MMA, right=PLAIN, change=(FENCE, ""), says="no wgmma.fence")
    yield Wrong(
        name="registers touched after the fence",
        kind=K.ASYNC_MMA,
        right=PLAIN,
        change=(FENCE, FENCE + "neg.f32 %d3, %d3;"),
        says="%d3",
    )
    again = zero(REGISTERS) + FENCE + step(0) + COMMIT + wait() + "add.f32 %d5, %d5, 0f00000000;" + FENCE + step(1)
    yield Wrong(
        name="no second fence",
        kind=K.ASYNC_MMA,
        right=again + COMMIT + wait() + dump(REGISTERS),
        change=("0f00000000;" + FENCE, "0f00000000;"),
        says="%d5",
        k_steps=2,
    )
    yield Wrong(name="no commit", kind=K.ASYNC_MMA, right=PLAIN, change=(COMMIT, ""), says="%d0")
    yield Wrong(name="a wait for one group too few", kind=K.ASYNC_MMA, right=TWO, change=(wait(0), wait(1)), says="%d0")
    yield Wrong(name="no wait", kind=K.ASYNC_MMA, right=PLAIN, change=(wait(0), ""), says="%d0")
    yield Wrong(
        name="an accumulator read early", kind=K.ASYNC_MMA, right=PLAIN, change=(SKIP, "mov.b32 %r30, %d7;"), says="%d7"
    )
    yield Wrong(
        name="an accumulator written early",
        kind=K.ASYNC_MMA,
        right=PLAIN,
        change=(SKIP, SKIP + "mov.b32 %d7, %r30;"),
        says="%d7",
    )
    yield Wrong(
        name="an accumulator read early under a predicate",
        kind=K.ASYNC_MMA,
        right=PLAIN,
        change=(SKIP, "setp.eq.u32 %p3, %r0, 77; @%p3 mov.b32 %r30, %d7;"),
        says="thread 77",
    )
    yield Wrong(
        name="accumulators that nobody cleared",
        kind=K.UNINITIALIZED,
        right=PLAIN,
        change=("mov.b32 %d9, 0;", ""),
        says="%d9",
    )
    yield Wrong(
        name="an exit without a wait",
        kind=K.ASYNC_MMA,
        right=PLAIN + FENCE + step(0) + COMMIT + LAST_WAIT,
        change=(LAST_WAIT, ""),
        says="exits before a wgmma.wait_group",
    )
    other = mma("m64n16k16", "f32.f16.f16", 8, A.descriptor(), B.descriptor(), ", 1, 1, 0, 0", first=REGISTERS)
    both = zero(REGISTERS + 8) + FENCE + ALL + other + COMMIT + wait() + dump(REGISTERS)
    yield Wrong(
        name="accumulators that overlap",
        kind=K.ASYNC_MMA,
        right=both,
        change=(other, other.replace("%d16,", "%d8,")),
        says="in part",
    )
    narrow = mma("m64n16k16", "f32.f16.f16", 8, A.descriptor(), B.descriptor(), ", 1, 1, 0, 0", first=24)
    shapes = zero(32) + FENCE + narrow + COMMIT + wait() + FENCE + step(0, first=16, adds="%p4") + ALL + COMMIT
    yield Wrong(
        name="unlike shapes without a fence between",
        kind=K.ASYNC_MMA,
        right="setp.ne.u32 %p4, %r0, %r0;" + shapes + wait() + dump(REGISTERS),
        change=(wait() + FENCE + "mov.b64 %da", wait() + "mov.b64 %da"),
        says="unlike shapes",
    )
    integers = mma("m64n32k32", "s32.s8.s8", REGISTERS, A.descriptor(), B.descriptor(), "")
    steps = step(0, adds="%p4") + step(1) + step(2) + step(3)
    types = zero(REGISTERS) + FENCE + integers + COMMIT + wait() + FENCE + steps + COMMIT
    yield Wrong(
        name="sums of another type in flight",
        kind=K.ASYNC_MMA,
        right="setp.ne.u32 %p4, %r0, %r0;" + types + wait() + dump(REGISTERS),
        change=(wait() + FENCE, FENCE),
        says="in part",
    )


FRAGMENT = "mov.b32 %r30, 0x3c003c00; " + " ".join(f"add.u32 %r{i}, %r30, 0;" for i in range(20, 24))


def fragment_mistakes() -> Iterator[Wrong]:
    """A in registers: the first 16 of K once more, in place of nothing, and then the tile."""

    def from_registers(first: int) -> str:
        operand = "{%r20, %r21, %r22, %r23}"
        return mma("m64n32k16", "f32.f16.f16", 16, operand, B.descriptor(), ", 1, 1, 0", first=first, adds="%p0")

    body = zero(2 * REGISTERS) + FRAGMENT + FENCE + from_registers(16) + ALL + COMMIT + SKIP + wait() + dump(REGISTERS)
    yield Wrong(
        name="a fragment of A overwritten early",
        kind=K.ASYNC_MMA,
        right=body,
        change=(SKIP, "mov.b32 %r22, 0;"),
        says="%r22",
    )
    yield Wrong(
        name="a fragment of A made after the fence",
        kind=K.ASYNC_MMA,
        right=body,
        change=(FRAGMENT + FENCE, FENCE + FRAGMENT),
        says="%r20",
    )
    yield Wrong(
        name="accumulators in flight as A",
        kind=K.ASYNC_MMA,
        right=body + FENCE + COMMIT,
        change=(ALL, ALL + from_registers(16).replace("%r20, %r21", "%d0, %d1")),
        says="accumulators of another",
    )


def memory_mistakes() -> Iterator[Wrong]:
    """Shared memory that is written too late, too early, or through the wrong proxy."""
    store = "shl.b32 %r13, %r0, 4; add.u32 %r13, %r13, %r63; st.shared.b32 [%r13], 0;"
    yield Wrong(name="no proxy fence", kind=K.RACE, right=PLAIN, change=(PROXY_FENCE, ""), says="no fence.proxy.async")
    yield Wrong(
        name="a proxy fence before the writes",
        kind=K.RACE,
        right=PLAIN,
        fill=FILL + PROXY_FENCE + "bar.sync 0;",
        change=(FILL + PROXY_FENCE, PROXY_FENCE + FILL),
        says="no fence.proxy.async",
    )
    yield Wrong(name="no barrier", kind=K.RACE, right=PLAIN, change=("bar.sync 0;", ""), says="without a barrier")
    yield Wrong(
        name="a stage overwritten early",
        kind=K.ASYNC_MMA,
        right=PLAIN.replace(wait(), wait() + "bar.sync 0;" + store),
        change=(SKIP, store),
        says="may still read",
        also=K.RACE,
    )
    yield Wrong(
        name="a stage overwritten after a wait for one group too few",
        kind=K.ASYNC_MMA,
        right=TWO.replace(wait(), wait(0) + "bar.sync 0;" + store + wait(00)),
        change=(wait(0), wait(1)),
        says="may still read",
    )
    yield Wrong(
        name="a stage overwritten by cp.async early",
        kind=K.ASYNC_MMA,
        right=PLAIN,
        change=(
            SKIP,
            "shl.b32 %r13, %r0, 4; add.u32 %r13, %r13, %r63; cp.async.cg.shared.global [%r13], [%rd0], 16;"
            "cp.async.wait_all;",
        ),
        says="may still read",
        also=K.RACE,
    )
    bulk = (
        "mov.b64 %rd20, map; cvta.param.u64 %rd21, %rd20; setp.eq.u32 %p5, %r0, 0; mov.u32 %r40, smem;"
        "@%p5 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 8192;"
        "@%p5 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
        " [%r40], [%rd21, {0, 0}], [bar];"
    )
    arrived = "{ .reg .pred P; AGAIN: mbarrier.try_wait.parity.shared.b64 P, [bar], 0; @P bra DONE; bra AGAIN; DONE: }"
    barrier = (
        ".shared .align 8 .b64 bar; setp.eq.u32 %p5, %r0, 0; @%p5 mbarrier.init.shared.b64 [bar], 1;"
        "@%p5 fence.mbarrier_init.release.cluster;"
    )
    loaded = barrier + FILL + PROXY_FENCE + "bar.sync 0;" + bulk
    yield Wrong(
        name="a bulk copy that nobody has waited for",
        kind=K.ASYNC_COPY,
        fill=loaded,
        right=arrived + PLAIN + "bar.sync 0;" + arrived.replace("AGAIN", "A2").replace("DONE", "D2"),
        change=(arrived + zero(1), zero(1)),
    )
    one_warp = "setp.ne.u32 %p6, %r1, 0; @%p6 bra REST; " + arrived + " REST: "
    yield Wrong(
        name="a bulk copy that one warp alone has waited for",
        kind=K.ASYNC_COPY,
        fill=loaded,
        right=one_warp + "bar.sync 0;" + PLAIN,
        change=("REST: bar.sync 0;", "REST: "),
    )
    yield Wrong(
        name="a stage overwritten by a bulk copy early",
        kind=K.ASYNC_MMA,
        fill=barrier + READY,
        right=PLAIN.replace(wait(), wait() + "bar.sync 1;" + bulk + arrived),
        change=(SKIP + wait() + "bar.sync 1;" + bulk, SKIP + bulk + wait()),
        says="may still read",
        also=K.ASYNC_COPY,
    )
    yield Wrong(
        name="a stage given back before the wait",
        kind=K.ASYNC_MMA,
        fill=barrier + READY,
        block=160,
        right="setp.ge.u32 %p6, %r1, 4; @%p6 bra PRODUCER;"
        + PLAIN.replace(wait(), wait() + "bar.arrive 1, 160;")
        + "bra END; PRODUCER: bar.sync 1, 160; "
        + bulk.replace("%r0, 0", "%r0, 128")
        + arrived
        + " END:",
        change=(SKIP + wait() + "bar.arrive 1, 160;", "bar.arrive 1, 160;" + SKIP + wait()),
        says="may still read",
    )
    yield Wrong(
        name="a descriptor one row too far",
        kind=K.UNINITIALIZED,
        fill=READY.replace("BYTES", "12288"),
        right=PLAIN,
        change=(f"mov.b64 %db, {B.descriptor()};", f"mov.b64 %db, {B.descriptor() + 8};"),
        says="never written",
    )
    yield Wrong(
        name="a descriptor past the end",
        kind=K.OUT_OF_BOUNDS,
        right=PLAIN,
        change=(f"mov.b64 %db, {B.descriptor()};", f"mov.b64 %db, {B.descriptor() + (SIZE - B_AT - 2048 >> 4)};"),
        says="shared memory",
    )


def convergence_mistakes() -> Iterator[Wrong]:
    """Warps and lanes that do not execute one instruction together."""
    yield Wrong(
        name="one warp leaves an instruction out",
        kind=K.DIVERGENCE,
        right=PLAIN,
        change=(step(3), "setp.eq.u32 %p3, %r1, 2; @%p3 bra AFTER; " + step(3) + " AFTER: "),
        also=K.BARRIER,
    )
    yield Wrong(
        name="one warp exits",
        kind=K.DIVERGENCE,
        right=SKIP + PLAIN,
        change=(SKIP + "mov.b32 %d0", "setp.eq.u32 %p3, %r1, 1; @%p3 exit; mov.b32 %d0"),
    )
    yield Wrong(
        name="half a warp",
        kind=K.DIVERGENCE,
        right=PLAIN,
        change=(step(3), "setp.lt.u32 %p3, %r0, 112; @!%p3 bra AFTER; " + step(3) + " AFTER: "),
        says="all 32 lanes",
        also=K.BARRIER,
    )
    yield Wrong(
        name="a predicate of half a warp",
        kind=K.DIVERGENCE,
        right=PLAIN,
        change=(COMMIT, "setp.lt.u32 %p3, %r0, 112; @%p3 " + COMMIT),
        says="all 32 lanes",
        also=K.BARRIER,
    )
    yield Wrong(
        name="the same code twice",
        kind=K.DIVERGENCE,
        right=PLAIN,
        change=(
            step(3),
            "setp.eq.u32 %p3, %r1, 2; @%p3 bra OTHER; " + step(3) + "bra AFTER; OTHER: " + step(3) + " AFTER: ",
        ),
        says="in its place",
    )
    yield Wrong(
        name="warps that differ in a descriptor",
        kind=K.DIVERGENCE,
        right="mov.u32 %r31, 0;"
        + zero(REGISTERS)
        + FENCE
        + "cvt.u64.u32 %rd22, %r31;"
        + f"add.s64 %rd23, %rd22, {A.descriptor(0)};"
        + mma("m64n32k16", "f32.f16.f16", 16, "%rd23", B.descriptor(0), ", 1, 1, 0, 0")
        + COMMIT
        + wait()
        + dump(REGISTERS),
        change=("mov.u32 %r31, 0;", "shl.b32 %r31, %r1, 1; and.b32 %r31, %r31, 2;"),
        says="do not agree",
        k_steps=1,
    )
    scaled = (
        "setp.ge.u32 %p3, %r1, 0;" + zero(REGISTERS) + FENCE + step(0, adds="%p3") + COMMIT + wait() + dump(REGISTERS)
    )
    yield Wrong(
        name="warps that differ in scale-d",
        kind=K.DIVERGENCE,
        right=scaled,
        change=("%r1, 0;", "%r1, 1;"),
        says="do not agree",
        k_steps=1,
    )
    yield Wrong(
        name="lanes that differ in scale-d",
        kind=K.DIVERGENCE,
        right=scaled,
        change=("%r1, 0;", "%r0, 5;"),
        says="differs between lanes",
        k_steps=1,
    )
    registers = "setmaxnreg.inc.sync.aligned.u32 232;"
    yield Wrong(
        name="setmaxnreg of one warp",
        kind=K.DIVERGENCE,
        right=registers + PLAIN,
        change=(registers, f"setp.eq.u32 %p3, %r1, 1; @%p3 bra LATER; {registers} LATER: "),
        says="in its place",
        also=K.BARRIER,
    )
    yield Wrong(
        name="warps 1 to 4",
        kind=K.DIVERGENCE,
        block=256,
        right="setp.lt.u32 %p3, %r1, 4; @!%p3 bra AFTER; " + PLAIN + "AFTER: bar.sync 2;",
        change=(
            "setp.lt.u32 %p3, %r1, 4; @!%p3 bra AFTER;",
            "sub.u32 %r31, %r1, 1; setp.lt.u32 %p3, %r31, 4; @!%p3 bra AFTER;",
        ),
        also=K.BARRIER,
    )


def layout_mistakes() -> Iterator[Wrong]:
    """Descriptors that mean other bytes than those where the operand lies: the product is wrong."""

    def with_b(bits: int) -> tuple[str, str]:
        return f"mov.b64 %db, {B.descriptor()};", f"mov.b64 %db, {bits};"

    right = B.descriptor()
    yield Wrong(name="a row further on", right=PLAIN, change=with_b(right + 8))
    yield Wrong(name="k in the wrong place", right=PLAIN, change=with_b(right + 2))
    yield Wrong(name="stride of 8 rows too small", right=PLAIN, change=with_b(right - (1 << 32)))
    yield Wrong(name="stride of 8 rows doubled", right=PLAIN, change=with_b(right + (64 << 32)))
    yield Wrong(name="a base offset where there is none", right=PLAIN, change=with_b(right | 3 << 49))
    yield Wrong(name="a narrower swizzle", right=PLAIN, change=with_b(right ^ 3 << 62))
    yield Wrong(name="no swizzle", right=PLAIN, change=with_b(right ^ 1 << 62))


def epilogue_mistakes() -> Iterator[Wrong]:
    """The result through shared memory: stmatrix, and a bulk copy from there."""
    one = "and.b32 %r41, %r0, 15; shl.b32 %r41, %r41, 4; mad.lo.u32 %r41, %r1, 256, %r41; add.u32 %r41, %r41, %r63;"
    write = one + "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r41], {%r42, %r43};"
    store = (
        "mov.b64 %rd20, map; cvta.param.u64 %rd21, %rd20; setp.eq.u32 %p5, %r0, 0; mov.u32 %r40, smem;"
        "@%p5 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd21, {0, 0}], [%r40];"
        "@%p5 cp.async.bulk.commit_group;"
    )
    pack = "cvt.rn.f16x2.f32 %r42, %d1, %d0; cvt.rn.f16x2.f32 %r43, %d3, %d2;"
    read = "@%p5 cp.async.bulk.wait_group.read 0;"
    end = PROXY_FENCE + "bar.sync 2;" + store + read + "bar.sync 3;" + write + "@%p5 cp.async.bulk.wait_group 0;"
    right = PLAIN + pack + "bar.sync 1;" + write + end
    yield Wrong(
        name="stmatrix that is not aligned",
        kind=K.MISALIGNED,
        right=right,
        change=(write, write.replace("[%r41]", "[%r41+8]")),
    )
    yield Wrong(
        name="stmatrix of accumulators in flight",
        kind=K.ASYNC_MMA,
        right=right,
        change=(SKIP, "stmatrix.sync.aligned.m8n8.x2.shared.b16 [smem], {%d2, %d3};"),
        says="%d2",
    )
    yield Wrong(
        name="no proxy fence between stmatrix and a bulk copy",
        kind=K.RACE,
        right=right,
        change=(PROXY_FENCE + "bar.sync 2;", "bar.sync 2;"),
        says="no fence.proxy.async",
    )
    yield Wrong(
        name="a store's buffer used again before the wait",
        kind=K.ASYNC_COPY,
        right=right,
        change=(read, ""),
        says="may still be reading",
    )


MISTAKES = (
    register_mistakes,
    fragment_mistakes,
    memory_mistakes,
    convergence_mistakes,
    layout_mistakes,
    epilogue_mistakes,
)
WRONG = tuple(wrong for made in MISTAKES for wrong in made())
