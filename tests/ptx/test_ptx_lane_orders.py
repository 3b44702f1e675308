"""What one lane alone has waited for, through mbarriers, flags in shared memory and proxy fences."""

from __future__ import annotations

import numpy as np
import pytest
from bulk_kernels import POLICIES, READY, dump, expect, launch, load, store, wait
from kernels import kernel, run_elements
from test_ptx_bulk import matrix_map

from cutegen.ptx import ALL_KINDS, ExecutionFault

SECOND = "[%r5+-8]"
MADE_FOR_A_WARP = READY.replace("[%r5], 1;", f"[%r5], 32; @%p0 mbarrier.init.shared.b64 {SECOND}, 1;")
WARP_1_FILLS = (
    "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4; setp.lt.u32 %p1, %r0, 32; @%p1 bra FILLED; mov.b32 %r8, 77;"
    + "".join(f"st.shared.b32 [%r6+{128 * row - 128}], %r8;" for row in range(16))
    + "mbarrier.arrive.shared.b64 _, [%r5]; FILLED:"
)
"""Each lane of warp 1 writes its column of 16 rows of 32 words, and arrives for itself."""


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lane_that_waited_alone_may_read_and_copy_what_it_waited_for(policy: str) -> None:
    """Thread 0 arrives alone elsewhere, waits alone for warp 1, reads its words, and fences them for a bulk copy."""
    body = MADE_FOR_A_WARP + f"@%p0 mbarrier.arrive.shared.b64 _, {SECOND};" + WARP_1_FILLS + wait(guard="@!%p0")
    body += "@%p0 ld.shared.b32 %r3, [%r4+512]; @%p0 fence.proxy.async;" + store((0, 0))
    body += "@%p0 cp.async.bulk.wait_group.read 0;"
    tensor = np.zeros((16, 32), np.uint32)
    launch(body, matrix_map(tensor, (32, 16)), block=64, policy=policy, raise_on=ALL_KINDS)
    assert (tensor == 77).all()
    with pytest.raises(ExecutionFault, match=r"no fence\.proxy\.async"):
        launch(body.replace("@%p0 fence.proxy.async;", ""), matrix_map(tensor, (32, 16)), block=64, policy=policy)


@pytest.mark.parametrize("same", [True, False])
def test_reads_before_a_bulk_copy_want_a_proxy_fence(same: bool) -> None:
    """Of a word that all lanes read, and of words that one lane each has read."""
    array = np.ones((16, 32), np.uint32)
    read = (
        "ld.shared.b32 %r3, [%r4];" if same else "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4; ld.shared.b32 %r3, [%r6];"
    )
    first = READY + expect(2048) + load((0, 0)) + wait(0, name="W0") + read
    again = "bar.sync 0;" + expect(2048) + load((0, 0)) + wait(1, name="W1")
    tensor_map = matrix_map(array, (32, 16))
    for between, told in (("", True), ("fence.proxy.async;", False)):
        _, report = launch(first + between + again + dump(128), tensor_map, out_bytes=128)
        found = [row.message for row in report.conventions]
        assert any("no fence.proxy.async between the read by warp 0" in row for row in found) is told


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("release", "acquire", "ordered"), [(".release.cta", ".acquire.cta", True), (".relaxed.cta",) * 2 + (False,)]
)
def test_a_flag_in_shared_memory_passes_a_message(release: str, acquire: str, ordered: bool, policy: str) -> None:
    """Thread 0 writes a word and sets a flag; thread 32 waits for the flag and reads the word."""
    body = f"""
    mov.u32 %r4, smem; mov.u32 %r3, 0; setp.ne.u32 %p1, %r0, 0;
    @%p1 bra SET; st.shared.u32 [%r4+64], 0; SET: bar.sync 0;
    @%p1 bra TAKE; st.shared.u32 [%r4], 9; st{release}.shared.u32 [%r4+64], 1; bra END;
    TAKE: setp.ne.u32 %p2, %r0, 32; @%p2 bra END;
    AGAIN: ld{acquire}.shared.u32 %r7, [%r4+64]; setp.eq.u32 %p3, %r7, 0; @%p3 bra AGAIN; ld.shared.u32 %r3, [%r4]; END:
    """
    text = kernel(body, shared_bytes=128)
    if ordered:
        assert run_elements(text, np.uint32, block=64, policy=policy)[32] == 9
        return
    with pytest.raises(ExecutionFault, match=r"race|never written"):
        run_elements(text, np.uint32, block=64, policy=policy)
