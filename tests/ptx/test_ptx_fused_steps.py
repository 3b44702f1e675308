"""Like instructions that follow one another are done at once; what a thread sees is as if it were one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from kernels import kernel, run_elements

from cutegen.ptx import Program
from cutegen.ptx.machine.lowering import MOST_FUSED, FusedStep

REGISTERS = 8
OPERATIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def runs_of(text: str) -> list[int]:
    """How many instructions each step of a kernel does that like ones can join."""
    steps = [step for block in Program.parse(text).prepare("k").blocks for step in block.steps]
    return [len(step.sites) for step in steps if isinstance(step, FusedStep)]


def begin(count: int) -> list[str]:
    """Lane l has 1 + (l + i) / 64 in register i: no two sums or products of a few are the same."""
    lines = []
    for i in range(count):
        lines += [f"add.u32 %r4, %r0, {i + 64};", f"cvt.rn.f32.u32 %f{i}, %r4;", f"mul.f32 %f{i}, %f{i}, 0f3C800000;"]
    return lines


def begun(count: int) -> list[np.ndarray]:
    return [((np.arange(32) + i + 64) / 64).astype(np.float32) for i in range(count)]


@pytest.mark.parametrize("seed", range(40))
def test_registers_are_read_and_written_in_the_order_of_the_text(seed: int) -> None:
    """A few registers, so that each is soon read after it is written, written after it is read, and written twice."""
    drawn = random.Random(seed)
    lines, values = begin(REGISTERS), begun(REGISTERS)
    for _ in range(30):
        name = drawn.choice([*["add"] * 4, "sub", "mul"])
        d, a, b = (drawn.randrange(REGISTERS) for _ in range(3))
        lines.append(f"{name}.f32 %f{d}, %f{a}, %f{b};")
        values[d] = OPERATIONS[name](values[a], values[b])
    seen = drawn.randrange(REGISTERS)
    found = run_elements(kernel("\n".join([*lines, f"mov.b32 %r3, %f{seen};"])), np.float32)
    assert np.array_equal(found, values[seen], equal_nan=True)


def test_those_that_do_not_wait_for_each_other_are_one_step() -> None:
    zeros = "\n".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(8))  # what no thread wrote is asked for each
    three = [f"fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{d};" for d, a, b in ((0, 4, 5), (1, 4, 6), (2, 5, 6))]
    alike = "\n".join([zeros, "setp.lt.u32 %p0, %r0, 5;", *three])
    assert runs_of(kernel(alike)) == [3]
    assert runs_of(kernel(f"{alike}\nfma.rz.f32 %f3, %f4, %f5, %f3;")) == [3, 1]  # other words
    assert runs_of(kernel(f"{alike}\nfma.rn.f32 %f3, %f2, %f5, %f3;")) == [3, 1]  # reads what the third wrote
    assert runs_of(kernel(f"{alike}\nfma.rn.f32 %f2, %f4, %f4, %f4;")) == [3, 1]  # writes what the third wrote
    assert runs_of(kernel(f"{alike}\nfma.rn.f32 %f4, %f5, %f5, %f5;")) == [4]  # writes what others have read by then
    assert runs_of(kernel(f"{alike}\n@%p0 fma.rn.f32 %f3, %f4, %f5, %f3;")) == [3]  # which may be for some lanes alone
    assert runs_of(kernel("\n".join(f"add.f32 %f{i}, 0f3F800000, 0f40000000;" for i in range(8)))) == [8]


def test_so_many_are_done_at_once_and_no_more() -> None:
    text = kernel("\n".join(f"add.f32 %g{i}, 0f3F800000, 0f40000000;" for i in range(MOST_FUSED + 5)))
    text = text.replace(".reg .pred", f".reg .f32 %g<{MOST_FUSED + 5}>;\n    .reg .pred")
    assert runs_of(text) == [MOST_FUSED, 5]


def test_lanes_that_are_not_active_keep_what_they_have() -> None:
    body = """
    mov.f32 %f0, 0f3F800000;
    mov.f32 %f1, 0f40000000;
    setp.lt.u32 %p0, %r0, 10;
    @!%p0 bra after;
    add.f32 %f0, %f0, 0f41200000;
    add.f32 %f1, %f1, 0f41200000;
after:
    add.f32 %f2, %f0, %f1;
    mov.b32 %r3, %f2;
    """
    assert np.array_equal(run_elements(kernel(body), np.float32), np.where(np.arange(32) < 10, 23.0, 3.0))


@pytest.mark.parametrize("chained", [False, True], ids=["apart", "one after the other"])
def test_products_of_matrices_at_once_are_those_one_by_one(*, chained: bool) -> None:
    """`chained`, the second adds to what the first has summed; apart, each has sums of its own."""
    second = "{%f0, %f1, %f2, %f3}" if chained else "{%f4, %f5, %f6, %f7}"
    fill = [f"mul.lo.u32 %r{4 + i}, %r0, {0x00110013 * (i + 1)};" for i in range(8)]
    fill += [f"and.b32 %r{4 + i}, %r{4 + i}, 0x3bff3bff;" for i in range(8)]  # halves below 1
    zeros = [f"mov.f32 %f{i}, 0f00000000;" for i in range(8)]
    a, b = "{%r4, %r5, %r6, %r7}", ("{%r8, %r9}", "{%r10, %r11}")
    first = f"{MMA} {{%f0, %f1, %f2, %f3}}, {a}, {b[0]}, {{%f0, %f1, %f2, %f3}};"
    other = f"{MMA} {second}, {a}, {b[1]}, {second};"
    seen = "add.f32 %f3, %f3, %f7;\nmov.b32 %r3, %f3;"
    at_once = "\n".join([*fill, *zeros, first, other, seen])
    between = "\n".join([*fill, *zeros, first, "bar.warp.sync 0xffffffff;", other, seen])
    assert [count for count in runs_of(kernel(at_once)) if count > 1] == ([] if chained else [2])
    found, expected = (run_elements(kernel(body), np.float32) for body in (at_once, between))
    assert np.array_equal(found, expected)
    assert len(np.unique(found)) > 16
