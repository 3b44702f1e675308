"""Blocks that wait for each other in kernels of nvcc: cooperative groups, and the launch's timer."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program, kernel, run_elements

from cutegen.ptx import ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2")
RELEASE, ACQUIRE = "atom.add.release.gpu.u32", "ld.acquire.gpu.u32"


def rotate(program: Program, policy: str) -> np.ndarray:
    numbers = np.full(2 * 5 * 64, -1, np.int32)
    program.launch("rotate", grid=5, block=64, args=[numbers, 320], policy=policy)
    return numbers


@pytest.mark.parametrize("policy", POLICIES)
def test_a_grid_synchronizes(policy: str) -> None:
    numbers = rotate(cuda_program("grid_sync"), policy)
    assert (numbers[320:] == np.roll(3 * np.arange(320), -64)).all()
    assert (numbers[:320] == np.roll(3 * np.arange(320), -128)).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weaker", [(RELEASE, "atom.add.relaxed.gpu.u32"), (ACQUIRE, "ld.relaxed.gpu.u32")])
def test_a_weaker_barrier_of_the_grid_is_a_race(weaker: tuple[str, str], policy: str) -> None:
    text = cuda_program("grid_sync").text
    with pytest.raises(ExecutionFault) as caught:
        rotate(Program.parse(text.replace(*weaker)), policy)
    assert caught.value.violation.kind is ViolationKind.RACE


@pytest.mark.parametrize("policy", POLICIES)
def test_a_wait_that_is_timed_gives_up(policy: str) -> None:
    seen = np.zeros(1, np.int32)
    for flag, found in ((0, -1), (1, 1)):
        args = [np.array([flag], np.int32), seen, 20_000]
        report = cuda_program("grid_sync").launch("wait_for_flag", grid=1, block=1, args=args, policy=policy)
        assert seen[0] == found
        assert report.steps < 5_000


def test_the_timer_is_the_launchs() -> None:
    """The warps of a block, one after the other, never read the same time."""
    found = run_elements(kernel("mov.u64 %rd2, %globaltimer; cvt.u32.u64 %r3, %rd2;"), np.uint32, block=128)
    assert len(set(found.tolist())) == 4


@pytest.mark.parametrize(("name", "value"), [("begin", 0), ("end", 1024), ("cap", 1024), ("0", 0), ("1", 0)])
def test_shared_memory_of_the_system(name: str, value: int) -> None:
    assert (run_elements(kernel(f"mov.u32 %r3, %reserved_smem_offset_{name};"), np.uint32) == value).all()


@pytest.mark.parametrize("number", [0, 3, 31])
def test_other_registers_of_the_environment_are_zero(number: int) -> None:
    assert (run_elements(kernel(f"mov.u32 %r3, %envreg{number};"), np.uint32) == 0).all()
