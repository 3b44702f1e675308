"""The problem: its extents, its groups and how rows spread over them, pairs of columns, a quantized result."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy as np

from cutegen.errors import RequestError
from cutegen.support.words import plural, round_up

# Products of one launch whose sizes only the device has, and what a host knows of them.


Mode = Literal["m", "n", "k"]
GROUP = "g"
"""The mode of a tensor that has one matrix, one vector or one number per group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One of the products whose tiles a scheduler gives out, by its part of each mode."""

    m: range
    n: range
    k: range


def from_vector(part: range, vector: int) -> range:
    """Return a group's part of its mode from the vector on that has its first element; of an empty one nothing.

    >>> from_vector(range(13, 20), 8), from_vector(range(13, 13), 8)
    (range(8, 20), range(13, 13))
    """
    return range(part.start - part.start % vector, part.stop) if part else part


@dataclass(frozen=True, slots=True)
class Groups:
    """One mode of the operands belongs to groups: rows of A and C (`of` "m"), columns ("n"), or parts of K ("k").

    "packed" groups follow one another, and the device has their ends; "padded" ones each have room for the whole
    extent, and the device has their sizes. A kernel makes any int32 safe: it clamps each to the room there is, and ends
    also to the previous end, so that groups are in order and none reaches outside.
    """

    of: Mode
    layout: Literal["packed", "padded"] = "packed"

    def __str__(self) -> str:
        return f"{self.layout} groups of {self.of}"

    def products(self, given: Sequence[int], problem: ProblemShape) -> Iterator[Product]:
        """Yield the groups for the ends or sizes that the device has; `problem` has the whole extent of the mode.

        >>> [each.m for each in Groups("m").products((3, 2, 9), ProblemShape(8, 16, 4))]
        [range(0, 3), range(3, 3), range(3, 8)]
        """
        every = Product(m=range(problem.m), n=range(problem.n), k=range(problem.k))
        begin, room = 0, problem.extents[self.of]
        for number in given:
            end = min(max(number, begin), room)
            yield replace(every, **{self.of: range(begin, end)})
            begin = end if self.layout == "packed" else 0

    def packs(self, modes: tuple[str, ...]) -> bool:
        """Return whether a tensor of these modes has the groups one after another, instead of a matrix for each.

        >>> Groups("m").packs(("m", "k")), Groups("m").packs(("n", "k")), Groups("m", "padded").packs(("m", "k"))
        (True, False, False)
        """
        return self.layout == "packed" and self.of in modes

    @property
    def leaves_elements(self) -> bool:
        """True if C has elements that no group has: rows or columns past an end."""
        return self.of != "k"

    def blocks(self, products: Iterable[Product], rows: int) -> Iterator[range]:
        """Yield the blocks of `rows` that each product has, if the groups are packed and each begins a block.

        >>> groups, problem = Groups("m"), ProblemShape(300, 8, 4)
        >>> list(groups.blocks(groups.products((3, 3, 200), problem), 128))
        [range(0, 1), range(1, 1), range(1, 3)]
        """
        begin = 0
        for product in products:
            end = begin + -(-len(getattr(product, self.of)) // rows)
            yield range(begin, end)
            begin = end

    def exchanged(self) -> Groups:
        """Return the groups of the swapped product, whose rows are columns here."""
        modes: dict[Mode, Mode] = {"m": "n", "n": "m", "k": "k"}
        return replace(self, of=modes[self.of])

    def most_tiles(self, extent: int, groups: int, tile: int) -> int:
        """Return the most tiles along the mode, over all groups, that any sizes have: a host's upper bound.

        >>> Groups("m").most_tiles(100, 4, 64), Groups("m", "padded").most_tiles(100, 4, 64)
        (5, 8)
        """
        return (extent + groups * (tile - 1)) // tile if self.layout == "packed" else groups * -(-extent // tile)


# Named distributions of rows over groups, as routers spread them: to measure, and to predict.


_TOP = 8
"""Groups that a token is routed to, as mixtures of many experts have."""
_PREFERENCE = 0.7
"""Standard deviation of the logarithm of how often a router prefers a group."""
_MOST_SCORES = 1 << 20
"""Scores of tokens for groups that are drawn: more tokens follow the shares of these."""

_Weights = np.ndarray[Any, np.dtype[np.float64]]


class Distribution(StrEnum):
    """A distribution of rows over groups.

    All the same; factors of U(0.7, 1.3); choices of the top 8 groups by each token, with mild preferences; shares of
    1/1, 1/2, 1/3, ...; half of all rows in one group.
    """

    UNIFORM = "uniform"
    SPREAD = "spread"
    ROUTED = "routed"
    ZIPF = "zipf"
    HOT = "hot"

    @property
    def even(self) -> bool:
        """True if all groups but one at most have the same size, which routers do not give them: tiles may just fit."""
        return self in (Distribution.UNIFORM, Distribution.HOT)

    def sizes(self, rows: int, groups: int, seed: int = 0) -> tuple[int, ...]:
        """Return the size of each group; their sum is `rows`.

        >>> Distribution.UNIFORM.sizes(10, 4), Distribution.ZIPF.sizes(11, 3), Distribution.HOT.sizes(12, 4)
        ((2, 3, 3, 2), (6, 3, 2), (2, 6, 2, 2))
        """
        ends = np.cumsum(self._weights(rows, groups, np.random.default_rng(seed)))
        return tuple(np.diff(np.rint(rows * (ends / ends[-1])).astype(np.int64), prepend=0).tolist())

    def _weights(self, rows: int, groups: int, random: np.random.Generator) -> _Weights:
        match self:
            case Distribution.UNIFORM:
                return np.ones(groups)
            case Distribution.SPREAD:
                return random.uniform(0.7, 1.3, groups)
            case Distribution.ROUTED:
                return _routed(rows, groups, random)
            case Distribution.ZIPF:
                return 1 / np.arange(1, groups + 1)
            case Distribution.HOT:
                weights = np.ones(groups)
                weights[groups // 3] = max(1, groups - 1)
                return weights


def _routed(rows: int, groups: int, random: np.random.Generator) -> _Weights:
    """Return how many tokens choose each group: those with the best scores, which are preferences and Gumbel noise."""
    top = min(_TOP, groups)
    tokens = max(1, min(-(-rows // top), _MOST_SCORES // groups))
    scores = random.normal(0, _PREFERENCE, groups) + random.gumbel(size=(tokens, groups))
    chosen = np.argpartition(scores, groups - top, axis=1)[:, groups - top :]
    return np.bincount(chosen.ravel(), minlength=groups).astype(np.float64)


# Pairs of columns of B, a gate and an up, from whose two sums an epilogue computes one column of C.


Member = Literal["gate", "up"]
PAIR = "p"
"""The mode of a tensor that has one column for each pair: p = n / 2."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The order of the columns of B: `width` of one member, as many of the other, and so on; the `first` begins.

    Without a `width` each member is one half of all columns. The columns of a member are in the order of C's. In a
    kernel that multiplies B by A they are rows of its A: `of` "m", instead of columns of its B.
    """

    first: Member
    width: int | None = None
    of: Literal["m", "n"] = "n"

    def __str__(self) -> str:
        members = " then ".join(self.members)
        if self.width is None:
            return f"halves of B's columns, {members}"
        return f"{self.width} of B's columns of each in turn, {members}"

    @property
    def members(self) -> tuple[Member, Member]:
        """Both members, in the order of their columns."""
        return ("gate", "up") if self.first == "gate" else ("up", "gate")

    @property
    def operand(self) -> str:
        """The operand that has both columns of each pair."""
        return "a" if self.of == "m" else "b"

    @property
    def modes_of_result(self) -> tuple[str, str]:
        """The modes of C: one of them has an element for each pair.

        >>> Pairs("gate").modes_of_result, Pairs("gate").exchanged().modes_of_result
        (('m', 'p'), ('p', 'n'))
        """
        return (PAIR, "n") if self.of == "m" else ("m", PAIR)

    def tile_of_result(self, tile: tuple[int, int]) -> tuple[int, int]:
        """Return the extents of C that a tile of sums becomes."""
        m, n = tile
        return (m // 2, n) if self.of == "m" else (m, n // 2)

    def exchanged(self) -> Pairs:
        """Return the pairs of the swapped product, whose rows are columns here."""
        return replace(self, of="n" if self.of == "m" else "m")

    @property
    def multiple(self) -> int:
        """The number that N is a multiple of."""
        return 2 * (self.width or 1)

    def modes(self, columns: int) -> tuple[tuple[int, int], ...]:
        """Return extent and stride of each mode of so many columns: those of a member's columns, then of the members.

        >>> Pairs("gate").modes(96), Pairs("up", 1).modes(96), Pairs("gate", 8).modes(96)
        (((48, 1), (2, 48)), ((48, 2), (2, 1)), ((8, 1), (6, 16), (2, 8)))
        """
        if self.width is None:
            return (columns // 2, 1), (2, columns // 2)
        if self.width == 1:
            return (columns // 2, 2), (2, 1)
        return (self.width, 1), (columns // (2 * self.width), 2 * self.width), (2, self.width)

    def column(self, pair: int, member: Member, columns: int) -> int:
        """Return the column of B that is the `member` of a pair, the number of C's column.

        >>> Pairs("up", 8).column(9, "gate", 96), Pairs("gate").column(9, "up", 96)
        (25, 57)
        """
        width = self.width or columns // 2
        return pair // width * 2 * width + pair % width + (0 if member == self.first else width)

    def pair(self, column: int, columns: int) -> tuple[int, Member]:
        """Return the pair of a column of B, and which member the column is: the inverse of `column`.

        >>> Pairs("up", 8).pair(25, 96), Pairs("gate").pair(57, 96)
        ((9, 'gate'), (9, 'up'))
        """
        block, within = divmod(column, self.width or columns // 2)
        return block // 2 * (self.width or 0) + within, self.members[block % 2]


# A quantized result: 8-bit floats, and a factor for each block of a row.
#
# s = max(largest magnitude of a block, QUANTIZED_FLOOR) / QUANTIZED_MOST, r = round(1 / s), values = round(x r)


FactorsOfC = Literal["f32", "ue8m0"]
"""Rounding of factors: to float32, or up to powers of two."""
QUANTIZED_BLOCK = (1, 128)
"""Rows and columns of C that share a factor."""
QUANTIZED_FLOOR = 1e-4
"""The least magnitude for which a factor is computed: a block of zeros has a factor too."""
_VECTOR = 4
"""Factors in the 16 bytes of which leading strides of a tensor map are multiples."""
QUANTIZED_MOST: Mapping[str, float] = {"e4m3": 448.0}
"""The largest finite value of each type that a kernel quantizes to."""


def leading_stride_of_factors(rows: int) -> int:
    """Return the leading stride of new factors of so many rows, which are contiguous: whole vectors.

    >>> leading_stride_of_factors(6), leading_stride_of_factors(0)
    (8, 4)
    """
    return round_up(max(1, rows), _VECTOR)


# The extents of a problem, for plans, calls and benchmarks.


MAX_EXTENT = 2**31 - 2**17
"""Limit of M, N and K. Kernels count in int32, to the end of the last tile and of the stages beyond it.

A tile's extents are at most 2**13. All stages of A and B fit in 2**18 bytes, and a tile has 12 rows of A and B or more,
so that stages times K of a tile are below 2**15."""
MAX_BATCH = 2**16 - 1
"""Limit of `grid.z` (CUDA C++ Programming Guide, "Compute Capabilities")."""
MAX_TILES = MAX_EXTENT
"""Limit of the tiles of one matrix. Their numbers are int32, also those that CTAs look for after the last; `grid.x` is
below 2**31 (CUDA C++ Programming Guide, "Compute Capabilities")."""


@dataclass(frozen=True, slots=True, order=True)
class ProblemShape:
    """C[M,N] = A[M,K] B[N,K], `batch` times. A call may have extents of 0. Raises RequestError below that.

    With `groups` of one of its modes, the extent of that mode is the room for all of them if they are packed, and for
    each if they are padded.

    >>> str(ProblemShape(64, 8192, 8192)), str(ProblemShape(8, 16, 32, 4)), str(ProblemShape(512, 16, 32, groups=8))
    ('64x8192x8192', '4 x 8x16x32', '512x16x32 in 8 groups')
    >>> ProblemShape(4096, 4096, 4096).flops, ProblemShape(2, 3, 4, 5).flops
    (137438953472, 240)
    """

    m: int
    n: int
    k: int
    batch: int = 1
    groups: int | None = None

    def __post_init__(self) -> None:
        _check(self.m, self.n, self.k, self.batch, least=0)
        if self.groups is not None and not 0 <= self.groups <= MAX_EXTENT:
            raise RequestError(f"problem: found {self.groups} groups; expected 0 to {MAX_EXTENT}")

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        groups = "" if self.groups is None else f" in {plural(self.groups, 'group')}"
        return f"{batch}{self.m}x{self.n}x{self.k}{groups}"

    @classmethod
    def of(cls, problem: ProblemLike | None) -> ProblemShape | None:
        """Return (M, N, K) or (M, N, K, batch) as a shape of at least one element; None stays None.

        Raises RequestError.
        """
        if problem is None:
            return None
        if isinstance(problem, ProblemShape):
            _check(problem.m, problem.n, problem.k, problem.batch, least=1)
            return problem
        numbers = tuple(map(whole, problem)) if isinstance(problem, Iterable) else ()
        values = [number for number in numbers if number is not None]
        if len(values) not in (3, 4) or len(values) < len(numbers):
            raise RequestError(f"problem: found {problem!r}; expected (M, N, K) or (M, N, K, batch), integers")
        _check(*values, least=1)
        return cls(*values)

    @property
    def products(self) -> int:
        """The number of groups; 1 without."""
        return 1 if self.groups is None else self.groups

    def table(self) -> dict[str, int]:
        """Return the extents, the batch, and the number of groups if there are any, as JSON has them."""
        found = {**self.extents, "batch": self.batch}
        return found if self.groups is None else {**found, "groups": self.groups}

    @property
    def extents(self) -> Mapping[str, int]:
        """M, N and K by the names of the tensors' modes."""
        return {"m": self.m, "n": self.n, "k": self.k}

    @property
    def modes(self) -> Mapping[str, int]:
        """The extents of every mode of a tensor: also of p, the pairs of columns."""
        return {**self.extents, PAIR: self.n // 2}

    @property
    def empty(self) -> bool:
        """True if there is no element to compute."""
        return 0 in (self.m, self.n, self.batch, self.groups)

    @property
    def operand_batch(self) -> int | None:
        """The batch of the operands: None if they are matrices."""
        return self.batch if self.batch > 1 else None

    @property
    def flops(self) -> int:
        """Floating-point operations; a multiply-add counts as two."""
        return 2 * self.batch * self.m * self.n * self.k

    def compulsory_bytes(self, a_bytes: int, b_bytes: int, c_bytes: int) -> int:
        """Return the least device memory traffic: each input read once, the result written once. Bytes are per element.

        >>> ProblemShape(2, 3, 4).compulsory_bytes(1, 2, 4)
        56
        """
        once = self.m * self.k * a_bytes + self.n * self.k * b_bytes + self.m * self.n * c_bytes
        return self.batch * once


ProblemLike: TypeAlias = ProblemShape | tuple[int, int, int] | tuple[int, int, int, int]
"""A problem as calls give it: (M, N, K), or (M, N, K, batch)."""


def whole(number: Any) -> int | None:
    """Return an integer of Python's or another library's type as Python's; None for anything else.

    >>> whole(3), whole(3.0), whole(True)
    (3, None, None)
    """
    try:
        return None if isinstance(number, bool) else operator.index(number)
    except TypeError:
        return None


def _check(m: int, n: int, k: int, batch: int = 1, *, least: int) -> None:
    if not (all(least <= x <= MAX_EXTENT for x in (m, n, k)) and least <= batch <= MAX_BATCH):
        raise RequestError(
            f"problem: found M, N, K = {(m, n, k)} and a batch of {batch}; expected extents from {least} to "
            f"{MAX_EXTENT} and a batch from {least} to {MAX_BATCH}"
        )


# The problem that a kernel is chosen for, instead of the called one: new batch sizes do not compile.
#
# Extents are rounded up to a few values per octave. Batches and sequences appear in M and K, in the forward and in the
# backward pass. N determines the number of tiles and is mostly the width of a layer, so its steps are finer.


STEPS_OF_M, STEPS_OF_N, STEPS_OF_K, STEPS_OF_BATCH = 2, 8, 4, 1
"""Values per octave. With 8, every width below 2048 that is a multiple of 128 keeps its own bucket."""

BATCH_INVARIANT_M = 256
"""Rows assumed for a kernel that must not depend on the number of rows."""


def rounded_up(extent: int, steps: int) -> int:
    """Return the least bucket that holds `extent`: a power of two, or one of the `steps` up to the next.

    >>> [rounded_up(x, 2) for x in (1, 3, 5, 17, 64, 65, 3000)]
    [1, 3, 6, 24, 64, 96, 3072]
    >>> rounded_up(14336, 4), rounded_up(11008, 8)
    (14336, 11264)
    """
    octave = 1 << (extent.bit_length() - 1)
    step = max(1, octave // steps)
    return -(-extent // step) * step


def bucket(problem: ProblemShape, *, batch_invariant: bool = False, groups: Groups | None = None) -> ProblemShape:
    """Return the problem to choose a kernel for, not empty; with `batch_invariant` M and the batch have no influence.

    With `groups` their mode is that of as many equal ones: their number has the steps of a batch, and their size those
    of the mode.

    >>> str(bucket(ProblemShape(100, 4096, 4096))), str(bucket(ProblemShape(100, 4096, 4096), batch_invariant=True))
    ('128x4096x4096', '256x4096x4096')
    """
    if groups is not None:
        return _of_groups(problem, groups, batch_invariant=batch_invariant)
    m, batch = (BATCH_INVARIANT_M, 1) if batch_invariant else (problem.m, problem.batch)
    return ProblemShape(
        m=min(rounded_up(m, STEPS_OF_M), MAX_EXTENT),
        n=min(rounded_up(problem.n, STEPS_OF_N), MAX_EXTENT),
        k=min(rounded_up(max(problem.k, 1), STEPS_OF_K), MAX_EXTENT),
        batch=min(rounded_up(batch, STEPS_OF_BATCH), MAX_BATCH),
    )


def _of_groups(problem: ProblemShape, groups: Groups, *, batch_invariant: bool) -> ProblemShape:
    """Return the bucket of groups of one mode.

    >>> str(_of_groups(ProblemShape(1000, 1536, 2048, groups=100), Groups("m"), batch_invariant=False))
    '1536x1536x2048 in 128 groups'
    """
    number = min(rounded_up(max(problem.products, 1), STEPS_OF_BATCH), MAX_EXTENT)
    of, packed = groups.of, groups.layout == "packed"
    each = -(-problem.extents[of] // max(problem.products, 1)) if packed else problem.extents[of]
    if batch_invariant and of != "k":
        each, number = BATCH_INVARIANT_M, 1
    mean = bucket(replace(problem, **{of: max(each, 1)}, groups=None))
    extent = min(mean.extents[of] * number, MAX_EXTENT) if packed else mean.extents[of]
    return replace(mean, **{of: extent}, groups=number)
