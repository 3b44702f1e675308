"""What PTX does not order and kernels rely on is told and counted; strictly it is an error, the ordered form none."""

from __future__ import annotations

import numpy as np
import pytest
from test_ptx_warp_specialized import TEXT, gemm
from wrong_kernels import WRONG

from cutegen.ptx import ALL_KINDS, UNDEFINED, ExecutionFault, Program, ViolationKind

SIZE = (128, 128, 448)
"""Seven k-tiles through three slots, so that each is filled again."""
POLICIES = ("in-order", "reversed", "random:1", "random:2")
ELECTED = "elect.sync \t%r310|%p21, -1;"
LANE, PROXY = "for which another lane arrived without a bar.warp.sync", "no fence.proxy.async between the read by warp"
ORDERED = {
    "": (LANE, PROXY),
    "bar.warp.sync -1; ": (PROXY,),
    "fence.proxy.async; bar.warp.sync -1; ": (),
}
"""What stands before the arrival at `empty`, and the conventions that are left."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("before", ORDERED)
def test_a_slot_released_by_one_lane(before: str, policy: str) -> None:
    assert TEXT.count(ELECTED) == 1
    error, report = gemm(Program.parse(TEXT.replace(ELECTED, before + ELECTED)), SIZE, seed=5, policy=policy)
    assert error <= 1
    assert report.violations == ()
    assert {found.kind for found in report.conventions} <= {ViolationKind.CONVENTION}
    assert all(any(name in found.message for name in ORDERED[before]) for found in report.conventions)
    assert all(any(name in found.message for found in report.conventions) for name in ORDERED[before])
    assert all(found.count > 1 for found in report.conventions)


@pytest.mark.parametrize("policy", POLICIES)
def test_strictly_it_is_an_error(policy: str) -> None:
    with pytest.raises(ExecutionFault) as caught:
        gemm(Program.parse(TEXT), SIZE, seed=5, policy=policy, raise_on=ALL_KINDS)
    assert caught.value.violation.kind is ViolationKind.CONVENTION
    ordered = TEXT.replace(ELECTED, "fence.proxy.async; bar.warp.sync -1; " + ELECTED)
    assert gemm(Program.parse(ordered), SIZE, seed=5, policy=policy, raise_on=ALL_KINDS)[0] <= 1


def test_only_conventions_are_left_out_of_what_is_undefined() -> None:
    assert {ViolationKind.CONVENTION} == ALL_KINDS - UNDEFINED
    assert not np.any([wrong.kind is ViolationKind.CONVENTION for wrong in WRONG])
