"""Vectors that a thread stores side by side become one access: the tables against a walk, thread by thread."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cutegen.algebra import Layout, LayoutExpr, offsets, parse_layout, tile_to_shape
from cutegen.plan.geometry import joined, vectors

TILE = (32, 32)
GRIDS = [Layout((8, 4), (4, 1)), Layout((4, 8), (1, 4)), Layout((2, 8), (1, 2)), Layout((8, 1), (1, 8))]
STAGED = ["(32,32):(32,1)", "(32,32):(1,32)", "(32,32):(36,1)", "(8,8):(8,1)", "(4,32):(1,4)"]
SWIZZLED = ["Sw<2,2,3> o (8,32):(32,1)", "Sw<1,1,2> o (32,8):(1,32)"]


def walked(places: list[list[int]], vector: int, most: int) -> list[int]:
    """Lengths of the accesses, each as long as it can be for every thread; `places`: of each thread, in order."""
    lengths, at = [], 0
    while at < len(places[0]):
        for length in (most >> step for step in range(8)):
            parts = length // vector
            runs = [place[at : at + parts] for place in places]
            if length <= vector or all(
                run[0] % length == 0 and run == [run[0] + vector * i for i in range(parts)] for run in runs
            ):
                break
        lengths.append(max(length, vector))
        at += lengths[-1] // vector
    return lengths


@pytest.mark.parametrize("seed", range(40))
def test_joined_accesses_are_what_a_walk_finds(seed: int) -> None:
    rng = random.Random(seed)
    vector, element_bits = rng.choice((1, 2, 4)), rng.choice((8, 16, 32))
    threads = rng.choice(GRIDS)
    values = Layout((1, vector)) if rng.random() < 0.5 else Layout((vector, 1))
    layout: LayoutExpr = tile_to_shape(parse_layout(rng.choice(STAGED + SWIZZLED)), TILE)
    first = offsets(layout)[vectors(threads, values, TILE)[..., 0]]  # [vector, thread]
    first = first[np.argsort(first[:, 0])]  # a register is of the same vector in every thread
    expected = walked(first.T.tolist(), vector, 128 // element_bits)
    starts, lengths = joined(threads, values, layout, TILE, element_bits)
    assert list(lengths) == expected
    begins = np.cumsum([0, *lengths[:-1]]) // vector
    assert np.array_equal(offsets(layout)[starts], first[begins])


def test_halves_that_a_swizzle_exchanges_are_not_joined() -> None:
    """Eight bytes along K lie together in every thread, but in half of them with the last four first."""
    layout = tile_to_shape(parse_layout("Sw<3,2,3> o ((32,4),(2,8)):((8,256),(1024,1))"), (128, 128))
    _, lengths = joined(Layout((128, 1), (1, 128)), Layout((1, 1)), layout, (128, 128), 8)
    assert set(lengths) == {4}
