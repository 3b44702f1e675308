"""The launch contract: all that a launcher must know of a kernel, and nothing else.

It travels as the `launch` table of an artifact's `plan.json`, so that an artifact runs where there is only a driver.
The GPU launcher and the CPU executor both take grid, block, dynamic shared memory and parameter order from here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

Address = TypeVar("Address")
ParameterType = Literal["ptr", "i32", "i64"]

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TensorContract:
    """One matrix operand: `modes` in CuTe's order (A is (M,K), B is (N,K), C is (M,N)); `major` is the contiguous mode.

    Base address and leading stride are multiples of `align_bytes`.
    """

    name: str
    dtype: str
    modes: tuple[str, str]
    major: str
    align_bytes: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the PTX `.entry`: a tensor's address, a problem size, or a leading stride in elements."""

    name: str
    type: ParameterType


@dataclass(frozen=True, slots=True)
class LaunchGeometry:
    """What one launch of one problem needs."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSize:
    """The integers of one call: the extents, and the leading strides of A, B and C in elements."""

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int


GEMM_PARAMETERS = (
    Parameter("a", "ptr"),
    Parameter("b", "ptr"),
    Parameter("c", "ptr"),
    Parameter("m", "i32"),
    Parameter("n", "i32"),
    Parameter("k", "i32"),
    Parameter("lda", "i64"),
    Parameter("ldb", "i64"),
    Parameter("ldc", "i64"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContract:
    """C[M,N] = A[M,K] B[N,K]: `grid.x` CTAs of `threads` threads, one for each (M,N) tile of extents `cta_tile`."""

    entry: str
    tensors: tuple[TensorContract, TensorContract, TensorContract]
    parameters: tuple[Parameter, ...]
    cta_tile: tuple[int, int]
    threads: int
    dynamic_smem_bytes: int

    def geometry(self, m: int, n: int) -> LaunchGeometry:
        """Grid, block and dynamic shared memory for an M x N result.

        >>> c = TensorContract("c", "f16", ("m", "n"), "n", 16)
        >>> contract = LaunchContract(entry="gemm", tensors=(c, c, c), parameters=GEMM_PARAMETERS, cta_tile=(128, 64),
        ...                           threads=128, dynamic_smem_bytes=1024)
        >>> contract.geometry(257, 64).grid
        (3, 1, 1)
        """
        tile_m, tile_n = self.cta_tile
        tiles = -(-m // tile_m) * -(-n // tile_n)
        return LaunchGeometry((tiles, 1, 1), (self.threads, 1, 1), self.dynamic_smem_bytes)

    def arguments(self, a: Address, b: Address, c: Address, size: ProblemSize) -> tuple[Address | int, ...]:
        """The values of `parameters`, in order; an address is whatever the launcher calls one. Raises KeyError."""
        values = {"a": a, "b": b, "c": c, **asdict(size)}
        return tuple(values[parameter.name] for parameter in self.parameters)

    def to_json(self) -> dict[str, Any]:
        """The plain form that `from_json` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> LaunchContract:
        """Read what `to_json` wrote. Raises KeyError or TypeError when a field is missing or unknown."""
        a, b, c = (TensorContract(**{**t, "modes": tuple(t["modes"])}) for t in table["tensors"])
        return cls(
            **{
                **table,
                "tensors": (a, b, c),
                "parameters": tuple(Parameter(**p) for p in table["parameters"]),
                "cta_tile": tuple(table["cta_tile"]),
            }
        )
