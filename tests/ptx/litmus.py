"""Small kernels in which CTAs (or the warps of one) talk through global memory.

Each has places for its order and scope, so that a right kernel and its wrong twins differ in one word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutegen.ptx import ALL_KINDS, LaunchReport, Program, ViolationKind

STEPS = 200_000


def entry(body: str, *, shared: str = "") -> str:
    """An entry `k` of (data, flag, out); %rd0 to %rd2 are their addresses, %r0 the thread, %r1 the CTA."""
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag, .param .u64 out) {{
    {shared}
    .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
    ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [out];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
    {body}
    ret;
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a litmus kernel left: its report, and the three arrays."""

    report: LaunchReport
    data: np.ndarray
    flag: np.ndarray
    out: np.ndarray


def launch(
    text: str,
    *,
    grid: int = 2,
    block: int = 1,
    cluster: int = 1,
    policy: str = "in-order",
    words: int = 256,
    raise_on: frozenset[ViolationKind] = ALL_KINDS,
) -> Launch:
    """Runs it on zeros, with 0xffff in `out`."""
    data, flag, out = np.zeros(words, np.uint32), np.zeros(16, np.uint32), np.full(words, 0xFFFF, np.uint32)
    report = Program.parse(text).launch(
        "k",
        grid=grid,
        block=block,
        cluster=cluster,
        args=[data, flag, out],
        policy=policy,
        max_steps=STEPS,
        raise_on=raise_on,
    )
    return Launch(report=report, data=data, flag=flag, out=out)


def message_passing(
    release: str = "st.release.gpu.global.u32 [%rd1], 1;",
    acquire: str = "ld.acquire.gpu.global.u32 %r2, [%rd1];",
    after: str = "",
    *,
    sender: str = "%r1",
) -> str:
    """One writes data and raises a flag; the other waits for the flag and reads the data."""
    return entry(f"""
        setp.ne.u32 %p0, {sender}, 0; @%p0 bra READER;
        st.global.u32 [%rd0], 42;
        {release}
        bra DONE;
    READER:
        {acquire}
        setp.eq.u32 %p1, %r2, 0; @%p1 bra READER;
        {after}
        ld.global.u32 %r3, [%rd0];
        st.global.u32 [%rd2], %r3;
    DONE:""")


def last_block(
    *,
    barrier: str = "bar.sync 0;",
    count: str = "atom.acq_rel.gpu.global.add.u32 %r4, [%rd1], 1;",
    before: str = "",
    after: str = "",
) -> str:
    """64 threads of each CTA leave a number; the CTA that comes last adds all of them: how split-K ends."""
    return entry(
        f"""
        mad.lo.u32 %r2, %r1, 64, %r0; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd0, %rd3;
        st.global.u32 [%rd4], %r2;
        {barrier}
        mov.u32 %r4, 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra COUNTED;
        {before} {count} {after}
    COUNTED:
        mov.u32 %r5, %nctaid.x; sub.u32 %r5, %r5, 1;
        setp.eq.u32 %p1, %r4, %r5; bar.red.or.pred %p2, 0, %p1; @!%p2 bra DONE;
        mov.u32 %r6, 0; mov.u32 %r7, 0;
    NEXT:
        mad.lo.u32 %r8, %r6, 64, %r0; mul.wide.u32 %rd5, %r8, 4; add.s64 %rd6, %rd0, %rd5;
        ld.global.u32 %r9, [%rd6]; add.u32 %r7, %r7, %r9;
        add.u32 %r6, %r6, 1; setp.le.u32 %p3, %r6, %r5; @%p3 bra NEXT;
        mul.wide.u32 %rd7, %r0, 4; add.s64 %rd8, %rd2, %rd7; st.global.u32 [%rd8], %r7;
    DONE:"""
    )


def spin_lock(
    take: str = "atom.acquire.gpu.global.cas.b32 %r2, [%rd1], 0, 1;",
    give: str = "st.release.gpu.global.u32 [%rd1], 0;",
    *,
    first: str = "",
    last: str = "",
) -> str:
    """Thread 0 of each CTA adds one to a number under a lock."""
    return entry(f"""
        setp.ne.u32 %p0, %r0, 0; @%p0 bra DONE;
    AGAIN:
        {take}
        setp.ne.u32 %p1, %r2, 0; @%p1 bra AGAIN;
        {first}
        ld.global.u32 %r3, [%rd0]; add.u32 %r3, %r3, 1; st.global.u32 [%rd0], %r3;
        {last} {give}
    DONE:""")
