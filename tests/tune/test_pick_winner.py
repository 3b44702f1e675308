"""A winner is faster beyond noise, and else the model's favorite stays."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import pytest

from cutegen.tune.pick_winner import MARGIN, gain, is_faster, is_settled, leaders, times_of, winner


def noisy(us: float, share: float, seed: int, rounds: int = 36) -> list[float]:
    drawn = random.Random(seed)
    return [us * (1 + drawn.gauss(0, share)) for _ in range(rounds)]


@pytest.mark.parametrize(("faster_by", "expected"), [(0.05, True), (0.02, True), (0.004, False), (-0.03, False)])
def test_differences_beyond_noise_count(faster_by: float, expected: bool) -> None:
    samples = {"favorite": noisy(10.0, 0.005, 1), "other": noisy(10.0 / (1 + faster_by), 0.005, 2)}
    assert is_faster(samples, "other", "favorite") == expected
    assert is_settled(samples, "other", "favorite")


def test_a_gain_near_the_margin_needs_more_rounds() -> None:
    """However far it is from no gain at all: the margin is what decides."""
    samples = {"favorite": noisy(10.0, 0.002, 1), "other": noisy(10.0 / (1 + MARGIN), 0.002, 2)}
    ratio, error = gain(samples, "other", "favorite")
    assert abs(ratio - 1 - MARGIN) < 2 * error < abs(ratio - 1) / 4
    assert not is_settled(samples, "other", "favorite")


def test_noise_hides_a_difference() -> None:
    samples = {"favorite": noisy(10.0, 0.2, 1), "other": noisy(9.7, 0.2, 2)}
    assert not is_faster(samples, "other", "favorite")
    assert not is_settled(samples, "other", "favorite")


def test_what_moves_all_alike_is_no_noise() -> None:
    heat = [1 + 0.3 * random.Random(i).random() for i in range(20)]
    samples = {"favorite": [10 * x for x in heat], "other": [9.5 * x for x in heat]}
    ratio, error = gain(samples, "other", "favorite")
    assert ratio == pytest.approx(10 / 9.5)
    assert error == pytest.approx(0, abs=1e-9)


def test_the_favorite_leads_the_list_whatever_its_time() -> None:
    samples: dict[str, Sequence[float]] = {"a": [3.0], "favorite": [9.0], "b": [1.0], "c": [2.0]}
    assert leaders(samples, "favorite", 3) == ["favorite", "b", "c"]


@pytest.mark.parametrize(
    ("graph_gain", "launch_gain", "wins"),
    [(1.04, 1.0, True), (1.04, 0.97, True), (1.04, 0.95, False), (1.02, 0.975, False), (1.1, 0.95, True)],
)
def test_a_winner_gains_in_one_regime_what_it_loses_in_the_other(
    graph_gain: float, launch_gain: float, wins: bool
) -> None:
    graph = {"favorite": noisy(10.0, 0.003, 1), "other": noisy(10.0 / graph_gain, 0.003, 2)}
    launch = {"favorite": noisy(13.0, 0.003, 3, 15), "other": noisy(13.0 / launch_gain, 0.003, 4, 15)}
    assert winner(graph, launch, "favorite") == (("other", False) if wins else ("favorite", True))


def test_noise_of_the_other_regime_refuses_nobody() -> None:
    graph = {"favorite": noisy(10.0, 0.003, 1), "other": noisy(9.7, 0.003, 2)}
    launch = {"favorite": noisy(13.0, 0.2, 3, 15), "other": noisy(13.4, 0.2, 4, 15)}
    assert winner(graph, launch, "favorite") == ("other", False)


def test_the_next_wins_where_the_fastest_may_not() -> None:
    graph = {"favorite": noisy(10.0, 0.003, 1), "fastest": noisy(9.0, 0.003, 2), "next": noisy(9.5, 0.003, 3)}
    launch = {"favorite": noisy(13.0, 0.003, 4), "fastest": noisy(16.0, 0.003, 5), "next": noisy(13.0, 0.003, 6)}
    assert winner(graph, launch, "favorite") == ("next", False)


def test_medians_and_quartiles_are_those_of_the_samples() -> None:
    samples = noisy(10.0, 0.1, 7, rounds=101)
    found = times_of(samples)
    assert found.median_us == statistics.median(samples)
    assert (found.low_us, found.high_us) == pytest.approx((sorted(samples)[25], sorted(samples)[75]), rel=0.02)
    assert found.rounds == 101
