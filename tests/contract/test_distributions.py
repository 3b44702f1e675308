"""Named distributions of rows over groups: all rows, no more, and as uneven as their names say."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.contract.problem import Distribution

ROWS, GROUPS = 32768, 128
MEAN = ROWS // GROUPS


@pytest.mark.parametrize("name", list(Distribution))
@pytest.mark.parametrize("rows", [1, 7, 512, 8191, ROWS])
@pytest.mark.parametrize("groups", [1, 3, 8, 9, 300])
def test_every_row_has_one_group(name: Distribution, rows: int, groups: int) -> None:
    sizes = name.sizes(rows, groups, seed=rows + groups)
    assert len(sizes) == groups
    assert sum(sizes) == rows
    assert min(sizes) >= 0


@pytest.mark.parametrize("name", list(Distribution))
def test_a_seed_gives_the_same_sizes_again(name: Distribution) -> None:
    first, again, other = (name.sizes(ROWS, GROUPS, seed) for seed in (3, 3, 4))
    assert first == again
    assert (first != other) == (name in (Distribution.SPREAD, Distribution.ROUTED))


def test_uniform_sizes_differ_by_one_at_most() -> None:
    assert set(Distribution.UNIFORM.sizes(1000, 7)) == {142, 143}


def test_spread_sizes_are_within_thirty_percent_of_their_mean() -> None:
    sizes = np.array(Distribution.SPREAD.sizes(ROWS, GROUPS)) / MEAN
    assert 0.6 < sizes.min() < 0.8  # the mean of the factors may be off by a few percent
    assert 1.2 < sizes.max() < 1.4


def test_no_token_chooses_a_group_twice() -> None:
    """With eight groups every token chooses all; with more, no group has more rows than there are tokens."""
    assert Distribution.ROUTED.sizes(8 * 100, 8) == (100,) * 8
    sizes = Distribution.ROUTED.sizes(8 * 100, 9)
    assert len(set(sizes)) > 1
    assert max(sizes) <= 100


def test_a_router_prefers_some_groups() -> None:
    sizes = np.array(Distribution.ROUTED.sizes(ROWS, GROUPS)) / MEAN
    assert 0.4 < np.std(sizes) < 1.2  # independent choices alone would give 1 / 16


def test_sizes_by_zipf_fall_as_one_over_their_rank() -> None:
    sizes = Distribution.ZIPF.sizes(ROWS, GROUPS)
    assert [round(sizes[0] / sizes[i - 1]) for i in (2, 4, 8)] == [2, 4, 8]


def test_one_hot_group_has_half_of_the_rows() -> None:
    hot, *rest = sorted(Distribution.HOT.sizes(ROWS, GROUPS), reverse=True)
    assert hot == ROWS // 2
    assert max(rest) - min(rest) <= 1
