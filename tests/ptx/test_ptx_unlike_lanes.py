"""Corners of single instructions: ties of 64-bit integers, lanes that copy unlike parts, warps that stay away."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from kernels import kernel, run_elements

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, Program

POLICIES = ("in-order", "reversed", "random:5")

MAX_AGENTS = ((1 << 15) - 1) // 32
"""A stamp has 12 bits for a thread, all of them set for "several": agents of 32 threads, warps and mbarriers."""

MIDPOINT = (1 << 62) + (1 << 38)
"""Half way between two neighboring f32, whose distance is 2^39; the f64 nearest to its neighbors among integers."""


def nearest_f32(value: int) -> float:
    """The f32 nearest to an integer, of two the even one, by exact fractions; all of them between 2^62 and 2^63."""
    step = 1 << 39
    below = value // step * step
    twice = 2 * Fraction(value - below)
    up = twice > step or (twice == step and below // step % 2)
    return float(below + step if up else below)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("beside", [-600, -513, -1, 0, 1, 2, 511, 513])
@pytest.mark.parametrize("odd", [0, 1])
def test_an_integer_beside_a_tie_is_rounded_once(sign: int, beside: int, odd: int) -> None:
    value = sign * (MIDPOINT + odd * (1 << 39) + beside)
    body = f"mov.b64 %rd2, {value}; cvt.rn.f32.s64 %f1, %rd2; mov.b32 %r3, %f1;"
    assert set(run_elements(kernel(body), np.float32).tolist()) == {sign * nearest_f32(abs(value))}


def test_lanes_that_copy_all_some_and_nothing() -> None:
    """Lane i copies 4 (i mod 5) of 16 bytes: the rest is zero, whatever the other lanes do."""
    body = """
        mov.u32 %r4, smem; shl.b32 %r5, %r0, 4; add.s32 %r6, %r4, %r5; mov.u64 %rd2, data;
        rem.u32 %r7, %r0, 5; shl.b32 %r7, %r7, 2; cp.async.cg.shared.global [%r6], [%rd2], 16, %r7;
        cp.async.wait_all; ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r6];
        add.u32 %r3, %r8, %r9; add.u32 %r3, %r3, %r10; add.u32 %r3, %r3, %r11;"""
    before = ".global .align 16 .b32 data[4] = {1, 10, 100, 1000};\n"
    sums = run_elements(kernel(body, before=before, shared_bytes=1024), np.uint32)
    assert sums.tolist() == [[0, 1, 11, 111, 1111][i % 5] for i in range(32)]


@pytest.mark.parametrize("policy", POLICIES)
def test_warps_whose_predicate_is_false_stay_away_from_a_barrier(policy: str) -> None:
    """Warps 0 and 1 of 3 meet at barrier 1, and each reads what the other has written."""
    body = """
        mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; st.shared.u32 [%r6], %r0;
        setp.lt.u32 %p1, %r0, 64; @%p1 bar.sync 1, 64; mov.u32 %r3, %r0; @!%p1 bra END;
        xor.b32 %r7, %r5, 128; add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7]; END:"""
    found = run_elements(kernel(body, shared_bytes=1024), np.uint32, block=96, policy=policy)
    assert found.tolist() == [i ^ 32 for i in range(64)] + list(range(64, 96))


@pytest.mark.parametrize(("warps", "barriers"), [(1, MAX_AGENTS - 1), (4, MAX_AGENTS - 4)])
def test_warps_and_mbarriers_together_are_as_many_as_a_stamp_can_name(warps: int, barriers: int) -> None:
    made = "".join(f"@%p1 mbarrier.init.shared.b64 [smem+{8 * i}], 1;" for i in range(barriers))
    body = "mov.u32 %r3, 0; setp.eq.u32 %p1, %r0, 0;" + made
    run_elements(kernel(body, shared_bytes=8 * barriers), np.uint32, block=32 * warps)
    one_more = body + f"@%p1 mbarrier.init.shared.b64 [smem+{8 * barriers}], 1;"
    with pytest.raises(ExecutionFault, match=f"more than {barriers} mbarriers in one CTA"):
        run_elements(kernel(one_more, shared_bytes=8 * barriers + 8), np.uint32, block=32 * warps)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_an_integer_literal_is_no_float(kind: str) -> None:
    register = {"f32": "%f1", "f64": "%rd2"}[kind]
    with pytest.raises(PtxSyntaxError, match=rf"an integer literal cannot be a \.{kind}; write 0f... or 0d..."):
        Program.parse(kernel(f"add.{kind} {register}, {register}, 3;")).launch(
            "k", grid=1, block=32, args=[np.zeros(32, np.uint32)]
        )


@pytest.mark.parametrize(
    ("destination", "message"), [("%tid.x", "%tid.x is not one"), ("smem", "smem is not one"), ("3", "it is not one")]
)
def test_a_destination_that_is_no_register_is_named(destination: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=f"expected a register as the destination; {message}"):
        Program.parse(kernel(f"mov.u32 {destination}, 3;", shared_bytes=16)).launch(
            "k", grid=1, block=32, args=[np.zeros(32, np.uint32)]
        )
