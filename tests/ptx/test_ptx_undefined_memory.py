"""Memory that nobody wrote: a read of it is an error, or, where undefined values are followed, a use that matters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernels import kernel, run_elements

from cutegen.ptx import ExecutionFault, LaunchError, Program, ViolationKind
from cutegen.ptx.checking import check_entry, explored_policies

SHARED = ".shared .align 16 .b8 room[128]; .reg .b32 %s; mov.u32 %s, room; shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %s;"
STORED = SHARED + "setp.lt.u32 %p1, %r0, 31; @%p1 st.shared.u32 [%r4], %r0; bar.warp.sync -1; ld.shared.u32 %r5, [%r4];"
"""Every lane but the last has stored its number; all have read it."""
FRAME = ".local .align 8 .b8 frame[16]; .reg .b64 %a; mov.u64 %a, frame; st.local.u8 [%a], 7;"
"""Byte 0 of a frame is written."""
HARMLESS = {
    "selected away": STORED + "selp.u32 %r3, %r5, 9, %p1;",
    "in a comparison that another one decides": STORED
    + "setp.ne.u32 %p2, %r5, 3; and.pred %p2, %p2, %p1; selp.u32 %r3, 1, 0, %p2;",
    "copied from frame to frame": FRAME
    + "ld.local.u32 %r5, [%a+4]; st.local.u32 [%a+8], %r5; ld.local.u32 %r6, [%a+8]; mov.u32 %r3, 1;",
    "padding of a structure": FRAME
    + '.pragma "used_bytes_mask 1"; ld.local.u32 %r5, [%a]; st.local.u32 [%a+8], %r5; ld.local.u8 %r3, [%a+8];',
    "never used": STORED + "mov.u32 %r3, %r0;",
}
"""Kernels that read what nobody wrote, and of which nothing comes."""
HARMFUL = {
    "stored to global memory": (STORED + "mov.u32 %r3, %r5;", "st.global"),
    "stored to shared memory": (STORED + "add.u32 %r5, %r5, 1; st.shared.u32 [%r4], %r5; mov.u32 %r3, 1;", "st.shared"),
    "an address": (STORED + "shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %s; ld.shared.u32 %r3, [%r5];", "ld.shared"),
    "a branch": (STORED + "mov.u32 %r3, 1; setp.eq.u32 %p2, %r5, 3; @%p2 bra OUT; mov.u32 %r3, 2; OUT:", "bra"),
    "copied from frame to frame, and used": (
        FRAME + "ld.local.u32 %r5, [%a+4]; st.local.u32 [%a+8], %r5; ld.local.u32 %r3, [%a+8];",
        "st.global",
    ),
    "padding that no pragma leaves out": (
        FRAME + "ld.local.u32 %r5, [%a]; st.local.u32 [%a+8], %r5; ld.local.u8 %r3, [%a+8];",
        "st.global",
    ),
    "a used byte that nobody wrote": (
        FRAME + '.pragma "used_bytes_mask 3"; ld.local.u32 %r5, [%a]; and.b32 %r3, %r5, 255;',
        "st.global",
    ),
}
"""Kernels in which it matters, and the instruction that says so."""
EXPECTED = {"selected away": [*range(31), 9], "padding of a structure": [7] * 32, "never used": list(range(32))}


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("policy", ["in-order", "reversed", "random:1"])
def test_what_does_not_matter_is_an_error_only_if_it_is_not_followed(name: str, policy: str) -> None:
    text = kernel(HARMLESS[name])
    with pytest.raises(ExecutionFault, match="memory that was never written"):
        run_elements(text, np.uint32, policy=policy)
    out = run_elements(text, np.uint32, policy=policy, follows_memory=True)
    assert name not in EXPECTED or out.tolist() == EXPECTED[name]


@pytest.mark.parametrize("name", HARMFUL)
@pytest.mark.parametrize("policy", ["in-order", "reversed", "random:1"])
def test_what_matters_is_an_error_where_it_does(name: str, policy: str) -> None:
    body, where = HARMFUL[name]
    with pytest.raises(ExecutionFault) as caught:
        run_elements(kernel(body), np.uint32, policy=policy, follows_memory=True)
    assert caught.value.violation.kind is ViolationKind.UNINITIALIZED
    assert where in caught.value.violation.instruction


@pytest.mark.parametrize(("bodies", "is_error"), [(HARMLESS, False), (HARMFUL, True)])
def test_check_follows_what_was_read(bodies: dict[str, object], is_error: bool) -> None:
    """Of a kernel in which it matters the reads are reported, as before."""
    for name, given in bodies.items():
        body = given if isinstance(given, str) else given[0]  # type: ignore[index]
        program = Program.parse(kernel(body))
        found = check_entry(
            lambda values, program=program, **options: program.launch("k", grid=1, block=32, args=values, **options),
            lambda: [np.zeros(32, np.uint32)],
            explored_policies(3, 0),
            finished=lambda policy, values: None,
            max_steps=10_000,
        )
        kinds = {finding.violation.kind for finding in found}
        assert (ViolationKind.UNINITIALIZED in kinds) == is_error, name
        assert is_error or kinds <= {ViolationKind.CONVENTION}, name


def test_a_launch_that_follows_runs_in_one_process() -> None:
    text = kernel(HARMLESS["never used"])
    with pytest.raises(LaunchError, match=re.escape("jobs is 2; expected 1")):
        run_elements(text, np.uint32, jobs=2, follows_memory=True)
