"""Every wrong kernel of a cluster is caught under every order, and its right twin runs under every order."""

from __future__ import annotations

import pytest
from cluster_kernels import POLICIES
from wrong_clusters import WRONG, WrongCluster

from cutegen.ptx import ExecutionFault

EACH = pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)


@EACH
def test_the_right_one_runs(wrong: WrongCluster) -> None:
    for policy in POLICIES:
        wrong.run(wrong.right, policy)


@EACH
def test_the_wrong_one_is_caught(wrong: WrongCluster) -> None:
    for policy in POLICIES:
        with pytest.raises(ExecutionFault) as caught:
            wrong.run(wrong.wrong, policy)
        assert caught.value.violation.kind in (wrong.kind, *wrong.also), (policy, str(caught.value))
        assert wrong.says in str(caught.value) or caught.value.violation.kind in wrong.also


def test_there_are_many() -> None:
    assert len({wrong.name for wrong in WRONG}) == len(WRONG) >= 35
