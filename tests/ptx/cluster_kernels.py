"""Pieces of PTX for tests of clusters: two CTAs of 64 threads, or more, whose buffers are in static shared memory.

`%r0` is the thread, `%r1` the CTA's rank, `%r2` that of its neighbor, `%r4` the shared memory's first byte, `%r6` the
thread's word there. The mbarrier that `READY` makes is at the end, at `[%r5]`; `%p0` is thread 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from kernels import kernel

from cutegen.ptx import LaunchReport, Program, TensorMap

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
SMEM_BYTES = 16384
BARRIER = SMEM_BYTES - 8
BLOCK = 64
BOX_BYTES = 32 * 16 * 4

HERE = f"""
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r20, %ctaid.x; mad.lo.u32 %r21, %r20, {BLOCK}, %r0;
    mul.wide.u32 %rd1, %r21, 4; add.s64 %rd1, %rd0, %rd1; mov.u32 %r4, smem; add.s32 %r5, %r4, {BARRIER};
    shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4; mov.b32 %r3, 0; setp.eq.u32 %p0, %r0, 0;
    mov.u32 %r22, %cluster_nctarank; add.u32 %r2, %r1, 1; rem.u32 %r2, %r2, %r22;
"""
ARRIVE, WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
SYNC = ARRIVE + WAIT
RELAXED = "barrier.cluster.arrive.relaxed.aligned;" + WAIT
INIT = "@%p0 mbarrier.init.shared.b64 [%r5], {arrivals};"
FENCE = "@%p0 fence.mbarrier_init.release.cluster;"


def ready(arrivals: int) -> str:
    """Thread 0 of each CTA makes the mbarrier for so many arrivals; all CTAs know of it."""
    return INIT.format(arrivals=arrivals) + FENCE + RELAXED


def neighbor(register: str, address: str) -> str:
    """The address in the next CTA of what `address` means here."""
    return f"mapa.shared::cluster.u32 {register}, {address}, %r2;"


def arrive_at(register: str, *, guard: str = "@%p0", words: str = "release.cluster.") -> str:
    """An arrival at the mbarrier of another CTA."""
    return f"{guard} mbarrier.arrive.{words}shared::cluster.b64 _, [{register}];"


def wait(parity: int | str = 0, *, name: str = "W", at: str = "%r5", words: str = "acquire.cluster.") -> str:
    """Waits for the phase of `parity`."""
    body = f"mbarrier.try_wait.parity.{words}shared::cta.b64 P, [{at}], {parity}; @P bra DONE; bra AGAIN; DONE:"
    return f"{{ .reg .pred P; AGAIN: {body} }} {name}:"


def expect(size_bytes: int) -> str:
    """Thread 0 arrives and expects bytes."""
    return f"@%p0 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r5], {size_bytes};"


MAP = "mov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2;"


def multicast(guard: str, corner: tuple[int, int], *, mask: str = "3", to: str = "%r4") -> str:
    """One thread copies the box at `corner` to byte `to` of every CTA in `mask`."""
    opcode = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    where = f"{{{corner[0]}, {corner[1]}}}"
    return MAP + f"mov.u16 %h0, {mask}; {guard} {opcode} [{to}], [%rd3, {where}], [%r5], %h0;"


def ring(turns: int = 4) -> str:
    """CTA 0 fills the one stage of both CTAs; the warps of both release it at CTA 0's second mbarrier."""
    opcode = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    return (
        HERE
        + "add.s32 %r12, %r5, -8; @%p0 mbarrier.init.shared.b64 [%r12], 4;"
        + ready(1)
        + "mov.u32 %r9, 0; mapa.shared::cluster.u32 %r13, %r12, %r9; mov.u32 %r14, 0; mov.b64 %rd2, map;"
        + "cvta.param.u64 %rd3, %rd2; and.b32 %r18, %r0, 31; setp.eq.u32 %p7, %r18, 0; mov.u16 %h0, 3;"
        + "setp.eq.and.u32 %p5, %r1, 0, %p0; TURN: and.b32 %r15, %r14, 1; xor.b32 %r16, %r15, 1; shl.b32 %r17, %r14, 4;"
        + expect(BOX_BYTES)
        + "@!%p5 bra COPIED;"
        + wait("%r16", name="EMPTY", at="%r12")
        + f"{opcode} [%r4], [%rd3, {{%r9, %r17}}], [%r5], %h0;"
        + "COPIED: bar.warp.sync -1;"
        + wait("%r15", name="FULL")
        + "ld.shared.u32 %r11, [%r6]; mad.lo.u32 %r3, %r3, 3, %r11; bar.warp.sync -1;"
        + arrive_at("%r13", guard="@%p7")
        + f"add.u32 %r14, %r14, 1; setp.lt.u32 %p2, %r14, {turns}; @%p2 bra TURN;"
        + SYNC
    )


def launch(
    body: str,
    *,
    cluster: int = 2,
    grid: int | None = None,
    tensor_map: TensorMap | None = None,
    block: int = BLOCK,
    words: int = 0,
    **options: Any,
) -> tuple[np.ndarray[Any, Any], LaunchReport]:
    """(`%r3` of each thread of each CTA, the report)."""
    ctas = grid or cluster
    maps = ".param .align 64 .b8 map[128], " if tensor_map is not None else ""
    text = kernel(body, shared_bytes=SMEM_BYTES, parameters=maps + ".param .u64 out")
    out = np.full(ctas * block + words, 0xDEADBEEF, np.uint32)
    args: list[Any] = [out] if tensor_map is None else [tensor_map, out]
    program = Program.parse(text)
    report = program.launch("k", grid=ctas, block=block, cluster=cluster, args=args, max_steps=200_000, **options)
    return (out if words else out.reshape(ctas, block)), report
