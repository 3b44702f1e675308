"""Who loads which sums from tensor memory: what `show SPEC tmem` prints, against the DSL's partition of each load."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cutegen.algebra import Layout, format_layout, inner_layout, offsets_2d, parse_layout
from cutegen.hardware.tcgen05 import N_OF_CTAS, TCGEN05_ATOMS
from cutegen.plan.kernel.accumulator import Accumulator
from cutegen.plan.mma.tcgen05 import choose_accumulator

pytestmark = pytest.mark.dsl

Setting = tuple[int, int, int, str, int]
"""Rows and columns of a CTA's tile, CTAs that multiply together, the type of sums, columns of a load."""
WIDTHS = (8, 16, 32, 64, 128)
SETTINGS = 200
FAST = 20


def setting(seed: int) -> Setting:
    """Any tile that an instruction has, and any load that divides its columns."""
    rng = random.Random(seed)
    rows, ctas, element = rng.choice((64, 128)), rng.choice((1, 2)), rng.choice(("f16", "f32"))
    columns = rng.choice(N_OF_CTAS[ctas])
    of_lanes = columns // 2 if (rows, ctas) == (64, 2) else columns
    return rows, columns, ctas, element, rng.choice([width for width in WIDTHS if of_lanes % width == 0])


def accumulator(rows: int, columns: int, ctas: int, element: str) -> Accumulator:
    atom = next(
        atom
        for atom in TCGEN05_ATOMS.values()
        if (atom.ctas, atom.c_dtype.name, atom.a_dtype.name) == (ctas, element, "f16")
        and atom.shape_mnk[:2] == (rows * ctas, columns)
    )
    return choose_accumulator(atom, (rows, columns)).value


def printed(found: Setting) -> np.ndarray:
    """The layout as it is printed, as int[thread, value] of m + rows * n."""
    rows, columns, ctas, element, width = found
    sums = accumulator(rows, columns, ctas, element)
    layout = parse_layout(format_layout(sums.of_load(rows * width // sums.group_threads)))
    read = inner_layout(layout)
    assert isinstance(read, Layout)
    return offsets_2d(read)


def hold(settings: list[Setting]) -> None:
    from tests.hardware.dsl.tensor_memory import loads

    for found, expected in zip(settings, loads(settings), strict=True):
        assert np.array_equal(printed(found), expected), found


def test_a_few_loads_are_the_dsls() -> None:
    hold([setting(seed) for seed in range(FAST)])


@pytest.mark.slow
def test_loads_are_the_dsls() -> None:
    """Of all settings together: each kind of load, and both types."""
    settings = [setting(seed) for seed in range(SETTINGS)]
    assert len({(rows, ctas, element) for rows, _, ctas, element, _ in settings}) == 8
    hold(settings)


def test_a_layout_with_threads_exchanged_is_not_the_dsls() -> None:
    from tests.hardware.dsl.tensor_memory import loads

    (expected,) = loads([(64, 32, 1, "f32", 16)])
    right = printed((64, 32, 1, "f32", 16))
    assert np.array_equal(right, expected)
    assert not np.array_equal(right[::-1], expected)
