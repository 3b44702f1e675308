"""An address that is computed from one shared variable may not reach another, even if both are valid memory.

The kernels are in `cuda/check_neighbors.cu`.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program, kernel, run_elements

from cutegen.ptx import ALL_KINDS, ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1")
THREADS = 64
LANES = np.arange(THREADS)


@pytest.fixture(scope="module")
def program() -> Program:
    return cuda_program("check_neighbors")


def launch(program: Program, entry: str, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """The input i32[thread] of numbers from 0 to 15, and `y` i32[thread]."""
    x = np.random.default_rng(4).integers(0, 16, THREADS).astype(np.int32)
    y = np.zeros(THREADS, np.int32)
    options = {"dynamic_smem_bytes": 8 * THREADS, "raise_on": ALL_KINDS, "policy": policy}
    program.launch(entry, grid=1, block=THREADS, args=[x, y], **options)
    return x, y


def windows(x: np.ndarray) -> np.ndarray:
    """The sum of each number, of the two before it, and of its neighbor."""
    padded = np.concatenate([[0, 0], x])
    return padded[:-2] + padded[1:-1] + padded[2:] + x[LANES ^ 1]


def bins(x: np.ndarray) -> np.ndarray:
    """A histogram of the numbers modulo 8 in the first 15 threads; the number of numbers in the others."""
    return np.concatenate([np.bincount(x & 7, minlength=15), np.full(THREADS - 15, THREADS)])


RIGHT = {
    "next_of_two": lambda x: np.roll(x, -1) - np.roll(x, -2) - 2 * x[LANES ^ 3],
    "window_of_3": windows,
    "rows_of_8": lambda x: np.tile(x.reshape(8, 8).sum(axis=0), 8),
    "bins_of_15": bins,
    "two_halves": lambda x: 4 * x[LANES ^ 1] + 6,
    "one_of_two": lambda x: np.where(x & 1, x[LANES ^ 1], -x[LANES ^ 1]),
    "structure": lambda x: np.where(x & 1, -x[LANES ^ 1], x[LANES ^ 1]),
    "wide_rows": lambda x: np.concatenate([x.reshape(16, 4).sum(axis=1), np.zeros(48)]),
}
WRONG = {
    "wrong_next": "at byte 256 of _ZZ4next",
    "wrong_window": "at byte -8 of _ZZ6window",
    "wrong_rows": "at byte 288 of _ZZ4tile",
    "wrong_bins": "at byte 60 of _ZZ9histogram",
    "wrong_half_before": "of buffers, the dynamic memory",
    "wrong_wide_rows": "at byte 224 of _ZZ4wide",
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", RIGHT)
def test_each_access_stays_in_its_variable(program: Program, entry: str, policy: str) -> None:
    x, y = launch(program, entry, policy)
    assert (y == RIGHT[entry](x)).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", WRONG)
def test_an_access_that_hits_the_neighbor(program: Program, entry: str, policy: str) -> None:
    with pytest.raises(ExecutionFault, match="hits another variable") as caught:
        launch(program, entry, policy)
    assert caught.value.violation.kind is ViolationKind.OUT_OF_BOUNDS
    assert WRONG[entry] in caught.value.violation.message


TWO = ".shared .align 4 .b8 one[128];\n.shared .align 4 .b8 two[128];\n"
BOTH = "shl.b32 %r4, %r0, 2; mov.u32 %r5, one; mov.u32 %r6, two; add.u32 %r7, %r5, %r4; add.u32 %r8, %r6, %r4; "
BOTH += "st.shared.u32 [%r7], %r0; st.shared.u32 [%r8], 5; bar.sync 0; "
ADDRESSES = {
    "named": ("ld.shared.u32 %r3, [one+124];", "ld.shared.u32 %r3, [one+128];"),
    "a sum": ("ld.shared.u32 %r3, [%r7];", "ld.shared.u32 %r3, [%r7+128];"),
    "a difference": ("sub.u32 %r9, %r6, 4; add.u32 %r9, %r9, 8; ld.shared.u32 %r3, [%r9];",
                     "sub.u32 %r9, %r6, 4; ld.shared.u32 %r3, [%r9];"),
    "generic": ("cvt.u64.u32 %rd2, %r7; cvta.shared.u64 %rd3, %rd2; ld.u32 %r3, [%rd3];",
                "cvt.u64.u32 %rd2, %r7; cvta.shared.u64 %rd3, %rd2; ld.u32 %r3, [%rd3+128];"),
    "a product": ("mad.lo.u32 %r9, %r0, 4, %r5; ld.shared.u32 %r3, [%r9];",
                  "mad.lo.u32 %r9, %r0, 4, %r5; ld.shared.u32 %r3, [%r9+4];"),
    "guarded": ("setp.lt.u32 %p1, %r0, 40; @%p1 add.u32 %r7, %r5, 0; ld.shared.u32 %r3, [%r7+124];",
                "setp.lt.u32 %p1, %r0, 40; @%p1 add.u32 %r7, %r5, 0; ld.shared.u32 %r3, [%r7+128];"),
    "in a loop": ("L: ld.shared.u32 %r3, [%r7]; add.u32 %r7, %r7, 4; setp.lt.u32 %p1, %r7, %r6; @%p1 bra L;",
                  "L: ld.shared.u32 %r3, [%r7]; add.u32 %r7, %r7, 4; setp.le.u32 %p1, %r7, %r6; @%p1 bra L;"),
}  # fmt: skip
"""Ways to an address, right and wrong."""
UNTOLD = {
    "the distance of two variables": "sub.u32 %r9, %r6, %r5; add.u32 %r9, %r7, %r9; ld.shared.u32 %r3, [%r9];",
    "one of the two": "setp.lt.u32 %p1, %r0, 9; selp.b32 %r9, %r7, %r8, %p1; ld.shared.u32 %r3, [%r9];",
    "a register that is used again": "mov.u32 %r7, %r8; ld.shared.u32 %r3, [%r7];",
    "on one path": "setp.lt.u32 %p1, %r0, 9; @%p1 bra S; mov.u32 %r7, %r8; S: ld.shared.u32 %r3, [%r7];",
    "on the other path": "setp.ge.u32 %p1, %r0, 9; @%p1 bra S; mov.u32 %r7, %r8; S: ld.shared.u32 %r3, [%r7];",
    "from memory": "mov.u32 %r9, two; st.shared.u32 [one], %r9; bar.sync 0; ld.shared.u32 %r9, [one]; "
    "ld.shared.u32 %r3, [%r9];",
}
"""Addresses that are computed from one variable, or from none, and are right in the other."""


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses_that_tell_their_variable(name: str) -> None:
    right, wrong = ADDRESSES[name]
    run_elements(kernel(BOTH + right, before=TWO), np.uint32)
    with pytest.raises(ExecutionFault, match=r"of (one|two), which has 128 bytes, hits another variable"):
        run_elements(kernel(BOTH + wrong, before=TWO), np.uint32)


@pytest.mark.parametrize("name", UNTOLD)
def test_addresses_that_do_not(name: str) -> None:
    found = run_elements(kernel(BOTH + UNTOLD[name], before=TWO), np.uint32, block=1)
    assert found[0] in (0, 5)
