"""What an arrival at another CTA's mbarrier passes on at scope cta: freed slots are a convention, data are a race.

The kernels are in `cuda/cluster_arrivals.cu`.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program

from cutegen.ptx import ALL_KINDS, UNDEFINED, ExecutionFault, LaunchReport, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
THREADS, PARTS = 64, 4
LANES = np.arange(THREADS)
Kinds = frozenset[ViolationKind]

RIGHT = {
    "pulled": lambda x: x[[1, 0], ::-1],
    "pulled_elected": lambda x: x[[1, 0], ::-1],
    "pushed": lambda x: x[:, LANES ^ 1],
    "sent": lambda x: x[:, LANES ^ 1],
    "reduced": lambda x: np.tile(x[:2, LANES ^ 1].sum(axis=0), (2, 1)),
    "global": lambda x: x[[1, 0], ::-1],
    "passed_on": lambda x: np.tile(x[0], (4, 1)),
    "counted": lambda x: np.full((1, THREADS), x[0].sum()),
}
"""What each stores, from x[part, thread]."""
FREED = {name: RIGHT[name.removesuffix("_freed_by_default")] for name in (
    "pushed_freed_by_default", "sent_freed_by_default", "reduced_freed_by_default",
)}  # fmt: skip
WRONG = {
    "wrong_pulled": "ld.shared::cluster",
    "wrong_pulled_release": "ld.shared::cluster",
    "wrong_pulled_acquire": "ld.shared::cluster",
    "wrong_pulled_default": "ld.shared::cluster",
    "wrong_pulled_elected": "ld.shared::cluster",
    "wrong_pushed": "ld.shared.f32",
    "wrong_global": "ld.global",
    "wrong_passed_on_first": "ld.shared::cluster",
    "wrong_passed_on_second": "ld.shared::cluster",
    "wrong_counted": "ld.shared.f32",
}
"""The instruction that reads too early, by kernel."""


@pytest.fixture(scope="module")
def program() -> Program:
    return cuda_program("cluster_arrivals")


def launch(program: Program, entry: str, policy: str, raise_on: Kinds) -> tuple[np.ndarray, np.ndarray, LaunchReport]:
    """The input f32[part, thread], small whole numbers, `y` of the same shape, and the report."""
    x = np.random.default_rng(5).integers(-9, 9, (PARTS, THREADS)).astype(np.float32)
    y, work = np.full_like(x, np.nan), np.zeros_like(x)
    grid = 4 if "passed_on" in entry else 2
    args = [x, y, work]
    report = program.launch(entry, grid=grid, block=THREADS, args=args, policy=policy, raise_on=raise_on)
    return x, y, report


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", RIGHT)
def test_data_passed_on_at_scope_cluster(program: Program, entry: str, policy: str) -> None:
    x, y, _ = launch(program, entry, policy, ALL_KINDS)
    expected = RIGHT[entry](x)
    assert (y[: len(expected)] == expected).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", FREED)
def test_slots_freed_at_scope_cta_are_a_convention(program: Program, entry: str, policy: str) -> None:
    x, y, report = launch(program, entry, policy, UNDEFINED)
    expected = FREED[entry](x)
    assert (y[: len(expected)] == expected).all()
    assert {"release" in found.message or "acquire" in found.message for found in report.conventions} == {True}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", WRONG)
def test_data_passed_on_at_scope_cta_are_a_race(program: Program, entry: str, policy: str) -> None:
    with pytest.raises(ExecutionFault, match="which mbarriers pass on at scope cta") as caught:
        launch(program, entry, policy, UNDEFINED)
    assert caught.value.violation.kind is ViolationKind.RACE
    assert WRONG[entry] in caught.value.violation.instruction
