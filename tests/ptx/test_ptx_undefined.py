"""An undefined value is a convention as long as it reaches no store, address, branch or mask; there it is an error.

The kernels with shuffles of a part of a warp are in `cuda/check_shuffles.cu`; in the others registers stay unwritten.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program, kernel

from cutegen.ptx import ALL_KINDS, UNDEFINED, ExecutionFault, LaunchReport, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2")
POLICY = pytest.mark.parametrize("policy", POLICIES)
THREADS = 64
UNTOUCHED = 77


@pytest.fixture(scope="module")
def shuffles() -> Program:
    return cuda_program("check_shuffles")


def launch(
    program: Program, entry: str, policy: str, raise_on: frozenset[ViolationKind] = UNDEFINED
) -> tuple[np.ndarray, np.ndarray, LaunchReport]:
    """The input i32[thread], what `y` i32[thread] has then, and the report."""
    x = np.random.default_rng(2).integers(1, 9, THREADS).astype(np.int32)
    y = np.full(THREADS, UNTOUCHED, np.int32)
    report = program.launch(entry, grid=1, block=THREADS, args=[x, y], policy=policy, raise_on=raise_on)
    return x, y, report


def first_of(values: np.ndarray) -> np.ndarray:
    """`y` of a kernel that stores `values` only."""
    return np.concatenate([values, np.full(THREADS - len(values), UNTOUCHED)])


RIGHT = {
    "sum_of_8": lambda x: x[:8].sum()[None],
    "sums_of_halves": lambda x: x.reshape(-1, 16).sum(axis=1),
    "differences_of_12": lambda x: np.diff(x[:12]),
    "selected_differences_of_12": lambda x: np.append(np.diff(x[:12]), 0),
    "masked_next": lambda x: np.append(x[1:12], 0),
    "sums_after_exits": lambda x: np.array([x[:32].sum(), x[32:48].sum()]),
    "looked_up": lambda x: np.append(x[x[1:12] & 7], -1),
}
WRONG = {
    "wrong_sum_by_all": "st.global",
    "wrong_first_offset": "st.global",
    "wrong_differences": "st.global",
    "wrong_selected_differences": "st.global",
    "wrong_masked_next": "st.global",
    "wrong_look_up": "ld.global",
    "wrong_turns": "bra",
    "wrong_atomic": "global.add",
    "wrong_second_shuffle": "st.global",
    "wrong_sums_after_exits": "st.global",
}
"""Where the value of an absent lane matters, by kernel."""


@POLICY
@pytest.mark.parametrize("entry", RIGHT)
def test_a_value_of_an_absent_lane_that_nothing_comes_of(shuffles: Program, entry: str, policy: str) -> None:
    x, y, report = launch(shuffles, entry, policy)
    assert (y == first_of(RIGHT[entry](x))).all()
    assert report.violations == ()
    assert report.conventions
    assert all("does not take part" in found.message for found in report.conventions)
    with pytest.raises(ExecutionFault) as caught:
        launch(shuffles, entry, policy, ALL_KINDS)
    assert caught.value.violation.kind is ViolationKind.CONVENTION


@POLICY
@pytest.mark.parametrize("entry", WRONG)
def test_a_value_of_an_absent_lane_that_matters(shuffles: Program, entry: str, policy: str) -> None:
    with pytest.raises(ExecutionFault, match="from a lane that does not take part") as caught:
        launch(shuffles, entry, policy)
    assert caught.value.violation.kind is ViolationKind.UNINITIALIZED
    assert WRONG[entry] in caught.value.violation.instruction


HARMLESS = {
    "a reduction over lanes without numbers": """
        setp.lt.u32 %p1, %r0, 8; mov.u32 %r3, 0; @%p1 add.u32 %r7, %r0, 1;
        shfl.sync.bfly.b32 %r8, %r7, 4, 31, -1; add.u32 %r7, %r7, %r8;
        shfl.sync.bfly.b32 %r8, %r7, 2, 31, -1; add.u32 %r7, %r7, %r8;
        shfl.sync.bfly.b32 %r8, %r7, 1, 31, -1; add.u32 %r7, %r7, %r8;
        @%p1 mov.u32 %r3, %r7;
    """,
    "selected away": """
        setp.lt.u32 %p1, %r0, 8; @%p1 mov.u32 %r7, 36; mul.lo.u32 %r8, %r7, %r7; xor.b32 %r8, %r8, %r8;
        add.u32 %r8, %r8, %r7; selp.u32 %r3, %r7, 0, %p1;
    """,
    "a predicate that another one decides": """
        setp.lt.u32 %p1, %r0, 8; @%p1 mov.u32 %r7, 36; mov.u32 %r3, 0;
        setp.gt.u32 %p2, %r7, 5; and.pred %p2, %p2, %p1; @%p2 mov.u32 %r3, 36;
    """,
    "a predicate that another one decides by or": """
        setp.ge.u32 %p1, %r0, 8; @!%p1 mov.u32 %r7, 36; mov.u32 %r3, 36;
        setp.lt.u32 %p2, %r7, 5; or.pred %p2, %p2, %p1; @%p2 mov.u32 %r3, 0;
    """,
    "bits that a mask cuts off": """
        setp.lt.u32 %p1, %r0, 8; @%p1 mov.u32 %r7, 36; selp.b32 %r8, -1, 0, %p1; and.b32 %r3, %r7, %r8;
    """,
    "sums of a loop that only some lanes begin": """
        setp.lt.u32 %p1, %r0, 8; @%p1 mov.u32 %r7, 0; mov.u32 %r8, 9; mov.u32 %r3, 0;
        MORE: sub.u32 %r8, %r8, 1; add.u32 %r7, %r7, %r8; setp.gt.u32 %p2, %r8, 0; @%p2 bra MORE;
        @%p1 mov.u32 %r3, %r7;
    """,
    "a register that is written before the value is used": """
        setp.lt.u32 %p1, %r0, 8; add.u32 %r7, %r9, 1; mov.u32 %r7, 0; @%p1 mov.u32 %r7, 36; mov.u32 %r3, %r7;
    """,
    "a function of it for lanes that store": """
        setp.lt.u32 %p1, %r0, 8; @%p1 mov.u32 %r7, 0x40900000; mov.b32 %f1, %r7; mul.f32 %f2, %f1, 0f41000000;
        cvt.rzi.u32.f32 %r8, %f2; mov.u32 %r3, 0; @%p1 mov.u32 %r3, %r8;
    """,
}
"""Bodies that give 36 to the first 8 threads of a warp and 0 to the others; %r7 is undefined in the others."""
HARMFUL = {
    "stored by all": ("selected away", "selp.u32 %r3, %r7, 0, %p1;", "mov.u32 %r3, %r7;", "st.global"),
    "selected": ("selected away", "%r7, 0, %p1;", "0, %r7, %p1;", "st.global"),
    "from a lane without a number": ("a reduction over lanes without numbers", "%r7, 4,", "%r7, 8,", "st.global"),
    "a predicate that nothing else decides": ("a predicate that another one decides", "and.pred", "or.pred", "st.glob"),
    "a predicate of its own": ("a predicate that another one decides", "and.pred %p2, %p2, %p1;", "", "st.global"),
    "bits that are not cut off": ("bits that a mask cuts off", "-1, 0,", "-1, 1,", "st.global"),
    "a branch": (
        "a predicate that another one decides", "and.pred %p2, %p2, %p1;", "@%p2 bra NEXT; NEXT:", "bra NEXT",
    ),
    "a loop of undefined length": (
        "sums of a loop that only some lanes begin", "mov.u32 %r8, 9;", "@%p1 mov.u32 %r8, 9;", "bra MORE",
    ),
    "an address": ("selected away", "xor.b32 %r8, %r8, %r8;", "ld.shared.u32 %r9, [%r8];", "ld.shared"),
    "a store to shared memory": ("selected away", "xor.b32 %r8, %r8, %r8;", "st.shared.u32 [smem], %r8;", "st.shared"),
    "a member mask": ("selected away", "xor.b32 %r8, %r8, %r8;", "bar.warp.sync %r7;", "bar.warp"),
    "a vote": (
        "a predicate that another one decides", "and.pred %p2, %p2, %p1;", "vote.sync.any.pred %p2, %p2, -1;", "st.",
    ),
    "a sum of the warp": ("selected away", "selp.u32 %r3, %r7, 0, %p1;", "redux.sync.add.u32 %r3, %r7, -1;", "st.glob"),
    "a barrier": ("selected away", "xor.b32 %r8, %r8, %r8;", "and.b32 %r8, %r8, 0x1; bar.sync %r8;", "bar.sync"),
}  # fmt: skip
"""The body that is changed, what is replaced by what, and the instruction at which it matters."""


def run(body: str, policy: str) -> tuple[np.ndarray, LaunchReport]:
    out = np.zeros(32, np.uint32)
    program = Program.parse(kernel(body, shared_bytes=16))
    return out, program.launch("k", grid=1, block=32, args=[out], policy=policy)


@POLICY
@pytest.mark.parametrize("name", HARMLESS)
def test_a_register_that_nothing_comes_of(name: str, policy: str) -> None:
    out, report = run(HARMLESS[name], policy)
    assert out.tolist() == [36] * 8 + [0] * 24
    assert report.violations == ()
    assert {found.kind for found in report.conventions} == {ViolationKind.CONVENTION}
    assert all("that this thread never wrote" in found.message for found in report.conventions)


@POLICY
@pytest.mark.parametrize("name", HARMFUL)
def test_a_register_that_matters(name: str, policy: str) -> None:
    body, before, after, where = HARMFUL[name]
    assert before in HARMLESS[body]
    with pytest.raises(ExecutionFault) as caught:
        run(HARMLESS[body].replace(before, after), policy)
    assert caught.value.violation.kind is ViolationKind.UNINITIALIZED
    assert where in caught.value.violation.instruction
    assert "never wrote" in str(caught.value)
