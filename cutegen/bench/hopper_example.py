"""CUTLASS's persistent Hopper example of the CuTe DSL as a contender: f16 TN by `wgmma`, compiled for each tile.

The caller chooses the tile and the cluster, and no choice is best for all problems: a table takes the best of TILES.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cutegen.bench.cutlass_example import load_example
from cutegen.bench.measure import Call
from cutegen.errors import OutsideError
from cutegen.support.words import extents

_CLASS = "HopperWgmmaGemmPersistentKernel"
_SWIZZLE = 8  # bands of tiles that share operands in L2
_ALIGN_BYTES = 16
_EXTENTS_MULTIPLE = 8


@dataclass(frozen=True, slots=True)
class HopperTile:
    """Parameters that the example leaves to its caller.

    >>> str(HopperTile((128, 256), (2, 1)))
    '128x256, clusters of 2x1'
    """

    cta: tuple[int, int]
    cluster: tuple[int, int]

    def __str__(self) -> str:
        return f"{extents(self.cta)}, clusters of {extents(self.cluster)}"


TILES = (
    HopperTile((128, 256), (1, 1)),
    HopperTile((128, 256), (2, 1)),
    HopperTile((128, 128), (1, 1)),
    HopperTile((64, 128), (1, 1)),
    HopperTile((128, 64), (1, 2)),
    HopperTile((64, 64), (1, 1)),
)


def is_hopper_example(path: Path) -> bool:
    """Return whether a file has the class of CUTLASS's dense_gemm_persistent.py. Raises OutsideError."""
    try:
        return f"class {_CLASS}" in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OutsideError(f"--cutlass: {path} cannot be read ({error})") from error


def hopper_example(path: Path, tile: HopperTile, a: Any, b: Any, out: Any) -> Call:
    """Multiply these torch tensors, f16 TN on a GPU, with the example at `path`.

    Raises OutsideError if the file cannot be used.
    """
    import torch

    compiled = _compiled(path, tile)
    tensors = [x.unsqueeze(-1) for x in (a, b.T, out)]  # (M,K,1), (N,K,1) and (M,N,1)
    return lambda: compiled(*tensors, torch.cuda.current_stream().cuda_stream)


@lru_cache
def _compiled(path: Path, tile: HopperTile) -> Callable[..., object]:
    """Return the kernel for any problem, called directly with torch tensors."""
    example = _module(path)
    cutlass, cute = example.cutlass, example.cute
    runtime, multiple = cute.runtime, _EXTENTS_MULTIPLE
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=multiple), cute.sym_int(divisibility=multiple)
    tensors = [
        runtime.make_fake_compact_tensor(
            cutlass.Float16, (*shape, 1), stride_order=(1, 0, 2), assumed_align=_ALIGN_BYTES
        )
        for shape in ((m, k), (n, k), (m, n))
    ]
    kernel = getattr(example, _CLASS)(cutlass.Float32, tile.cta, tile.cluster, _SWIZZLE, True)
    clusters = cutlass.utils.HardwareInfo().get_max_active_clusters(tile.cluster[0] * tile.cluster[1])
    options = "--enable-tvm-ffi"
    compiled: Callable[..., object] = cute.compile(
        kernel, *tensors, clusters, runtime.make_fake_stream(), options=options
    )
    return compiled


@lru_cache
def _module(path: Path) -> Any:
    return load_example(path, "dense_gemm_persistent.py", _CLASS, "cutlass", "cute.runtime")
