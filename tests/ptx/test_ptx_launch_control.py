"""Cluster launch control and registers of 128 bits: every tile once under every policy, and wrong twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster_kernels import HERE, SYNC, launch, ready, wait
from kernels import cuda_program, kernel, run_elements

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ALL_KINDS, IN_ORDER, ExecutionFault, Program, ViolationKind
from cutegen.ptx.machine.launch_control import ClusterQueue

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)
K = ViolationKind
TEXT = cuda_program("launch_control").text
TILES = 20


TRY = "clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes{more}.b128 [%r4], [%r5];"
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r5], 16;"
READ = "{ .reg .b128 h; .reg .pred q; ld.shared.b128 h, [%r4];"
READ += "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 q, h; selp.u32 %r3, 1, 0, q; }"


def tiles(policy: str, text: str = TEXT, **options: Any) -> int:
    """Run 5 x 4 blocks; return how many requests there were."""
    out, counts = np.full((TILES, 4), -1, np.int32), np.zeros(1, np.int32)
    done: list[int] = []
    report = Program.parse(text).launch(
        "tiles",
        grid=(5, 4),
        block=64,
        args=[out, counts],
        policy=policy,
        max_steps=200_000,
        progress=lambda now, total: done.append(now),
        **options,
    )
    assert (out == 3 * np.arange(TILES)[:, None] + np.arange(4)).all()
    assert counts[0] == TILES
    assert done == list(range(1, TILES + 1))
    return report.executed("clusterlaunchcontrol.try_cancel")


@EVERY_POLICY
def test_every_tile_is_computed_once(policy: str) -> None:
    """A block makes one request for each of its tiles, and the last one is refused."""
    assert tiles(policy) == TILES


def test_requests_are_refused_early_and_in_any_order() -> None:
    """In order the first block takes over all others; the other policies start several, which take turns."""
    started = "st.global.u32 [%rd1], 1; ret;"
    body = f"""
    mov.u32 %r4, smem; add.u32 %r5, %r4, 16; setp.eq.u32 %p0, %r0, 0; mov.u32 %r6, %ctaid.x; mov.u32 %r7, 0;
    mul.wide.u32 %rd1, %r6, 4; add.s64 %rd1, %rd0, %rd1;
    @%p0 mbarrier.init.shared.b64 [%r5], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0;
    MORE: {EXPECT} @%p0 {TRY.format(more="")} {wait("%r7")} xor.b32 %r7, %r7, 1; {READ}
    fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p2, %r3, 1; @%p2 bra MORE; setp.ne.u32 %p3, %r0, 0;
    @%p3 ret; {started}
    """
    starts = {}
    for policy in POLICIES:
        out = np.zeros(TILES, np.uint32)
        Program.parse(kernel(body, shared_bytes=64)).launch("k", grid=TILES, block=32, args=[out], policy=policy)
        starts[policy] = int(out.sum())
    assert starts["in-order"] == 1
    assert all(1 < starts[policy] < TILES for policy in POLICIES if policy != "in-order")


REQUEST = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r15], [%r14];"
ASKED = "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 canceled, handle;"
GUARDED = "@canceled clusterlaunchcontrol.query_cancel.get_first_ctaid"
MISTAKES = [
    ("no request", (REQUEST, ""), {K.BARRIER, K.UNINITIALIZED, K.ASYNC_COPY}),
    ("no query", (ASKED, "setp.eq.u32 canceled, %r1, %r1;"), {K.OUT_OF_BOUNDS}),
    ("no wait for the response", ("@!done bra again;", ""), {K.ASYNC_COPY, K.UNINITIALIZED, K.BARRIER}),
    ("too few bytes expected", ("shared.b64 _, [%r14], 16;", "shared.b64 _, [%r14], 8;"), {K.BARRIER, K.ASYNC_COPY}),
    ("no fence after mbarrier.init", ("fence.mbarrier_init.release.cluster;", ""), {K.RACE}),
    ("a request while others still read the response", ("fence.proxy.async.shared::cta;\n\t// end inline asm\n"
     "\tbar.sync \t0;", ""), {K.RACE, K.BARRIER, K.ASYNC_COPY}),
    ("an answer that is not one", ("ld.shared.b128 handle, [%r26];", "mov.b128 handle, {%rd1, %rd1};"),
     {K.LAUNCH_CONTROL}),
    ("a place for the response that is not aligned", ("b128 [%r15], [%r14]", "b128 [%r15+8], [%r14]"), {K.MISALIGNED}),
]  # fmt: skip


@EVERY_POLICY
@pytest.mark.parametrize(("name", "change", "kinds"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_the_wrong_ones_are_caught(name: str, change: tuple[str, str], kinds: set[K], policy: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(ExecutionFault) as caught:
        tiles(policy, TEXT.replace(*change))
    assert caught.value.violation.kind in kinds


@EVERY_POLICY
def test_the_first_cta_of_a_refused_request_is_a_convention(policy: str) -> None:
    """CUTLASS's persistent kernels read it before they look whether it is valid."""
    text = TEXT.replace(GUARDED, GUARDED.removeprefix("@canceled "))
    tiles(policy, text)
    with pytest.raises(ExecutionFault, match="there is no first CTA") as caught:
        tiles(policy, text, raise_on=ALL_KINDS)
    assert caught.value.violation.kind is K.CONVENTION


@EVERY_POLICY
def test_a_response_goes_to_all_ctas_of_a_cluster(policy: str) -> None:
    body = HERE + ready(1) + SYNC + EXPECT + "setp.eq.and.u32 %p5, %r1, 0, %p0; @%p5 "
    right = body + TRY.format(more=".multicast::cluster::all") + wait() + READ + SYNC
    out, _ = launch(right, policy=policy)
    assert (out == 0).all()  # the grid has one cluster: nothing is left to cancel
    with pytest.raises(ExecutionFault) as caught:
        launch(body + TRY.format(more="") + wait() + READ + SYNC, policy=policy)
    assert caught.value.violation.kind is K.BARRIER


@EVERY_POLICY
def test_no_request_follows_a_refusal(policy: str) -> None:
    once = HERE + ready(1) + SYNC + EXPECT + "@%p0 " + TRY.format(more="") + wait() + READ + SYNC
    launch(once, cluster=1, policy=policy)
    again = (
        once + "@%p0 fence.proxy.async.shared::cta;" + EXPECT + "@%p0 " + TRY.format(more="") + wait(1, name="V") + SYNC
    )
    with pytest.raises(ExecutionFault, match="after a response of a request that was refused") as caught:
        launch(again, cluster=1, policy=policy)
    assert caught.value.violation.kind is K.LAUNCH_CONTROL


MOVE = ".reg .b128 %q<2>; cvt.u64.u32 %rd2, %r0; not.b64 %rd3, %rd2; mov.b128 %q0, {%rd2, %rd3}; mov.b128 %q1, %q0;"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("mov.b128 {%rd4, %rd5}, %q1; cvt.u32.u64 %r3, %rd4;", np.arange(32)),
        ("mov.b128 {_, %rd5}, %q1; cvt.u32.u64 %r3, %rd5;", ~np.arange(32) & 0xFFFFFFFF),
        ("setp.lt.u32 %p1, %r0, 9; mov.b128 %q0, {%rd3, %rd2}; @%p1 mov.b128 %q1, %q0; mov.b128 {%rd4, _}, %q1;"
         "cvt.u32.u64 %r3, %rd4;", np.where(np.arange(32) < 9, ~np.arange(32) & 0xFFFFFFFF, np.arange(32))),
        ("shl.b32 %r4, %r0, 4; mov.u32 %r5, smem; add.u32 %r4, %r4, %r5; st.shared.b128 [%r4], %q1;"
         "ld.shared.u32 %r3, [%r4+8];", ~np.arange(32) & 0xFFFFFFFF),
    ],
)  # fmt: skip
def test_registers_of_128_bits(body: str, found: np.ndarray) -> None:
    assert (run_elements(kernel(MOVE + body, shared_bytes=512), np.uint32) == found).all()


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("mov.b128 %q0, 5;", "a literal has at most 64 bits"),
        ("mov.b128 %q0, {%r1, %r1, %r1, %r1};", "a .b128 cannot be 4 parts"),
        ("mov.b128 %q0, %rd1;", "has 64 bits, type .b128 has 128"),
        ("add.u64 %q0, %rd1, %rd1;", "has 128 bits, type .u64 has 64"),
        ("ld.global.v2.b128 {%q0, %q1}, [%rd1];", "2 x .b128 does not exist"),
        ("clusterlaunchcontrol.try_cancel.b128 [%r1], [%r1];", "expected one of .async"),
        ("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1];", "2 operands"),
        ("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %r1, %q0;", "has 32 bits, type .pred has 1"),
        ("clusterlaunchcontrol.query_cancel.get_first_ctaid::w.b32.b128 %r1, %q0;", "expected one of .is_canceled"),
        ("clusterlaunchcontrol.query_cancel.get_first_ctaid.b32.b128 %r1, %q0;", "expected one of .v4"),
        ("clusterlaunchcontrol.abort;", "expected 2 operands"),
    ],
)
def test_other_forms_are_refused(instruction: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message.replace(".", r"\.")):
        run_elements(kernel(".reg .b128 %q<2>;" + instruction), np.uint32)


@EVERY_POLICY
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_coordinates_of_the_first_cta(axis: int, policy: str) -> None:
    """Block (0, 0, 0), if it starts first, cancels another block of 2 x 3 x 2, whose coordinates it stores."""
    body = f"""
    mov.u32 %r4, smem; add.u32 %r5, %r4, 16; setp.eq.u32 %p0, %r0, 0; mov.u32 %r3, 99;
    @%p0 mbarrier.init.shared.b64 [%r5], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0;
    {EXPECT} @%p0 {TRY.format(more="")} {wait()}
    {{ .reg .b128 h; .reg .pred q; ld.shared.b128 h, [%r4];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 q, h;
    @q clusterlaunchcontrol.query_cancel.get_first_ctaid::{"xyz"[axis]}.b32.b128 %r3, h; }}
    mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z; mad.lo.u32 %r6, %r7, 2, %r6;
    mad.lo.u32 %r6, %r8, 6, %r6; mad.lo.u32 %r6, %r6, 32, %r0; mul.wide.u32 %rd1, %r6, 4; add.s64 %rd1, %rd0, %rd1;
    """
    out = np.full((12, 32), 77, np.uint32)
    Program.parse(kernel(body, shared_bytes=64)).launch("k", grid=(2, 3, 2), block=32, args=[out], policy=policy)
    told = out[(out != 77).all(axis=1)]
    assert (told == told[:, :1]).all()
    seen = [int(value) for value in told[:, 0] if value != 99]
    ran = {tuple(int(v) for v in np.unravel_index(i, (2, 3, 2)))[::-1] for i in np.flatnonzero((out != 77).all(axis=1))}
    cancelled = [place for place in np.ndindex(2, 3, 2) if tuple(place)[::-1] not in ran]
    assert sorted(seen) == sorted(place[::-1][axis] for place in cancelled)


def test_clusters_of_a_large_grid_start_one_after_the_other() -> None:
    """A million of them take a moment, not the minutes that shifting them each time takes."""
    queue = ClusterQueue(range(1 << 20), IN_ORDER.schedule("test"), lambda: None)
    assert [queue.start() for _ in range(1 << 20)] == list(range(1 << 20))
    assert not queue
