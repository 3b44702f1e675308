"""Random layouts in CuTe's notation: nested modes, any order of strides, gaps between them, a swizzle in front."""

from __future__ import annotations

import random
from collections.abc import Sequence

Shape = Sequence[int]


def dense_layout(rng: random.Random, modes: Shape) -> str:
    """A layout of these extents onto 0, 1, 2 ...: every mode split at random, strides in any order.

    >>> dense_layout(random.Random(2), (8, 4))
    '(8,(2,2)):(1,(16,8))'
    """
    factors = [_split(rng, extent) for extent in modes]
    return _text(factors, _strides(rng, factors, gap=0))


def tile_layout(rng: random.Random, modes: Shape) -> str:
    """A layout for shared memory: dense or with gaps, often simply row- or column-major, sometimes swizzled."""
    rows, columns = modes
    gap = rng.choice((0, 0, 0, 1, 2, 4, 8, 16, 24))
    plain = rng.random()
    if plain < 0.35:
        text = f"({rows},{columns}):({columns + gap},1)"
    elif plain < 0.6:
        text = f"({rows},{columns}):(1,{rows + gap})"
    else:
        factors = [_split(rng, extent) for extent in modes]
        text = _text(factors, _strides(rng, factors, gap))
    if rng.random() < 0.35:
        bits = rng.randint(0, 3)
        text = f"Sw<{bits},{rng.choice((2, 3, 4))},{rng.choice((bits, 3, 4))}> o {text}"
    return text


def _split(rng: random.Random, extent: int) -> list[int]:
    """Factors of the extent, most often the extent alone."""
    factors = [extent]
    while rng.random() < 0.35:
        last = factors.pop()
        divisors = [d for d in range(2, last) if last % d == 0]
        if not divisors:
            return [*factors, last]
        first = rng.choice(divisors)
        factors += [first, last // first]
    return factors


def _strides(rng: random.Random, factors: list[list[int]], gap: int) -> list[list[int]]:
    """Strides that leave no two coordinates on one offset; `gap` elements behind the slowest but one."""
    places = [(mode, index) for mode, each in enumerate(factors) for index in range(len(each))]
    rng.shuffle(places)
    strides = [[0] * len(each) for each in factors]
    stride = 1
    for number, (mode, index) in enumerate(places):
        strides[mode][index] = stride
        stride = stride * factors[mode][index] + (gap if number == len(places) - 2 else 0)
    return strides


def _text(factors: list[list[int]], strides: list[list[int]]) -> str:
    return f"({','.join(map(_mode, factors))}):({','.join(map(_mode, strides))})"


def _mode(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"({','.join(map(str, values))})"
