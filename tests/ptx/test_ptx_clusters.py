"""Clusters: ranks, each other's shared memory, barriers and mbarriers between CTAs, multicast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster_kernels import (
    BOX_BYTES,
    FENCE,
    HERE,
    POLICIES,
    RELAXED,
    SYNC,
    arrive_at,
    expect,
    launch,
    multicast,
    neighbor,
    ready,
    ring,
    wait,
)
from kernels import kernel

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ALL_KINDS, ExecutionFault, LaunchError, Program, TensorMap, ViolationKind

Array = np.ndarray[Any, Any]
EACH_POLICY = pytest.mark.parametrize("policy", POLICIES)


def special(name: str, grid: tuple[int, ...], cluster: tuple[int, ...] | None) -> Array:
    """Reads a special register in each CTA of a grid, by z, y, x."""
    body = f"""
        mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z;
        mov.u32 %r7, %nctaid.x; mov.u32 %r8, %nctaid.y; mad.lo.u32 %r9, %r6, %r8, %r5; mad.lo.u32 %r9, %r9, %r7, %r4;
        mul.wide.u32 %rd1, %r9, 4; add.s64 %rd1, %rd0, %rd1; mov.u32 %r3, {name};"""
    x, y, z = (*grid, 1, 1)[:3]
    out = np.full((z, y, x), 99, np.uint32)
    Program.parse(kernel(body)).launch("k", grid=grid, cluster=cluster, block=1, args=[out])
    return out


def test_ranks_and_places_in_a_cluster() -> None:
    """PTX ISA, "Special Registers": clusters cut the grid, and ranks count in a cluster with x fastest."""
    grid, cluster = (4, 6, 2), (2, 3, 1)
    z, y, x = np.indices((2, 6, 4))
    expected = {
        "%cluster_ctaid.x": x % 2,
        "%cluster_ctaid.y": y % 3,
        "%cluster_ctaid.z": z * 0,
        "%cluster_nctaid.y": 3,
        "%clusterid.x": x // 2,
        "%clusterid.y": y // 3,
        "%clusterid.z": z,
        "%nclusterid.x": 2,
        "%nclusterid.y": 2,
        "%nclusterid.z": 2,
        "%cluster_ctarank": x % 2 + 2 * (y % 3),
        "%cluster_nctarank": 6,
    }
    for name, values in expected.items():
        assert (special(name, grid, cluster) == values).all(), name


@pytest.mark.parametrize(("cluster", "expected"), [(None, 0), ((1,), 1), ((2,), 1)])
def test_a_cluster_is_explicit_where_the_launch_names_it(cluster: tuple[int, ...] | None, expected: int) -> None:
    body = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r3, 1, 0, %p1; mov.u32 %r4, %ctaid.x;"
    body += "mul.wide.u32 %rd1, %r4, 4; add.s64 %rd1, %rd0, %rd1;"
    out = np.full(4, 99, np.uint32)
    Program.parse(kernel(body)).launch("k", grid=4, cluster=cluster, block=1, args=[out])
    assert (out == expected).all()


def with_directives(words: str) -> Program:
    return Program.parse(kernel("mov.u32 %r3, %cluster_nctarank;").replace(")\n{", f") {words}\n{{"))


def test_a_kernel_may_require_its_cluster() -> None:
    out = np.zeros(2, np.uint32)
    program = with_directives(".explicitcluster .reqnctapercluster 2, 1, 1")
    report = program.launch("k", grid=2, block=1, args=[out[:1]], raise_on=())
    assert out[0] == 2
    assert [violation.kind for violation in report.violations] == [ViolationKind.RACE]  # both CTAs write one word
    with pytest.raises(LaunchError, match=r"cluster is \(4, 1, 1\); k requires \(2, 1, 1\)"):
        program.launch("k", grid=4, cluster=4, block=1, args=[out])
    with pytest.raises(LaunchError, match=r"grid \(3, 1, 1\) is not a multiple of cluster \(2, 1, 1\)"):
        program.launch("k", grid=3, block=1, args=[out])
    with pytest.raises(LaunchError, match=r"grid \(2, 3, 1\) is not a multiple of cluster \(1, 2, 1\)"):
        Program.parse(kernel("mov.u32 %r3, 1;")).launch("k", grid=(2, 3), cluster=(1, 2), block=1, args=[out])
    with pytest.raises(LaunchError, match=r"give cluster="):
        with_directives(".explicitcluster").launch("k", grid=1, block=1, args=[out])
    with pytest.raises(LaunchError, match=r"has 8 CTAs; at most 4 are allowed"):
        with_directives(".maxclusterrank 4").launch("k", grid=8, cluster=8, block=1, args=[out])
    with pytest.raises(LaunchError, match=r"has 32 CTAs; at most 16 are allowed"):
        with_directives("").launch("k", grid=32, cluster=32, block=1, args=[out])


VALUE = "mad.lo.u32 %r7, %r1, 1000, %r0;"
EXCHANGE = (
    HERE + VALUE + "st.shared.u32 [%r6], %r7;" + SYNC + neighbor("%r8", "%r6")
) + "ld.shared::cluster.u32 %r3, [%r8];"


def exchanged(cluster: int, grid: int | None = None) -> Array:
    ctas = np.arange(grid or cluster)
    partner = (ctas + 1) % cluster
    return np.asarray(partner[:, None] * 1000 + np.arange(64))


@EACH_POLICY
@pytest.mark.parametrize("cluster", [1, 2, 4, 8, 16])
def test_ctas_read_each_others_shared_memory(cluster: int, policy: str) -> None:
    out, _ = launch(EXCHANGE + SYNC, cluster=cluster, policy=policy)
    assert (out == exchanged(cluster)).all()


@EACH_POLICY
def test_every_cluster_of_a_grid_is_its_own(policy: str) -> None:
    out, _ = launch(EXCHANGE + SYNC, cluster=2, grid=8, policy=policy)
    assert (out == np.concatenate([exchanged(2)] * 4)).all()


def test_clusters_are_spread_over_processes() -> None:
    finished: list[tuple[int, int]] = []
    out, report = launch(EXCHANGE + SYNC, cluster=2, grid=8, jobs=2, progress=lambda *of: finished.append(of))
    assert (finished[0], finished[-1]) == ((2, 8), (8, 8))
    assert (out == np.concatenate([exchanged(2)] * 4)).all()
    assert report.executed("barrier.cluster.arrive") == 8 * 2 * 2


@EACH_POLICY
def test_generic_addresses_reach_a_neighbor(policy: str) -> None:
    """As `cluster.map_shared_rank` of CUDA C++ compiles: `mapa.u64` of a generic address, and generic accesses."""
    body = HERE + VALUE + "st.shared.u32 [%r6], %r7;" + SYNC
    body += "cvt.u64.u32 %rd2, %r6; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd3, %rd2, %r2; getctarank.u64 %r9, %rd3;"
    body += "isspacep.shared::cluster %p2, %rd3; isspacep.shared::cta %p3, %rd3; isspacep.global %p4, %rd3;"
    body += "ld.u32 %r3, [%rd3]; mad.lo.u32 %r3, %r9, 10000, %r3; @%p2 add.u32 %r3, %r3, 100000;"
    body += "@%p3 add.u32 %r3, %r3, 200000; @%p4 add.u32 %r3, %r3, 400000;" + SYNC
    out, _ = launch(body, policy=policy)
    assert (out == exchanged(2) + 10000 * np.array([[1], [0]]) + 100000).all()


@EACH_POLICY
def test_an_address_of_ones_own_is_one_of_the_cluster(policy: str) -> None:
    """A `shared::cta` address means its own CTA in `.shared::cluster`; mapped to its own rank it is `.shared::cta`."""
    body = HERE + VALUE + "st.shared::cluster.u32 [%r6], %r7; bar.sync 0; mapa.shared::cluster.u32 %r8, %r6, %r1;"
    body += "ld.shared::cta.u32 %r3, [%r8]; getctarank.shared::cluster.u32 %r9, %r6; mad.lo.u32 %r3, %r9, 7, %r3;"
    out, _ = launch(body, policy=policy)
    ranks = np.arange(2)[:, None]
    assert (out == ranks * 1000 + np.arange(64) + 7 * ranks).all()


@EACH_POLICY
def test_a_cluster_adds_in_fixed_order(policy: str) -> None:
    """The CTA of rank 0 adds float sums of all ranks, in the order of the ranks: the same bits under every order."""
    cluster = 4
    body = (
        HERE + "cvt.rn.f32.u32 %f1, %r21; rcp.rn.f32 %f1, %f1; add.f32 %f1, %f1, 0f3E99999A; st.shared.f32 [%r6], %f1;"
    )
    body += SYNC + "mov.f32 %f2, 0f00000000; mov.u32 %r9, 0;"
    body += "LOOP: mapa.shared::cluster.u32 %r8, %r6, %r9; ld.shared::cluster.f32 %f3, [%r8]; add.f32 %f2, %f2, %f3;"
    body += "add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, %r22; @%p2 bra LOOP;"
    body += "setp.ne.u32 %p3, %r1, 0; selp.f32 %f2, 0f00000000, %f2, %p3; mov.b32 %r3, %f2;" + SYNC
    out, _ = launch(body, cluster=cluster, policy=policy)
    with np.errstate(divide="ignore"):
        terms = np.float32(1) / np.arange(64 * cluster, dtype=np.float32) + np.float32(0.3)
    total = np.zeros(64, np.float32)
    for part in terms.reshape(cluster, 64):
        total = total + part
    assert (out.view(np.float32)[0] == total).all()
    assert (out[1:] == 0).all()


@EACH_POLICY
def test_atomics_on_one_word_of_a_cluster(policy: str) -> None:
    body = HERE + "@%p0 st.shared.u32 [%r4], 5;" + SYNC + "mov.u32 %r9, 0; mapa.shared::cluster.u32 %r8, %r4, %r9;"
    body += "red.relaxed.cluster.shared::cluster.add.u32 [%r8], %r0;" + SYNC
    body += "setp.eq.u32 %p1, %r1, 0; @%p1 ld.shared.u32 %r3, [%r4];"
    out, _ = launch(body, cluster=4, policy=policy)
    assert (out[0] == 5 + 4 * 63 * 32).all()


@EACH_POLICY
def test_a_fence_and_a_relaxed_arrival_order_as_a_release_does(policy: str) -> None:
    """PTX ISA, `barrier.cluster`: the example with `fence.cluster.acq_rel`."""
    body = EXCHANGE.replace(SYNC, "fence.acq_rel.cluster;" + RELAXED) + SYNC
    out, _ = launch(body, policy=policy)
    assert (out == exchanged(2)).all()


@EACH_POLICY
def test_a_flag_in_a_neighbors_memory(policy: str) -> None:
    """One thread writes a word there, then a flag with release.cluster; its reader asks with acquire.cluster."""
    flag = "LOOP: ld.acquire.cluster.shared::cta.u32 %r9, [%r4+4]; setp.eq.u32 %p2, %r9, 0; @%p2 bra LOOP;"
    body = HERE + "@%p0 st.shared.u32 [%r4+4], 0;" + SYNC + neighbor("%r8", "%r4") + "@!%p0 bra END;"
    body += "st.shared::cluster.u32 [%r8], %r20; st.release.cluster.shared::cluster.u32 [%r8+4], 1;"
    body += flag + "ld.shared.u32 %r3, [%r4]; END:" + SYNC
    out, _ = launch(body, cluster=4, policy=policy)
    assert out[:, 0].tolist() == [3, 0, 1, 2]


@EACH_POLICY
def test_arrivals_at_a_neighbors_mbarrier(policy: str) -> None:
    """Every thread leaves a word with its neighbor and arrives there; its own mbarrier tells that words have come."""
    body = HERE + VALUE + ready(64) + neighbor("%r8", "%r6") + neighbor("%r9", "%r5")
    body += "st.shared::cluster.u32 [%r8], %r7;" + arrive_at("%r9", guard="") + wait() + "ld.shared.u32 %r3, [%r6];"
    out, report = launch(body, cluster=4, policy=policy)
    senders = (np.arange(4) - 1) % 4
    assert (out == senders[:, None] * 1000 + np.arange(64)).all()
    assert report.conventions == ()


def test_arrivals_at_scope_cta_are_a_convention() -> None:
    body = HERE + ready(1) + neighbor("%r9", "%r5") + arrive_at("%r9") + wait()
    usual = body.replace("release.cluster.shared", "shared").replace("acquire.cluster.shared", "shared")
    _, report = launch(usual)
    messages = [violation.message for violation in report.conventions]
    assert ["release at scope cta" in m for m in messages] == [True, False]
    assert ["acquire at scope cta" in m for m in messages] == [False, True]
    with pytest.raises(ExecutionFault, match="release at scope cta to another CTA of the cluster"):
        launch(usual, raise_on=ALL_KINDS)
    launch(body, raise_on=ALL_KINDS)


@EACH_POLICY
def test_bytes_expected_for_a_neighbor(policy: str) -> None:
    """The sender says how many bytes it sends: arrive.expect_tx, and expect_tx, at the mbarrier where they go."""
    body = HERE + VALUE + ready(1) + neighbor("%r8", "%r6") + neighbor("%r9", "%r5")
    body += "@%p0 mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r9], 56;"
    body += "@%p0 mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r9], 200;"
    body += "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r8], %r7, [%r9];"
    body += wait() + "ld.shared.u32 %r3, [%r6];" + SYNC
    out, _ = launch(body, cluster=4, policy=policy)
    assert (out == ((np.arange(4) - 1) % 4)[:, None] * 1000 + np.arange(64)).all()


@EACH_POLICY
def test_stores_that_an_mbarrier_counts(policy: str) -> None:
    body = HERE + VALUE + ready(1) + expect(64 * 8) + "shl.b32 %r10, %r0, 3; add.s32 %r10, %r10, %r4;"
    body += neighbor("%r8", "%r10") + neighbor("%r9", "%r5")
    body += "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r8], {%r7, %r1}, [%r9];"
    body += wait() + "ld.shared.v2.u32 {%r3, %r11}, [%r10]; mad.lo.u32 %r3, %r11, 100000, %r3;" + SYNC
    out, _ = launch(body, cluster=4, policy=policy)
    senders = ((np.arange(4) - 1) % 4)[:, None]
    assert (out == senders * 101000 + np.arange(64)).all()


COPY = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
SENT = (
    HERE + VALUE + ready(1) + expect(256) + "st.shared.u32 [%r6], %r7; fence.proxy.async; bar.sync 0;"
) + "add.s32 %r10, %r4, 1024; mapa.shared::cluster.u32 %r8, %r10, %r2; mapa.shared::cluster.u32 %r9, %r5, %r2;"


@EACH_POLICY
def test_a_bulk_copy_to_a_neighbor(policy: str) -> None:
    body = SENT + f"@%p0 {COPY} [%r8], [%r4], 256, [%r9];" + wait() + "ld.shared.u32 %r3, [%r6+1024];" + SYNC
    out, _ = launch(body, cluster=4, policy=policy)
    senders = ((np.arange(4) - 1) % 4)[:, None]
    assert (out == senders * 1000 + np.arange(64)).all()


@pytest.mark.parametrize(("space", "is_enough"), [("shared::cta", True), ("shared::cluster", True), ("global", False)])
def test_spaces_of_a_proxy_fence(space: str, *, is_enough: bool) -> None:
    body = SENT.replace("proxy.async;", f"proxy.async.{space};") + f"@%p0 {COPY} [%r8], [%r4], 256, [%r9];"
    body += wait() + "mov.u32 %r3, 0;" + SYNC
    if is_enough:
        launch(body, cluster=4)
        return
    with pytest.raises(ExecutionFault, match=r"no fence\.proxy\.async between the write"):
        launch(body, cluster=4)


def test_the_address_in_a_third_cta_of_one_in_a_neighbor() -> None:
    body = HERE + "mapa.shared::cluster.u32 %r8, %r4, %r2; mapa.shared::cluster.u32 %r9, %r8, %r1;"
    out, _ = launch(body + "mapa.shared::cluster.u32 %r10, %r4, %r1; sub.u32 %r3, %r9, %r10;" + SYNC, cluster=4)
    assert (out == 0).all()


@pytest.mark.parametrize(("size", "at"), [(0, "%r8"), (24, "%r8"), (256, "%r8+8")])
def test_a_bulk_copy_to_a_neighbor_moves_chunks_of_16_bytes(size: int, at: str) -> None:
    body = SENT + f"@%p0 {COPY} [{at}], [%r4], {size}, [%r9];" + wait() + "mov.u32 %r3, 0;" + SYNC
    with pytest.raises(ExecutionFault, match="positive multiple of 16") as caught:
        launch(body, cluster=4)
    assert caught.value.violation.kind is ViolationKind.MISALIGNED


def matrix() -> TensorMap:
    array = np.random.default_rng(7).integers(0, 1 << 32, (64, 64), dtype=np.uint32)
    return TensorMap(array=array, extents=(64, 64), strides_bytes=(256,), box=(32, 16))


@EACH_POLICY
def test_multicast_goes_to_the_same_place_in_every_cta(policy: str) -> None:
    """Each CTA loads half and sends it to both, as a GEMM does whose CTAs share an operand."""
    halves = "setp.eq.and.u32 %p5, %r1, 0, %p0; setp.eq.and.u32 %p6, %r1, 1, %p0; add.s32 %r10, %r4, 2048;"
    body = HERE + ready(1) + expect(2 * BOX_BYTES) + halves + multicast("@%p5", (32, 16))
    body += (
        multicast("@%p6", (0, 48), to="%r10") + wait() + "ld.shared.u32 %r3, [%r6+64]; ld.shared.u32 %r11, [%r6+2112];"
    )
    body += "xor.b32 %r3, %r3, %r11;"
    tensor_map = matrix()
    out, report = launch(body, tensor_map=tensor_map, policy=policy)
    first, second = (tensor_map.array[r : r + 16, c : c + 32].reshape(-1)[16:80] for r, c in ((16, 32), (48, 0)))
    assert (out == first ^ second).all()
    assert report.boxes("cp.async.bulk.tensor") == 2
    assert report.shared_bytes("cp.async.bulk.tensor") == 4 * BOX_BYTES
    assert report.global_bytes("cp.async.bulk.tensor") == 2 * BOX_BYTES


def test_multicast_reaches_the_last_of_16_ctas() -> None:
    body = HERE + ready(1) + expect(BOX_BYTES) + "setp.eq.and.u32 %p5, %r1, 3, %p0;"
    body += multicast("@%p5", (0, 0), mask="65535") + wait() + "ld.shared.u32 %r3, [%r6];" + SYNC
    tensor_map = matrix()
    out, _ = launch(body, cluster=16, tensor_map=tensor_map)
    assert (out == tensor_map.array[:16, :32].reshape(-1)[:64]).all()


def test_a_bulk_copy_to_a_neighbor_needs_a_fenced_mbarrier_there() -> None:
    written = "st.shared.u32 [%r6], %r7; fence.proxy.async; bar.sync 0;"
    body = SENT.replace(written, "").replace(VALUE, VALUE + written).replace(RELAXED, SYNC)
    body += f"@%p0 {COPY} [%r8], [%r4], 256, [%r9];" + wait() + "mov.u32 %r3, 0;" + SYNC
    launch(body, cluster=4)
    with pytest.raises(ExecutionFault, match=r"no fence\.mbarrier_init or fence\.proxy\.async between"):
        launch(body.replace(FENCE, ""), cluster=4)


@EACH_POLICY
def test_a_ring_that_ctas_of_a_cluster_release(policy: str) -> None:
    tensor_map = matrix()
    out, _ = launch(ring(), tensor_map=tensor_map, policy=policy)
    expected = np.zeros(64, np.uint32)
    for turn in range(4):
        expected = expected * np.uint32(3) + tensor_map.array[16 * turn : 16 * turn + 16, :32].reshape(-1)[:64]
    assert (out == expected).all()


def test_a_barrier_of_the_cluster_counts_threads_that_have_exited() -> None:
    body = HERE + "setp.lt.u32 %p1, %r0, 32; @%p1 bra LAST; st.global.b32 [%rd1], %r1; ret; LAST: add.u32 %r3, %r1, 7;"
    out, _ = launch(body + SYNC)
    assert (out == np.array([[7] * 32 + [0] * 32, [8] * 32 + [1] * 32])).all()


@EACH_POLICY
def test_lanes_may_arrive_one_after_the_other(policy: str) -> None:
    """Without .aligned the lanes of a warp need not arrive together."""
    halves = (
        "setp.lt.u32 %p1, %r0, 16; @%p1 barrier.cluster.arrive; @!%p1 barrier.cluster.arrive; barrier.cluster.wait;"
    )
    out, _ = launch(EXCHANGE.replace(SYNC, halves) + SYNC, policy=policy)
    assert (out == exchanged(2)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mbarrier.init.shared::cluster.b64 [%r5], 1;", "shared::cluster is not supported"),
        ("mbarrier.try_wait.parity.shared::cluster.b64 %p1, [%r5], 0;", "shared::cluster is not supported"),
        ("mbarrier.arrive.shared::cluster.b64 %rd4, [%r5];", "gives no state; write _"),
        ("barrier.cluster.arrive.acquire;", "acquire is not supported"),
        ("barrier.cluster.wait.relaxed;", "relaxed is not supported"),
        ("barrier.cluster.sync;", "expected one of .arrive"),
        ("mapa.u32 %r3, smem, 0;", "takes .shared::cluster"),
        ("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], [%r5], 16;", "4 operands"),
        ("st.async.shared::cluster.u32 [%r4], %r0, [%r5];", "mbarrier::complete_tx::bytes"),
    ],
)
def test_what_is_no_instruction_is_refused(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message):
        launch(HERE + text)
