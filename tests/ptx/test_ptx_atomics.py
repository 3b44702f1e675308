"""Sums of atomics at the edge of what is normal: results worked out by hand from the PTX ISA, `atom` and `red`."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_kernels import HERE, SYNC, launch, neighbor
from kernels import cuda_program, kernel, run_elements
from micro_kernels import atomic_sum
from test_ptx_known_values import execute

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, Program

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


POLICIES = ("in-order", "reversed", "random:1", "random:2")


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_of_four_floats_are_added_by_one_instruction(policy: str) -> None:
    generator = np.random.default_rng(5)
    rows = generator.integers(-50, 50, (300, 4)).astype(np.float32)  # their sums are exact in any order
    targets = generator.integers(0, 7, 300).astype(np.int32)
    sums = np.ones((7, 4), np.float32)
    expected = sums.copy()
    np.add.at(expected, targets, rows)
    program = cuda_program("vector_atomics")
    report = program.launch("add_rows", grid=3, block=128, args=[rows, targets, sums, 300], policy=policy)
    assert (sums == expected).all()
    assert report.executed("atom.global.add.v4.f32") == 10


def test_pairs_of_halves_return_what_was_there() -> None:
    pairs = np.arange(40 * 4, dtype=np.float16).reshape(40, 4) % 8
    sums, before = np.zeros(4, np.float16), np.zeros((40, 4), np.float16)
    cuda_program("vector_atomics").launch("add_pairs", grid=1, block=64, args=[pairs, sums, before, 40])
    assert (before == np.cumsum(pairs, axis=0) - pairs).all()
    assert (sums == pairs.sum(axis=0)).all()


VECTOR = "add.s64 %rd2, %rd0, {start}; {opcode} [%rd2], {{{values}}}; mov.u32 %r3, 0;"


@pytest.mark.parametrize(
    ("opcode", "values", "start", "says"),
    [
        ("red.shared.add.v4.f32", "%f1, %f1, %f1, %f1", 0, "atomic with: global memory"),
        ("red.global.add.v8.f32", "%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1", 0, r"\.v2, \.v4"),
        ("red.global.min.v2.f32", "%f1, %f1", 0, r"\.v2, \.v4, \.add"),
        ("red.global.add.v2.u32", "%r1, %r1", 0, r"type \.u32 is not supported here"),
        ("red.global.add.v4.f32", "%f1, %f1", 0, "expected a vector of 4, found 2"),
        ("red.global.add.v2.f16x2", "%r1, %r1", 0, "is written with .noftz"),
        ("red.global.add.v4.f32", "%f1, %f1, %f1, %f1", 8, "a vector of 16 bytes is aligned to 16"),
    ],
)
def test_vectors_that_do_not_exist_are_refused(opcode: str, values: str, start: int, says: str) -> None:
    body = "mov.f32 %f1, 0f3f800000; mov.u32 %r1, 0; " + VECTOR.format(opcode=opcode, values=values, start=start)
    with pytest.raises((PtxSyntaxError, ExecutionFault), match=says):
        run_elements(kernel(body), np.uint32)


@pytest.mark.parametrize(("name", "wanted"), [("min", -2.0), ("max", 5.0), ("add", 0.5)])
def test_eight_halves_have_least_and_greatest(name: str, wanted: float) -> None:
    """Lane 0 alone combines eight halves with what is there: -2 + 2.5, and the extremes of 5 and -2 elsewhere."""
    there, given = {"add": (-2.0, 2.5), "min": (5.0, -2.0), "max": (5.0, -2.0)}[name]
    bits = int(np.float16(given).view(np.uint16))
    body = f"setp.ne.u32 %p0, %r0, 0; @%p0 ret; mov.b16 %h1, {bits};"
    body += f"red.global.{name}.noftz.v8.f16 [%rd0], {{{', '.join(['%h1'] * 8)}}}; ret;"
    out = np.full(8, there, np.float16)
    Program.parse(kernel(body)).launch("k", grid=1, block=32, args=[out])
    assert (out == np.float16(wanted)).all()


def test_vectors_race_with_weak_accesses_alone() -> None:
    text = kernel("mov.f32 %f1, 0f3f800000; red.global.add.v2.f32 [%rd0], {%f1, %f1}; ret;")
    out = np.zeros(32, np.float32)
    Program.parse(text).launch("k", grid=4, block=32, args=[out])
    assert out[:3].tolist() == [128, 128, 0]
    weak = text.replace("ret;", "ld.global.f32 %f2, [%rd0+4]; ret;", 1)
    with pytest.raises(ExecutionFault, match="race"):
        Program.parse(weak).launch("k", grid=4, block=32, args=[out])
