"""`setmaxnreg` hands over no more registers than a CTA has, and waits for those that others have not given yet."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import kernel

from cutegen.ptx import ALL_KINDS, LaunchReport, Program, ViolationKind
from cutegen.ptx.watch.violations import ExecutionFault

WARPGROUP = 128
POLICIES = ("in-order", "random:1", "random:2", "random:3")


def shared_out(most: int, least: int, directives: str, *, gives: bool = True) -> str:
    """Warpgroup 0 keeps `least` registers a thread, the others want `most`."""
    text = kernel(
        f"""
    setp.lt.u32 %p1, %r0, {WARPGROUP};
    @%p1 bra GIVES;
    setmaxnreg.inc.sync.aligned.u32 {most};
    bra MEET;
    GIVES:
    {f"setmaxnreg.dec.sync.aligned.u32 {least};" if gives else ""}
    MEET:
    mov.u32 %r3, 7;
"""
    )
    return text.replace("(.param .u64 out)", f"(.param .u64 out) {directives}")


def results(text: str, warpgroups: int, policy: str) -> np.ndarray:
    out = np.zeros(warpgroups * WARPGROUP, np.uint32)
    Program.parse(text).launch("k", grid=1, block=len(out), args=[out], policy=policy)
    return out


# Of 65,536 registers 384 threads begin with 168 each, 512 with 128, 640 with 96, and 256 that leave room for a second
# CTA with 128. Without a directive it is the most that they can have.
FITTING = [
    (3, 232, 40, ".reqntid 384, 1, 1 .minnctapersm 1"),
    (3, 232, 40, ".maxntid 384, 1, 1"),
    (5, 112, 24, ".reqntid 640, 1, 1 .minnctapersm 1"),
    (2, 104, 24, ".maxnreg 64"),
    (2, 232, 24, ".reqntid 256, 1, 1 .minnctapersm 2"),
    (3, 240, 24, ""),
    (4, 160, 32, ""),
    (4, 160, 32, ".maxnreg 168"),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("warpgroups", "most", "least", "directives"), FITTING)
def test_what_a_cta_has_is_shared_out_in_any_order(
    warpgroups: int, most: int, least: int, directives: str, policy: str
) -> None:
    assert (results(shared_out(most, least, directives), warpgroups, policy) == 7).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("warpgroups", "most", "least", "directives"), FITTING)
def test_eight_more_for_each_are_waited_for_without_an_end(
    warpgroups: int, most: int, least: int, directives: str, policy: str
) -> None:
    with pytest.raises(ExecutionFault, match="waits for registers: its CTA has") as found:
        results(shared_out(most + 8, least, directives), warpgroups, policy)
    assert found.value.violation.kind is ViolationKind.BARRIER
    assert "setmaxnreg.inc" in str(found.value)


def test_what_nobody_gives_is_waited_for_without_an_end() -> None:
    """Four warpgroups of 120 beside one of 24 hung on an H100: they want 504 of 480."""
    with pytest.raises(ExecutionFault, match="waits for registers"):
        results(shared_out(232, 40, ".reqntid 384, 1, 1 .minnctapersm 1", gives=False), 3, "in-order")
    with pytest.raises(ExecutionFault, match="waits for registers"):
        results(shared_out(120, 24, ".reqntid 640, 1, 1 .minnctapersm 1"), 5, "in-order")


def branched(first: str, second: str) -> str:
    """Odd warps execute `first`, even ones `second`."""
    return kernel(
        f"""
    shr.u32 %r4, %r0, 5;
    and.b32 %r4, %r4, 1;
    setp.eq.u32 %p1, %r4, 1;
    @%p1 bra ODD;
    {second}
    bra MEET;
    ODD:
    {first}
    MEET:
    mov.u32 %r3, 7;
"""
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("second", [64, 48])
def test_warps_of_a_warpgroup_that_change_theirs_at_unlike_places_rely_on_a_convention(
    second: int, policy: str
) -> None:
    """PTX wants one instruction of the warpgroup; roles of single warps have each its own, FlashAttention-4's too."""
    count = "setmaxnreg.dec.sync.aligned.u32 {};".format
    text = branched(count(64), count(second))
    (found, *_) = conventions(text, WARPGROUP, policy)
    assert "other warps of the warpgroup execute" in found
    together = kernel(f"mov.u32 %r3, 7; {count(64)}")
    assert conventions(together, WARPGROUP, policy, strict=True) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_warpgroup_of_three_warps_that_changes_its_registers_relies_on_a_convention(policy: str) -> None:
    text = kernel("mov.u32 %r3, 7; setmaxnreg.dec.sync.aligned.u32 64;")
    (found,) = conventions(text, 224, policy)
    assert found.startswith("warps [4, 5, 6] are no whole warpgroup")


def test_a_warp_that_keeps_its_registers_while_others_exit_with_fewer_is_no_convention() -> None:
    text = branched("setmaxnreg.dec.sync.aligned.u32 64;", "")
    with pytest.raises(ExecutionFault, match="have exited") as found:
        conventions(text, WARPGROUP, "in-order")
    assert found.value.violation.kind is ViolationKind.DIVERGENCE


def conventions(text: str, threads: int, policy: str, *, strict: bool = False) -> list[str]:
    """The conventions of a launch whose threads all reach the end."""
    out, more = np.zeros(threads, np.uint32), {"raise_on": ALL_KINDS} if strict else {}
    report: LaunchReport = Program.parse(text).launch("k", grid=1, block=threads, args=[out], policy=policy, **more)
    assert (out == 7).all()
    return [found.message for found in report.conventions]
