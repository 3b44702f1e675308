"""The problem that a plan is made for, where one is named: its extents decide what is left open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cutegen.contract.launch import MAX_BATCH, MAX_EXTENT
from cutegen.errors import RequestError

ProblemLike: TypeAlias = "ProblemShape | tuple[int, int, int] | tuple[int, int, int, int]"


@dataclass(frozen=True, slots=True)
class ProblemShape:
    """C[M,N] = A[M,K] B[N,K], `batch` times.

    >>> ProblemShape(64, 8192, 8192), str(ProblemShape(8, 16, 32, 4))
    (ProblemShape(m=64, n=8192, k=8192, batch=1), '4 x 8x16x32')
    """

    m: int
    n: int
    k: int
    batch: int = 1

    def __post_init__(self) -> None:
        extents = (self.m, self.n, self.k)
        if not (all(1 <= x <= MAX_EXTENT for x in extents) and 1 <= self.batch <= MAX_BATCH):
            raise RequestError(
                f"problem: found M, N, K = {extents} and a batch of {self.batch}; expected extents from 1 to "
                f"{MAX_EXTENT} and a batch from 1 to {MAX_BATCH}"
            )

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m}x{self.n}x{self.k}"

    @classmethod
    def of(cls, problem: ProblemLike | None) -> ProblemShape | None:
        """A shape, (M, N, K) or (M, N, K, batch) as a shape; None stays None. Raises RequestError."""
        if problem is None or isinstance(problem, ProblemShape):
            return problem
        if len(problem) not in (3, 4) or not all(type(x) is int for x in problem):
            raise RequestError(f"problem: found {problem!r}; expected (M, N, K) or (M, N, K, batch), integers")
        return cls(*problem)
