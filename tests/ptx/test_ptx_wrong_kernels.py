"""Every wrong kernel is caught under every order, and its right twin runs under every order."""

from __future__ import annotations

import pytest
from wrong_kernels import WRONG, Wrong

from cutegen.ptx import ExecutionFault

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
EACH = pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)


@EACH
def test_the_right_one_runs(wrong: Wrong) -> None:
    for policy in POLICIES:
        wrong.launch(wrong.right, policy)


@EACH
def test_the_wrong_one_is_caught(wrong: Wrong) -> None:
    for policy in POLICIES:
        with pytest.raises(ExecutionFault) as caught:
            wrong.launch(wrong.wrong, policy)
        assert caught.value.violation.kind in (wrong.kind, wrong.also), (policy, str(caught.value))
        assert wrong.says in str(caught.value)


def test_there_are_many() -> None:
    assert len({wrong.name for wrong in WRONG}) == len(WRONG) >= 40
