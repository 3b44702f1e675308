"""What orders one lane's accesses for another's: fences and reads of single lanes, transactions beyond the expected."""

from __future__ import annotations

import numpy as np
import pytest
from bulk_kernels import POLICIES, READY, expect, fault, launch, load, store, wait

from cutegen.ptx import TensorMap, ViolationKind

BOX_BYTES = 16 * 32 * 4
FILL_BY_BOTH_WARPS = "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4;" + "".join(
    f"st.shared.b32 [%r6+{256 * i}], %r0;" for i in range(BOX_BYTES // 256)
)
"""64 threads write a box of 16 rows of 32 words."""
STORED = "bar.sync 0;" + store((0, 0)) + "@%p0 cp.async.bulk.wait_group.read 0;"


def box() -> TensorMap:
    tensor = np.zeros((16, 32), np.uint32)
    return TensorMap(array=tensor, extents=(32, 16), strides_bytes=(128,), box=(32, 16))


def fence_by(lanes: str) -> str:
    """`fence.proxy.async` by the threads whose lane number is 0, or by those of the other lanes."""
    compare = {"first": "eq", "others": "ne", "all": "ge"}[lanes]
    return f"and.b32 %r8, %r0, 31; setp.{compare}.u32 %p1, %r8, 0; @%p1 fence.proxy.async;"


@pytest.mark.parametrize("lanes", ["first", "others"])
def test_a_proxy_fence_of_some_lanes_does_not_serve_what_other_lanes_wrote(lanes: str) -> None:
    violation = fault(READY + FILL_BY_BOTH_WARPS + fence_by(lanes) + STORED, box(), block=64)
    assert violation.kind is ViolationKind.RACE
    assert "no fence.proxy.async between the write" in violation.message


@pytest.mark.parametrize("between", [fence_by("all"), "bar.warp.sync -1;" + fence_by("first")])
def test_a_proxy_fence_serves_what_its_thread_wrote_or_is_ordered_behind(between: str) -> None:
    """Each lane fences its own writes; or one lane fences, of each warp, what a warp barrier has told it of."""
    for policy in POLICIES:
        tensor_map = box()
        launch(READY + FILL_BY_BOTH_WARPS + between + STORED, tensor_map, block=64, policy=policy)
        assert (tensor_map.array == np.arange(64, dtype=np.uint32).reshape(2, 32)[np.arange(16) % 2]).all()


TWO_LANES_READ = """
    @%p0 st.shared.b32 [%r4], 5; bar.sync 0;
    setp.eq.u32 %p1, %r0, {first}; @%p1 ld.shared.b32 %r3, [%r4];
    setp.eq.u32 %p2, %r0, {second}; @%p2 ld.shared.b32 %r3, [%r4]; {between}
    setp.eq.u32 %p3, %r0, {writer}; @%p3 st.shared.b32 [%r4], 7;"""
"""Two lanes read a word, each by an instruction of its own; then one lane writes it."""


@pytest.mark.parametrize("writer", [1, 2, 3])
def test_a_write_after_the_reads_of_two_lanes_races_with_the_other_lanes_read(writer: int) -> None:
    body = READY + TWO_LANES_READ.format(first=1, second=2, between="", writer=writer)
    violation = fault(body)
    assert violation.kind is ViolationKind.RACE
    assert "write without a barrier after the read" in violation.message
    ordered = TWO_LANES_READ.format(first=1, second=2, between="bar.warp.sync -1;", writer=writer)
    for policy in POLICIES:
        launch(READY + ordered, policy=policy)


def test_a_lane_may_write_what_only_it_has_read() -> None:
    body = READY + TWO_LANES_READ.format(first=2, second=2, between="", writer=2)
    for policy in POLICIES:
        launch(body, policy=policy)


def test_a_copy_of_more_bytes_than_expected_completes_no_phase() -> None:
    """PTX ISA, "Phase of the mbarrier object": a phase is complete when its tx-count is 0, and -1024 is not 0."""
    violation = fault(READY + expect(BOX_BYTES - 1024) + load((0, 0)) + wait(), box())
    assert violation.kind is ViolationKind.BARRIER
    assert "1 of 1 arrivals have come, tx-count -1024" in violation.message
