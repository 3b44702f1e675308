"""The extents of a problem, for plans, calls and benchmarks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from cutegen.contract.pairs import PAIR
from cutegen.errors import RequestError
from cutegen.support.words import plural

MAX_EXTENT = 2**31 - 2**17
"""Limit of M, N and K. Kernels count in int32, to the end of the last tile and of the stages beyond it.

A tile's extents are at most 2**13. All stages of A and B fit in 2**18 bytes, and a tile has 12 rows of A and B or more,
so that stages times K of a tile are below 2**15."""
MAX_BATCH = 2**16 - 1
"""Limit of `grid.z` (CUDA C++ Programming Guide, "Compute Capabilities")."""
MAX_TILES = MAX_EXTENT
"""Limit of the tiles of one matrix. Their numbers are int32, also those that CTAs look for after the last; `grid.x` is
below 2**31 (CUDA C++ Programming Guide, "Compute Capabilities")."""

ProblemLike: TypeAlias = "ProblemShape | tuple[int, int, int] | tuple[int, int, int, int]"


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
