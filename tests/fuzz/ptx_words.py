"""Words of PTX: opcodes, modifiers, types and operands, some of which no ISA has."""

from __future__ import annotations

TYPES = tuple(
    """
    b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 tf32 e4m3x2 e5m2x2 pred b128
    """.split()  # noqa: SIM905 - words are easier to read
)
MODIFIERS = tuple(
    """
    rn rz rm rp rni rzi ftz sat satfinite wide hi lo approx relu full global shared shared::cta
    shared::cluster param local const v2 v4 sync aligned volatile relaxed acquire release acq_rel cta gpu sys
    noftz x1 x2 x4 trans m8n8 m16n8k16 row col uni eq ne lt nan and or cc L2::128B noinc b1024 pred clamp wrap v8
    mbarrier::complete_tx::bytes bulk_group multicast::cluster cta_group::1 cta_group::2 get_first_ctaid::x
    """.split()  # noqa: SIM905 - words are easier to read
)
OPCODES = tuple(
    """
    mov add sub mul mad fma div rem abs neg min max cvt setp selp set and or xor not shl shr shf prmt bfe bfi
    bfind brev popc clz lop3 ld st ldmatrix mma cp.async cp.async.wait_group cp.async.commit_group bar.sync
    barrier.sync shfl.sync.bfly vote.sync.ballot atom.add red.add mbarrier.init mbarrier.arrive
    mbarrier.try_wait cp.async.bulk.tensor.2d fence membar ex2 lg2 rcp rsqrt sqrt sin tanh cvta bra ret exit
    trap nop elect.sync testp copysign dp4a sad isspacep addc wgmma tex call call.uni bmsk szext cp.async.bulk
    cp.reduce.async.bulk cp.async.mbarrier.arrive griddepcontrol.wait tensormap.replace.tile.rank
    tensormap.replace.tile.global_dim tensormap.cp_fenceproxy fence.proxy.tensormap::generic.acquire.gpu
    clusterlaunchcontrol.try_cancel.async clusterlaunchcontrol.query_cancel.is_canceled st.bulk wmma.load
    """.split()  # noqa: SIM905 - words are easier to read
)
OPERANDS = tuple(
    """
    %r1 %r2 %r31 %r99 %h1 %f1 %f2 %rd1 %rd2 %p1 !%p1 %p1|%p2 0 1 -1 7 32 0x7fffffff 4294967296
    99999999999999999999999 1.5 0f3F800000 0d3FF0000000000000 nan [%rd1] [%rd1+4] [%rd1+-4] [%r1] [smem]
    [smem+8] [out] smem {%r1,%r2} {%r1,%r2,%r3,%r4} {%f1} {} %tid.x %ctaid.y %laneid %clock _ LABEL "text"
    %r1:%r2 (%r1) [%rd1,{%r1,%r2}] (%r1,%rd1) () vprintf __assertfail %globaltimer %envreg2 %clock64
    """.split()  # noqa: SIM905 - words are easier to read
)
