"""Every wrong `wgmma` kernel is caught under every order, and its right twin gives the product under every order."""

from __future__ import annotations

import numpy as np
import pytest
from warpgroup_kernels import FENCE, matrix_of, wait
from wrong_warpgroup import COLUMNS, Wrong
from wrong_warpgroups import WRONG

from cutegen.ptx import ALL_KINDS, ExecutionFault, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2")
EACH = pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
TOLERANCE = 1e-3


def error(wrong: Wrong, fill: str, body: str, policy: str) -> float:
    """The largest difference from the product; infinite where there are NaNs."""
    found = matrix_of(wrong.launch(fill, body, policy)[0][:128], COLUMNS, np.float32)
    return float(np.nan_to_num(np.abs(found - wrong.expected()), nan=np.inf).max())


@EACH
def test_the_right_one_runs(wrong: Wrong) -> None:
    for policy in POLICIES:
        assert error(wrong, wrong.fill, wrong.right, policy) < TOLERANCE, policy


@EACH
def test_the_wrong_one_is_caught(wrong: Wrong) -> None:
    for policy in POLICIES:
        if wrong.kind is None:
            assert error(wrong, *wrong.wrong, policy) > 100 * TOLERANCE, policy
            continue
        with pytest.raises(ExecutionFault) as caught:
            wrong.launch(*wrong.wrong, policy)
        violation = caught.value.violation
        assert violation.kind in (wrong.kind, wrong.also), (policy, str(caught.value))
        assert violation.thread is not None
        assert wrong.says in str(caught.value) or violation.kind is wrong.also, (policy, str(caught.value))


def test_a_move_behind_the_fence_is_a_convention() -> None:
    """Compilers move copies of registers and constants across a fence, which names none."""
    right = WRONG[0].right
    moved = right.replace(FENCE, FENCE + "mov.b32 %d3, 0;")
    for policy in POLICIES:
        WRONG[0].launch(WRONG[0].fill, right, policy, raise_on=ALL_KINDS)
        assert error(WRONG[0], WRONG[0].fill, moved, policy) < TOLERANCE
        with pytest.raises(ExecutionFault, match=r"no wgmma.fence between the last access to %d3") as caught:
            WRONG[0].launch(WRONG[0].fill, moved, policy, raise_on=ALL_KINDS)
        assert caught.value.violation.kind is ViolationKind.CONVENTION


def test_what_is_read_early_is_poison() -> None:
    """Where the launch goes on after a fault, what it read shows."""
    early = WRONG[0].right.replace(wait(0), "mov.b32 %r32, %d3;" + wait(0) + "mov.b32 %d3, %r32;")
    for policy in POLICIES:
        out, report = WRONG[0].launch(WRONG[0].fill, early, policy, raise_on=frozenset())
        assert (out[:, 3] == 0xFFFFFFFF).all()
        found = [violation for violation in report.violations if violation.kind is ViolationKind.ASYNC_MMA]
        assert [violation.count for violation in found] == [4]
        assert "access to %d3" in found[0].message


def test_there_are_many() -> None:
    assert len({wrong.name for wrong in WRONG}) == len(WRONG) >= 36
