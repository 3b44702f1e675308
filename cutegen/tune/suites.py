"""Problems to measure: their arithmetic, and the named suites of `cutegen bench`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Extents:
    """C[M,N] = A[M,K] B[N,K], `batch` times.

    >>> Extents(4096, 4096, 4096).flops, Extents(2, 3, 4, 5).flops
    (137438953472, 240)
    """

    m: int
    n: int
    k: int
    batch: int = 1

    def __str__(self) -> str:
        times = f"{self.batch} x " if self.batch > 1 else ""
        return f"{times}{self.m}x{self.n}x{self.k}"

    @property
    def operand_batch(self) -> int | None:
        """The batch that operands are made with: None where they are matrices."""
        return self.batch if self.batch > 1 else None

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply-add counting two."""
        return 2 * self.batch * self.m * self.n * self.k

    def compulsory_bytes(self, a_bytes: int, b_bytes: int, c_bytes: int) -> int:
        """The least that device memory moves: each input read once, the result written once. Bytes are per element.

        >>> Extents(2, 3, 4).compulsory_bytes(2, 2, 4)
        64
        """
        once = self.m * self.k * a_bytes + self.n * self.k * b_bytes + self.m * self.n * c_bytes
        return self.batch * once


def _suite(*rows: tuple[int, int, int]) -> tuple[Extents, ...]:
    return tuple(Extents(*row) for row in rows)


SUITES: Mapping[str, tuple[Extents, ...]] = {
    "square": _suite(*((extent, extent, extent) for extent in (512, 1024, 2048, 4096, 8192))),
    # The linear layers of an 8-billion-parameter Llama 3 (hidden 4096, MLP 14336, grouped QKV 6144), two batch sizes.
    "llm": _suite(
        *((tokens, *layer) for tokens in (8192, 512) for layer in ((6144, 4096), (4096, 4096), (14336, 4096)))
    )
    + _suite((8192, 4096, 14336), (512, 4096, 14336)),
    "skinny": _suite(
        (16, 4096, 4096), (16, 8192, 8192), (64, 8192, 8192), (128, 4096, 14336), (4096, 64, 4096), (256, 256, 65536)
    ),
    # The sizes of this project's first measurements, from launch-bound to power-bound.
    "seed": _suite(
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (8192, 4096, 14336),
        (512, 8192, 8192),
        (64, 8192, 8192),
        (16, 4096, 4096),
    ),
}
