"""More threads may not arrive at an mbarrier than it counts on: some would count for a phase that they know nothing of.

The kernels are in `cuda/check_counts.cu`.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program

from cutegen.ptx import ALL_KINDS, ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
THREADS, ROUNDS = 64, 4
LANES = np.arange(THREADS)
WRONG = (
    "wrong_count_of_warps",
    "wrong_count_of_a_warp",
    "wrong_count_of_one",
    "wrong_one_lane_too_many",
    "wrong_everybody_frees",
    "wrong_everybody_fills",
    "wrong_everybody_frees_copies",
    "wrong_one_side",
)


@pytest.fixture(scope="module")
def program() -> Program:
    return cuda_program("check_counts")


def launch(
    program: Program, entry: str, policy: str, raise_on: frozenset[ViolationKind] = ALL_KINDS
) -> tuple[np.ndarray, np.ndarray]:
    """The input f32[thread], small whole numbers, and `y` f32[4 x thread]."""
    x = np.random.default_rng(3).integers(-9, 9, THREADS).astype(np.float32)
    y = np.full(ROUNDS * THREADS, np.nan, np.float32)
    program.launch(entry, grid=1, block=THREADS, args=[x, y], policy=policy, raise_on=raise_on, max_steps=100_000)
    return x, y


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", ["everybody", "a_lane_of_each_warp", "one_for_all"])
def test_all_threads_meet(program: Program, entry: str, policy: str) -> None:
    x, y = launch(program, entry, policy)
    for _ in range(ROUNDS):
        x = x + x[LANES ^ 33]
    assert (y[:THREADS] == x).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", ["ring_of_lanes", "ring_of_elected", "copies_of_lanes", "copies_of_elected"])
def test_a_ring_of_two_slots(program: Program, entry: str, policy: str) -> None:
    x, y = launch(program, entry, policy)
    assert (y.reshape(-1, 32) == np.arange(2 * ROUNDS)[:, None] * x[LANES[:32] ^ 1]).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_that_leave_the_count(program: Program, policy: str) -> None:
    x, y = launch(program, "dropped", policy)
    assert (y[:32] == x.sum()).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_lanes_that_arrive_on_both_sides_of_a_branch(program: Program, policy: str) -> None:
    x, y = launch(program, "both_sides", policy)
    assert (y[:THREADS] == np.where(LANES & 1, -x[LANES ^ 1], x[LANES ^ 1])).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", WRONG)
def test_more_arrivals_than_the_count(program: Program, entry: str, policy: str) -> None:
    with pytest.raises(ExecutionFault, match=r"may count for either, or more threads arrive than its count") as caught:
        launch(program, entry, policy, frozenset())
    assert caught.value.violation.kind is ViolationKind.BARRIER
    assert "arrive" in caught.value.violation.instruction
