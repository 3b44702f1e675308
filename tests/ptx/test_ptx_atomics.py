"""Sums of atomics at the edge of what is normal: results worked out by hand from the PTX ISA, `atom` and `red`."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_kernels import HERE, SYNC, launch, neighbor
from kernels import kernel, run_elements
from micro_kernels import atomic_sum
from test_ptx_known_values import execute

LEAST, MINUS = 0x00800000, 0x80000000
"""The least normal f32, and the sign."""
F32_SUMS = [  # bits: what is there, what is added, what global memory has then, what shared memory has
    (2, 3, 0, 5),
    (0, 3, 0, 3),
    (2, 0, 0, 2),
    (MINUS | 2, MINUS | 3, MINUS, MINUS | 5),
    (MINUS | 2, 3, 0, 1),
    (2, MINUS | 3, 0, MINUS | 1),
    (MINUS, MINUS | 3, MINUS, MINUS | 3),
    (LEAST, 1, LEAST, LEAST | 1),
    (1, MINUS | LEAST, MINUS | LEAST, MINUS | (LEAST - 1)),
    (LEAST - 1, 1, 0, LEAST),  # a normal sum of subnormal numbers
    (LEAST | 1, MINUS | LEAST, 0, 1),  # a subnormal sum of normal numbers
    (MINUS | LEAST | 1, LEAST, MINUS, MINUS | 1),
    (LEAST, MINUS | LEAST, 0, 0),
    (0x3F800000, 0x40000000, 0x40400000, 0x40400000),
]
GLOBAL, SHARED = ("global", "to global"), ("shared", "shared::cta", "shared::cluster", "to shared")


@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("place", [*GLOBAL, *SHARED])
def test_sums_of_f32_are_flushed_in_global_memory_alone(place: str, opcode: str) -> None:
    for old, added, in_global, in_shared in F32_SUMS:
        left = in_global if place in GLOBAL else in_shared
        found = execute(atomic_sum(opcode, place, "f32"), ("b32", "f32", "f32"), old, added, target="sm_90")
        assert found == (left ^ old if opcode == "atom" else left), (old, added)


@pytest.mark.parametrize("place", [*GLOBAL, *SHARED])
@pytest.mark.parametrize(
    ("kind", "old", "added", "left"),
    [
        ("f16", 0x0001, 0x0002, 0x0003),
        ("bf16", 0x8001, 0x8002, 0x8003),
        ("f16x2", 0x80010002, 0x80020001, 0x80030003),
        ("bf16x2", 0x00018002, 0x00028001, 0x00038003),
        ("f64", 2, 3, 5),
        ("f64", 1 << 63 | 2, 3, 1),
    ],
)
def test_other_sums_keep_subnormals_everywhere(kind: str, old: int, added: int, left: int, place: str) -> None:
    assert execute(atomic_sum("red", place, kind), (kind,) * 3, old, added, target="sm_90") == left


def test_one_instruction_reaches_global_and_shared_memory() -> None:
    """Lanes of an even number add in shared memory, the others in global memory."""
    body = """
    shl.b32 %r4, %r0, 2; mov.u32 %r5, smem; add.u32 %r4, %r4, %r5; mov.u32 %r6, 2; mov.u32 %r7, 3;
    st.shared.b32 [%r4], %r6; st.global.b32 [%rd1], %r6;
    cvt.u64.u32 %rd2, %r4; cvta.shared.u64 %rd2, %rd2;
    and.b32 %r8, %r0, 1; setp.eq.u32 %p0, %r8, 0; selp.b64 %rd3, %rd2, %rd1, %p0;
    red.add.f32 [%rd3], %r7; ld.b32 %r3, [%rd3];
    """
    assert run_elements(kernel(body, shared_bytes=128), np.uint32).tolist() == [5, 0] * 16


@pytest.mark.parametrize(
    "add",
    [
        "red.relaxed.cluster.shared::cluster.add.f32 [%r8], %r7;",
        "cvt.u64.u32 %rd2, %r8; cvta.shared.u64 %rd2, %rd2; red.relaxed.cluster.add.f32 [%rd2], %r7;",
    ],
)
def test_a_neighbors_shared_memory_keeps_subnormals(add: str) -> None:
    body = HERE + "st.shared.u32 [%r6], 2; mov.u32 %r7, 3;" + SYNC + neighbor("%r8", "%r6") + add + SYNC
    out, _ = launch(body + "ld.shared.u32 %r3, [%r6];")
    assert (out == 5).all()
