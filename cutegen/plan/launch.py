"""The launch contract: all that a launcher must know of a kernel, and nothing else.

It travels as the `launch` table of an artifact's `plan.json`, so that an artifact runs where there is only a driver.
The GPU launcher and the CPU executor both take grid, block, dynamic shared memory and parameter order from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

Address = TypeVar("Address")
ParameterType = Literal["ptr", "i32", "i64", "f32"]

SOURCE = "source"
"""What the kernel calls C as it was before, which the epilogue may read."""

SUMS, COUNTERS = "sums", "counters"
"""What the kernel calls its workspace where K is split: the slices' sums, and how many slices of a tile are done."""

INT32_MAX = 2**31 - 1
MAX_BATCH = 2**16 - 1
"""Extent of `grid.z` (CUDA C++ Programming Guide, "Compute Capabilities")."""


@dataclass(frozen=True, slots=True)
class TensorContract:
    """One matrix, `modes` in CuTe's order (A is (M,K), B is (N,K), C is (M,N)), or one vector, a bias.

    `major` is the contiguous mode. Base address, leading stride and batch stride are multiples of `align_bytes`.
    """

    name: str
    dtype: str
    modes: tuple[str, ...]
    major: str
    align_bytes: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the PTX `.entry`: an address, a scalar, a problem size, or a stride in elements."""

    name: str
    type: ParameterType


@dataclass(frozen=True, slots=True)
class SplitContract:
    """K in `slices` for as many CTAs a tile; a CTA leaves `bytes_per_slice` of sums for the tile's last one to add.

    With `atomics` each adds its sums to C, whose elements are to be 0 before the launch.
    """

    slices: int
    bytes_per_slice: int
    atomics: bool = False


@dataclass(frozen=True, slots=True)
class Workspace:
    """Device memory of one launch: `sums_bytes` of anything, and `counters`, 32-bit each.

    Counters are 0 before a launch and after it. Both belong to one launch at a time.
    """

    sums_bytes: int
    counters: int


@dataclass(frozen=True, slots=True)
class LaunchGeometry:
    """What one launch of one problem needs."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem_bytes: int


@dataclass(frozen=True, slots=True)
class Strides:
    """A tensor's strides in elements: of the mode that is not contiguous (1 for a vector), and between batches."""

    leading: int
    batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSize:
    """The integers of one call: the extents, the matrices in a batch, and each tensor's strides by its name."""

    m: int
    n: int
    k: int
    batch: int = 1
    strides: Mapping[str, Strides]


def gemm_parameters(
    tensors: tuple[TensorContract, ...], scalars: tuple[str, ...], workspace: tuple[str, ...] = ()
) -> tuple[Parameter, ...]:
    """The parameters of a kernel in their order: addresses, scalars, extents, leading strides, batch strides.

    `workspace` names addresses beside the tensors'.

    >>> c = TensorContract("c", "f16", ("m", "n"), "n", 16)
    >>> [parameter.name for parameter in gemm_parameters((c,), ("alpha",))]
    ['c', 'alpha', 'm', 'n', 'k', 'ldc', 'batch_stride_c']
    """
    return (
        *(Parameter(tensor.name, "ptr") for tensor in tensors),
        *(Parameter(name, "ptr") for name in workspace),
        *(Parameter(name, "f32") for name in scalars),
        *(Parameter(name, "i32") for name in "mnk"),
        *(Parameter(f"ld{tensor.name}", "i64") for tensor in tensors if len(tensor.modes) == 2),
        *(Parameter(f"batch_stride_{tensor.name}", "i64") for tensor in tensors),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContract:
    """C[M,N] = A[M,K] B[N,K]: `grid.x` CTAs of `threads` threads, one for each (M,N) tile of extents `cta_tile`.

    With `split`, `grid.y` counts the slices of K.

    `tensors` are A, B and C, then what the epilogue reads and writes beside them: "source" (C as it was), "residual",
    "bias", "aux". `scalars` are named after `alpha` and `beta`. `epilogue` is the chain from a sum to C, expressions in
    the grammar of `cutegen.spec.expression`, among them "aux" where the value is stored. `grid.z` counts a batch.
    """

    entry: str
    tensors: tuple[TensorContract, ...]
    scalars: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...]
    cta_tile: tuple[int, int]
    threads: int
    dynamic_smem_bytes: int
    split: SplitContract | None = None

    @property
    def pointers(self) -> tuple[str, ...]:
        """The addresses among the parameters, in their order: the tensors', then the workspace's."""
        workspace = () if self.split is None or self.split.atomics else (SUMS, COUNTERS)
        return (*(tensor.name for tensor in self.tensors), *workspace)

    @property
    def adds_to_result(self) -> bool:
        """Whether a launcher must set the elements of C to 0 first."""
        return self.split is not None and self.split.atomics

    def tiles(self, m: int, n: int) -> int:
        """CTA tiles of a result of M x N."""
        tile_m, tile_n = self.cta_tile
        return -(-m // tile_m) * -(-n // tile_n)

    def workspace(self, m: int, n: int, batch: int = 1) -> Workspace | None:
        """What a launch for `batch` results of M x N needs beside its tensors; None when it needs nothing."""
        if self.split is None or self.split.atomics:
            return None
        tiles = batch * self.tiles(m, n)
        return Workspace(tiles * self.split.slices * self.split.bytes_per_slice, tiles)

    def geometry(self, m: int, n: int, batch: int = 1) -> LaunchGeometry:
        """Grid, block and dynamic shared memory for `batch` results of M x N.

        >>> c = TensorContract("c", "f16", ("m", "n"), "n", 16)
        >>> contract = LaunchContract(entry="gemm", tensors=(c,), parameters=gemm_parameters((c,), ()),
        ...                           cta_tile=(128, 64), threads=128, dynamic_smem_bytes=1024)
        >>> contract.geometry(257, 64).grid
        (3, 1, 1)
        """
        slices = 1 if self.split is None else self.split.slices
        return LaunchGeometry((self.tiles(m, n), slices, batch), (self.threads, 1, 1), self.dynamic_smem_bytes)

    def arguments(
        self, addresses: tuple[Address, ...], scalars: tuple[float, ...], size: ProblemSize
    ) -> tuple[Address | int | float, ...]:
        """The values of `parameters`, in order; an address is whatever the launcher calls one. Raises KeyError.

        `addresses` and `scalars` stand in the order of `self.pointers` and `self.scalars`.
        """
        values: dict[str, Address | int | float] = {"m": size.m, "n": size.n, "k": size.k}
        values |= zip(self.pointers, addresses, strict=True)
        values |= zip(self.scalars, scalars, strict=True)
        for name, strides in size.strides.items():
            values |= {f"ld{name}": strides.leading, f"batch_stride_{name}": strides.batch}
        return tuple(values[parameter.name] for parameter in self.parameters)

    def to_json(self) -> dict[str, Any]:
        """The plain form that `from_json` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> LaunchContract:
        """Read what `to_json` wrote. Raises KeyError or TypeError when a field is missing or unknown."""
        return cls(
            **{
                **table,
                "tensors": tuple(TensorContract(**{**t, "modes": tuple(t["modes"])}) for t in table["tensors"]),
                "scalars": tuple(table["scalars"]),
                "epilogue": tuple(table["epilogue"]),
                "parameters": tuple(Parameter(**p) for p in table["parameters"]),
                "cta_tile": tuple(table["cta_tile"]),
                "split": SplitContract(**table["split"]) if table.get("split") else None,
            }
        )
