"""What a bulk store has written may be used after a wait for the whole group; `.read` waits for shared memory only.

The kernels are in `cuda/async_stores.cu`.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program

from cutegen.ptx import ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2")
THREADS, PLACE = 64, 9
RIGHT = {
    "own_thread": lambda x: x[PLACE] + 1,
    "other_thread": lambda x: x[PLACE] + 1,
    "volatile_read": lambda x: x[PLACE] + 1,
    "atomic": lambda x: x[PLACE] + 1,
    "overwrite": lambda x: 5,
    "bulk_load": lambda x: x[PLACE] + 1,
    "first_of_two": lambda x: x[PLACE] + 1,
}
WRONG = (*(f"wrong_{name}" for name in RIGHT), "wrong_second_of_two")


@pytest.fixture(scope="module")
def program() -> Program:
    return cuda_program("async_stores")


def launch(program: Program, entry: str, policy: str) -> tuple[np.ndarray, int]:
    """The input i32[thread], and the number that the kernel gives."""
    x = np.random.default_rng(8).integers(0, 99, THREADS).astype(np.int32)
    work, y = np.zeros(2 * THREADS, np.int32), np.zeros(1, np.int32)
    program.launch(entry, grid=1, block=THREADS, args=[x, work, y], policy=policy)
    return x, int(y[0])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", RIGHT)
def test_a_store_that_was_waited_for(program: Program, entry: str, policy: str) -> None:
    x, y = launch(program, entry, policy)
    assert y == RIGHT[entry](x)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", WRONG)
def test_a_store_that_may_still_be_writing(program: Program, entry: str, policy: str) -> None:
    with pytest.raises(ExecutionFault) as caught:
        launch(program, entry, policy)
    assert caught.value.violation.kind is ViolationKind.RACE
    assert "the copy by thread 0 of CTA number 0 (line" in caught.value.violation.message
