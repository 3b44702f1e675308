"""Kernels with `tcgen05`: the right ones give their product in every order, without a convention; wrong ones do not."""

from __future__ import annotations

import cProfile
import pstats
import random

import pytest
import tcgen05_fixes
import tcgen05_kernels
import tcgen05_more
import tcgen05_ring
from tcgen05_kernels import Kernel
from tcgen05_wrong import POLICIES, Wrong
from tcgen05_wrong_more import WRONG as WRONG_MORE

from cutegen.ptx import ALL_KINDS, UNDEFINED, ExecutionFault, ViolationKind

RIGHT = (*tcgen05_kernels.RIGHT, *tcgen05_more.RIGHT, *tcgen05_ring.RIGHT, *tcgen05_fixes.RIGHT)
WRONG = (*WRONG_MORE, *tcgen05_fixes.fixes())


every_right = pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.name)
every_wrong = pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)


def check_product(right: Kernel, policy: str) -> None:
    out, _ = right.launch(policy=policy, raise_on=ALL_KINDS)
    assert right.error(out) == 0, policy


def check_mistake(wrong: Wrong, policy: str) -> None:
    if wrong.kind is None:
        out, _ = wrong.right.launch(wrong.text, policy=policy)
        assert wrong.right.error(out) > 0, policy
        return
    strict = ALL_KINDS if wrong.kind is ViolationKind.CONVENTION else UNDEFINED
    with pytest.raises(ExecutionFault) as caught:
        wrong.right.launch(wrong.text, policy=policy, raise_on=strict)
    kind = caught.value.violation.kind
    assert kind is wrong.kind or kind in wrong.also, (policy, str(caught.value))
    assert wrong.says in str(caught.value) or kind in wrong.also, (policy, str(caught.value))


@every_right
def test_the_right_one_gives_its_product(right: Kernel) -> None:
    """In an order that is drawn: the slow test has all."""
    check_product(right, random.choice(POLICIES))


@every_wrong
def test_the_wrong_one_is_caught(wrong: Wrong) -> None:
    check_mistake(wrong, random.choice(wrong.caught))


@pytest.mark.slow
@every_right
def test_the_right_one_gives_its_product_in_every_order(right: Kernel) -> None:
    for policy in POLICIES:
        check_product(right, policy)


@pytest.mark.slow
@every_wrong
def test_the_wrong_one_is_caught_in_each_of_its_orders(wrong: Wrong) -> None:
    for policy in wrong.caught:
        check_mistake(wrong, policy)


def test_each_kind_says_what_it_is_in_some_order() -> None:
    """`also` is what a mistake leads to; its own kind must be found too."""
    for wrong in WRONG:
        if wrong.also and wrong.kind is not None:
            assert wrong.kind in {kind_of(wrong, policy) for policy in POLICIES}, wrong.name


def kind_of(wrong: Wrong, policy: str) -> ViolationKind:
    strict = ALL_KINDS if wrong.kind is ViolationKind.CONVENTION else UNDEFINED
    with pytest.raises(ExecutionFault) as caught:
        wrong.right.launch(wrong.text, policy=policy, raise_on=strict)
    return caught.value.violation.kind


def test_the_rows_are_many_and_their_names_differ() -> None:
    assert len(RIGHT) >= 25
    assert len(WRONG) >= 40
    for rows in (RIGHT, WRONG):
        assert len({row.name for row in rows}) == len(rows)


def test_a_k_tile_takes_a_bounded_number_of_calls() -> None:
    """128 x 256 x 64 in four multiplications: work on arrays, not on words."""
    few, many = (_calls(k_tiles) for k_tiles in (2, 6))
    assert (many - few) / 4 < 7000


def _calls(k_tiles: int) -> int:
    ring = tcgen05_ring.Ring(n=256, k_tiles=(k_tiles,), ctas=1)
    ring.launch()
    profile = cProfile.Profile()
    profile.runcall(ring.launch)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
