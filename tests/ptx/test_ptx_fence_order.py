"""`fence.sc` on both sides of a flag orders a store and a load, wherever barriers come between: CUDA's __threadfence().

The kernels are in `cuda/check_fences.cu`.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program
from litmus import launch as launch_litmus
from litmus import message_passing

from cutegen.ptx import ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
BLOCKS, THREADS = 3, 64
BY_LAST = ("last_all_all", "last_all_first", "last_first_all", "last_first_first")
WRONG = (
    "wrong_no_fence_of_writers",
    "wrong_no_fence_of_readers",
    "wrong_half_of_the_writers",
    "wrong_one_of_the_readers",
    "wrong_scope_of_writers",
    "wrong_scope_of_readers",
    "wrong_acq_rel",
    "wrong_grid_barrier",
    "wrong_turns",
    "wrong_look_back_without_a_fence",
    "wrong_look_back_without_a_look",
    "wrong_block_scope",
)


@pytest.fixture(scope="module")
def program() -> Program:
    return cuda_program("check_fences")


def launch(program: Program, entry: str, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """The inputs f32[block, thread], small whole numbers, and `y` f32[block, thread]."""
    x = np.random.default_rng(7).integers(-9, 9, (BLOCKS, THREADS)).astype(np.float32)
    parts, y = np.zeros((BLOCKS, THREADS), np.float32), np.full((BLOCKS, THREADS), np.nan, np.float32)
    grid, block = 1 if "scope" in entry and "_of_" not in entry else BLOCKS, 32 if "look_back" in entry else THREADS
    program.launch(entry, grid=grid, block=block, args=[x, parts, np.zeros(BLOCKS, np.int32), y], policy=policy)
    return x, y


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", BY_LAST)
def test_the_last_block_may_read_all_parts(program: Program, entry: str, policy: str) -> None:
    x, y = launch(program, entry, policy)
    assert (y[0] == x.sum(axis=0)[np.arange(THREADS) ^ 1]).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_barrier_of_the_grid(program: Program, policy: str) -> None:
    x, y = launch(program, "grid_barrier", policy)
    for _ in range(2):
        x = x + np.roll(x, -1, axis=0)[:, np.arange(THREADS) ^ 1]
    assert (y == x).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_blocks_that_take_turns(program: Program, policy: str) -> None:
    x, y = launch(program, "turns", policy)
    assert (y[0] == x.sum(axis=0)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_sums_of_the_blocks_before(program: Program, policy: str) -> None:
    x, y = launch(program, "look_back_sums", policy)
    assert (y.ravel()[:BLOCKS] == np.cumsum([0, *x.sum(axis=1)])[:BLOCKS]).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", ["block_scope", "mixed_scopes"])
def test_two_warps_of_a_block(program: Program, entry: str, policy: str) -> None:
    x, y = launch(program, entry, policy)
    assert (y[0, :32] == x[0, np.arange(32) ^ 1]).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", WRONG)
def test_without_one_of_them_it_is_a_race(program: Program, entry: str, policy: str) -> None:
    with pytest.raises(ExecutionFault) as caught:
        launch(program, entry, policy)
    assert caught.value.violation.kind is ViolationKind.RACE


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scopes", [("gpu", "gpu"), ("cta", "gpu"), ("gpu", "cta")])
def test_a_flag_of_a_narrow_scope_tells_nothing_of_fences(scopes: tuple[str, str], policy: str) -> None:
    """The accesses to the flag race if their scopes do not include each other, and then the data do, too."""
    text = message_passing(
        f"fence.sc.gpu; st.relaxed.{scopes[0]}.global.u32 [%rd1], 1;",
        f"ld.relaxed.{scopes[1]}.global.u32 %r2, [%rd1];",
        "fence.sc.gpu;",
    )
    report = launch_litmus(text, policy=policy, raise_on=frozenset()).report
    found = {violation.instruction for violation in report.violations}
    assert ("ld.global.u32 %r3, [%rd0];" in found or "st.global.u32 [%rd0], 42;" in found) is (scopes != ("gpu", "gpu"))
