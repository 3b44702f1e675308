"""Every wrong kernel of a cluster is caught under every order, and its right twin runs under every order."""

from __future__ import annotations

import re

import pytest
from cluster_kernels import POLICIES, launch, ring
from wrong_clusters import WRONG, WrongCluster, matrix

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


SYNCHRONIZATION = re.compile(r"(?:mbarrier\.(?:init|arrive)|barrier\.cluster|fence\.|bra AGAIN)")
STATEMENTS = [match for match in re.finditer(r"[^;{}:]+;", ring()) if SYNCHRONIZATION.search(match[0])]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda match: f"{match.start()}: {match[0].strip()}")
def test_the_ring_needs_every_wait_arrival_and_fence(statement: re.Match[str], policy: str) -> None:
    body = ring()[: statement.start()] + " " + ring()[statement.end() :]
    with pytest.raises(ExecutionFault):
        launch(body, tensor_map=matrix(), policy=policy)


def test_there_are_many() -> None:
    assert len({wrong.name for wrong in WRONG}) == len(WRONG) >= 35
