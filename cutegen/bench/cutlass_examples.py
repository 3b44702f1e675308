"""CUTLASS's examples of the CuTe DSL as contenders, for Ampere and Hopper, compiled once for all problems."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from cutegen.bench.measure import Call
from cutegen.errors import OutsideError
from cutegen.support.words import extents

# CUTLASS's Ampere example of the CuTe DSL, unchanged or with another tile, compiled once for all problems.


_OWN_WARPS = (2, 2, 1)
_ANY_EXTENT = 128


@dataclass(frozen=True, slots=True)
class Configuration:
    """Parameters that the example fixes in its source: the CTA's tile, stages, and warps along M, N and K.

    >>> str(Configuration((128, 256, 64), 3, (2, 4, 1)))
    '128x256x64, 3 stages, 2x4 warps'
    """

    cta: tuple[int, int, int]
    stages: int
    warps: tuple[int, int, int] = _OWN_WARPS

    def __str__(self) -> str:
        return f"{extents(self.cta)}, {self.stages} stages, {extents(self.warps[:2])} warps"


def cutlass_example(path: Path, a: Any, b: Any, out: Any, configuration: Configuration | None = None) -> Call:
    """Multiply these torch tensors, f16 TN on a GPU, with the example at `path`; by default in its own configuration.

    Raises OutsideError if the file is another one.
    """
    import cuda.bindings.driver as cuda
    import torch

    example, compiled = _compiled(path, configuration, str(a.device))
    tensors = _tensors(example, a, b, out)
    return lambda: compiled(*tensors, cuda.CUstream(torch.cuda.current_stream().cuda_stream))


@lru_cache
def _compiled(path: Path, configuration: Configuration | None, device: str) -> tuple[Any, Callable[..., object]]:
    """Return the example's module and its kernel, which accepts any problem: extents and strides are arguments."""
    import torch

    # Executed for each configuration, which changes the module.
    example = load_example(path, "tensorop_gemm.py", "mark_dynamic_layout", "compile_bmm", "cutlass")
    if configuration is not None:
        example.TensorOpGemm = _configured(example.TensorOpGemm, configuration)
    square = torch.empty(_ANY_EXTENT, _ANY_EXTENT, dtype=torch.float16, device=device)
    tensors = _tensors(example, square, square.T, square)
    problem = (_ANY_EXTENT, _ANY_EXTENT, _ANY_EXTENT, 1)
    f16, f32 = example.cutlass.Float16, example.cutlass.Float32
    warps = configuration.warps if configuration else _OWN_WARPS
    return example, example.compile_bmm(problem, *tensors, f16, f16, f32, warps)


def _configured(gemm: Any, configuration: Configuration) -> Any:
    """Return the example's class with another tile, which it reads from the class, and stages, which it sets itself."""

    class Configured(gemm):  # type: ignore[misc]
        _CTA_TILER_FP16_BF16 = configuration.cta

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.num_stages = configuration.stages

    return Configured


def _tensors(example: Any, a: Any, b: Any, out: Any) -> tuple[Any, Any, Any]:
    """Return a batch of one, in the DSL's types; only the contiguous mode is static."""
    f16 = example.cutlass.Float16
    batched = (x.as_strided((1, *x.shape), (x.numel(), *x.stride())) for x in (a, b, out))
    a, b, out = example.mark_dynamic_layout(*batched, 2, 1, 2, f16, f16)
    return a, b, out


def load_example(path: Path, name: str, *needed: str) -> Any:
    """Execute CUTLASS's example `name`, the file at `path`. Raises OutsideError if it lacks something `needed`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    try:
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        attrgetter(*needed)(module)
    except (AssertionError, AttributeError, ImportError, OSError, SyntaxError) as error:
        raise OutsideError(
            f"--cutlass: {path} is not CUTLASS's {name} ({error}); it is in CUTLASS's repository under "
            "examples/python/CuTeDSL"
        ) from error
    return module


# CUTLASS's persistent Hopper example of the CuTe DSL as a contender: f16 TN by `wgmma`, compiled for each tile.
#
# The caller chooses the tile and the cluster, and no choice is best for all problems: a table takes the best of TILES.


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


HOPPER_TILES = (
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

    compiled = _compiled_hopper(path, tile)
    tensors = [x.unsqueeze(-1) for x in (a, b.T, out)]  # (M,K,1), (N,K,1) and (M,N,1)
    return lambda: compiled(*tensors, torch.cuda.current_stream().cuda_stream)


@lru_cache
def _compiled_hopper(path: Path, tile: HopperTile) -> Callable[..., object]:
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
