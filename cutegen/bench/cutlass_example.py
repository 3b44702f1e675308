"""CUTLASS's Ampere example of the CuTe DSL, unchanged or with another tile, compiled once for all problems."""

from __future__ import annotations

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
