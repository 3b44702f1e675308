"""A kernel small enough to be read, with everything in its launch that tensor maps and persistent CTAs bring.

It is no GEMM. Of square matrices it makes C = A + B', where B' is B as it lies in memory, (N,K). Boxes of A and B come
by bulk tensor copies, 64 x 64 elements with a swizzle of 128 bytes, and one of C leaves the same way. The sum is taken
chunk by chunk, so that the kernel need not know where the swizzle puts an element.
"""

from __future__ import annotations

from typing import Any

from cutegen.contract.launch import LaunchContract, TensorContract, gemm_parameters
from cutegen.contract.tensor_map import TensorMapContract

BOX = 64
_BOX_BYTES = BOX * BOX * 2
_MAPS = tuple(TensorMapContract(name, (BOX, BOX), 128) for name in "abc")
_TENSORS = (
    TensorContract("a", "f16", ("m", "k"), "k", 16),
    TensorContract("b", "f16", ("n", "k"), "k", 16),
    TensorContract("c", "f16", ("m", "n"), "n", 16),
)
CONTRACT = LaunchContract(
    entry="sum_by_maps",
    tensors=_TENSORS,
    parameters=gemm_parameters(_TENSORS, (), _MAPS),
    cta_tile=(BOX, BOX),
    threads=128,
    dynamic_smem_bytes=2 * _BOX_BYTES + 8,
    ctas_per_multiprocessor=1,
    maps=_MAPS,
)


def expected(a: Any, b: Any) -> Any:
    """What the kernel makes of `a` (M,K) and `b` (K,N) as a call has them, or of batches."""
    return a + b.swapaxes(-1, -2)


_LOAD = "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_STORE = "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"


def _vector(index: int) -> str:
    """One 16-byte chunk of a thread: added in shared memory, where A's box lies first."""
    at = index * 2048
    adds = "\n".join(f"    add.rn.f16x2 %r{20 + i}, %r{20 + i}, %r{24 + i};" for i in range(4))
    return f"""
    ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r10+{at}];
    ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r10+{at + _BOX_BYTES}];
{adds}
    st.shared.v4.b32 [%r10+{at}], {{%r20, %r21, %r22, %r23}};"""


PTX = f"""
.version 8.0
.target sm_90
.address_size 64

.extern .shared .align 1024 .b8 smem[];

.visible .entry sum_by_maps(
    .param .align 64 .b8 map_a[128],
    .param .align 64 .b8 map_b[128],
    .param .align 64 .b8 map_c[128],
    .param .u32 m,
    .param .u32 n,
    .param .u32 k
)
.maxntid 128, 1, 1
{{
    .reg .pred %p<4>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<8>;

    mov.b64 %rd1, map_a;
    cvta.param.u64 %rd1, %rd1;
    mov.b64 %rd2, map_b;
    cvta.param.u64 %rd2, %rd2;
    mov.b64 %rd3, map_c;
    cvta.param.u64 %rd3, %rd3;
    mov.u32 %r0, smem;
    add.s32 %r1, %r0, {2 * _BOX_BYTES};
    mov.u32 %r2, %tid.x;
    shl.b32 %r10, %r2, 4;
    add.s32 %r10, %r10, %r0;
    setp.ne.s32 %p0, %r2, 0;

    ld.param.u32 %r3, [m];
    add.s32 %r3, %r3, {BOX - 1};
    shr.u32 %r3, %r3, 6;
    ld.param.u32 %r4, [n];
    add.s32 %r4, %r4, {BOX - 1};
    shr.u32 %r4, %r4, 6;
    mul.lo.s32 %r5, %r3, %r4;

    @%p0 bra READY;
    mbarrier.init.shared::cta.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    mov.u32 %r7, %ctaid.x;
    mov.u32 %r8, %nctaid.x;
    mov.u32 %r9, 0;
    mov.u32 %r11, %ctaid.z;

TILE:
    setp.ge.u32 %p1, %r7, %r5;
    @%p1 bra DONE;
    div.u32 %r13, %r7, %r4;
    rem.u32 %r14, %r7, %r4;
    shl.b32 %r13, %r13, 6;
    shl.b32 %r14, %r14, 6;
    @%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd4, [%r1], {2 * _BOX_BYTES};
    {_LOAD} [%r0], [%rd1, {{%r14, %r13, %r11}}], [%r1];
    add.s32 %r15, %r0, {_BOX_BYTES};
    {_LOAD} [%r15], [%rd2, {{%r14, %r13, %r11}}], [%r1];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %r9;
    @!%p2 bra WAIT;
    xor.b32 %r9, %r9, 1;
{"".join(_vector(index) for index in range(4))}
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p0 bra NEXT;
    {_STORE} [%rd3, {{%r14, %r13, %r11}}], [%r0];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
NEXT:
    bar.sync 0;
    add.s32 %r7, %r7, %r8;
    bra TILE;

DONE:
    @%p0 bra END;
    cp.async.bulk.wait_group 0;
END:
    ret;
}}
"""
