"""Lanes of a warp shuffle, vote and meet in groups: member masks are equal among the lanes that a mask names.

The kernels are in `cuda/check_members.cu`.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program

from cutegen.ptx import ALL_KINDS, UNDEFINED, ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
THREADS = 64
LANES = np.arange(THREADS)
WRONG = {
    "wrong_exchange_without_a_barrier": ViolationKind.RACE,
    "wrong_exchange_of_another_tile": ViolationKind.RACE,
    "wrong_turns_of_8": ViolationKind.RACE,
    "wrong_masks_that_overlap": ViolationKind.DIVERGENCE,
    "wrong_mask_of_the_other_half": ViolationKind.DIVERGENCE,
    "wrong_distance": ViolationKind.UNINITIALIZED,
    "wrong_whole_mask_on_one_path": ViolationKind.DIVERGENCE,
    "wrong_key_of_one_lane": ViolationKind.DIVERGENCE,
}


@pytest.fixture(scope="module")
def program() -> Program:
    return cuda_program("check_members")


def launch(
    program: Program, entry: str, policy: str, raise_on: frozenset[ViolationKind] = ALL_KINDS
) -> tuple[np.ndarray, np.ndarray]:
    """The input i32[thread] and `y` i32[thread]."""
    x = np.random.default_rng(11).integers(-9, 9, THREADS).astype(np.int32)
    y = np.full(THREADS, 77, np.int32)
    program.launch(entry, grid=1, block=THREADS, args=[x, y], policy=policy, raise_on=raise_on)
    return x, y


def tiles(x: np.ndarray, size: int) -> np.ndarray:
    """The numbers by tile: [tile, lane]."""
    return x.reshape(-1, size)


def spread(of_tiles: np.ndarray, size: int) -> np.ndarray:
    """A number of each tile, for each of its lanes."""
    return np.repeat(of_tiles, size)


def turns_of_tiles(x: np.ndarray) -> np.ndarray:
    """What `loops_of_8` gives."""
    values = tiles(x, 8).copy()
    for tile in values:
        for _ in range(tile[0] & 7):
            tile += tile[np.arange(8) ^ 1]
    return values.ravel()


def sums_by_key(x: np.ndarray) -> np.ndarray:
    """For each lane the sum of its warp's numbers that have its two lowest bits."""
    same = (x[:, None] & 3 == x[None] & 3) & (LANES[:, None] >> 5 == LANES[None] >> 5)
    return (same * x).sum(axis=1)


def votes(x: np.ndarray) -> np.ndarray:
    """The bits of the positive numbers of each tile of 4, whether one is above 6, whether all are above -6."""
    of_tile = tiles(x, 4)
    bits = ((of_tile > 0) << np.arange(4)).sum(axis=1)
    return spread(bits | (of_tile > 6).any(axis=1) << 4 | (of_tile > -6).all(axis=1) << 5, 4)


RIGHT = {
    "butterfly_of_16": lambda x: spread(tiles(x, 16).sum(axis=1), 16),
    "scan_of_8": lambda x: tiles(x, 8).cumsum(axis=1).ravel(),
    "votes_of_4": votes,
    "sums_of_equal_keys": sums_by_key,
    "cooperative_tiles": lambda x: spread(tiles(x, 16).sum(axis=1) + tiles(x, 16)[:, 12], 16),
    "loops_of_8": turns_of_tiles,
    "exchange_of_16": lambda x: x[LANES ^ 15],
    "turns_of_8": lambda x: spread(tiles(x, 8)[:, :3].sum(axis=1), 8),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", RIGHT)
def test_each_group_by_itself(program: Program, entry: str, policy: str) -> None:
    x, y = launch(program, entry, policy)
    assert (y == RIGHT[entry](x)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_lanes_that_came_down_one_path(program: Program, policy: str) -> None:
    """Each positive number has a place of its own, in order within a warp."""
    x, y = launch(program, "places_of_positive", policy)
    assert sorted(y[x > 0]) == list(range(np.count_nonzero(x > 0)))
    assert (y[x <= 0] == -1).all()
    for warp in (slice(0, 32), slice(32, 64)):
        places = y[warp][x[warp] > 0]
        assert (np.diff(places) == 1).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", WRONG)
def test_what_does_not_fit_the_group(program: Program, entry: str, policy: str) -> None:
    with pytest.raises(ExecutionFault) as caught:
        launch(program, entry, policy, UNDEFINED)
    assert caught.value.violation.kind is WRONG[entry]
