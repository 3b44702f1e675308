"""Compiles CUTLASS's Hopper GEMM examples of the CuTe DSL to the PTX beside this file. No GPU is needed.

    python make_ptx.py CUTLASS    # a checkout of github.com/NVIDIA/cutlass

The tests read only the PTX. An example's notice goes to the PTX's head, as its license asks.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["CUTE_DSL_ARCH"] = "sm_90a"

import cuda.bindings.driver as driver
import cutlass
import torch
from cutlass import Float8E4M3FN, Float16, Float32, cute
from cutlass.cute.runtime import from_dlpack

FOLDER = Path("examples/python/CuTeDSL/cute/hopper/kernel/dense_gemm")
SIDE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A kernel of one of the examples; `rest` are the persistent one's arguments, of the kernel and of its launch."""

    name: str
    tile: tuple[int, int]
    cluster: tuple[int, int] = (1, 1)
    operands: Any = Float16
    a_major: str = "k"
    b_major: str = "k"
    example: str = "dense_gemm"
    kernel: str = "HopperWgmmaGemmKernel"
    rest: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())


VARIANTS = (
    Variant(name="dense_gemm_f16", tile=(128, 128)),
    Variant(name="dense_gemm_f16_mn", tile=(64, 64), a_major="m", b_major="n"),
    Variant(name="dense_gemm_e4m3", tile=(64, 128), operands=Float8E4M3FN),
    Variant(
        name="dense_gemm_persistent",
        tile=(128, 256),
        cluster=(2, 1),
        example="dense_gemm_persistent",
        kernel="HopperWgmmaGemmPersistentKernel",
        rest=((1, True), (4,)),
    ),
)


def matrix(dtype: Any, *, contiguous: int) -> cute.Tensor:
    """A matrix (rows, columns, 1) of a size that the kernel does not learn."""
    order = (1, 2, 0) if contiguous == 1 else (2, 1, 0)
    storage = torch.zeros((1, SIDE, SIDE), dtype=torch.float16 if dtype is Float16 else torch.uint8)
    tensor = from_dlpack(storage.permute(order), assumed_align=16)
    tensor.element_type = dtype
    return tensor.mark_layout_dynamic(leading_dim=contiguous)


def compiled(variant: Variant) -> str:
    """The variant's PTX with short names."""
    a = matrix(variant.operands, contiguous=1 if variant.a_major == "k" else 0)
    b = matrix(variant.operands, contiguous=1 if variant.b_major == "k" else 0)
    c = matrix(Float16, contiguous=1)
    with TemporaryDirectory() as folder:
        options = f"--gpu-arch sm_90a --keep-ptx --dump-dir {folder}"
        of_kernel, of_launch = variant.rest
        kernel_type = getattr(importlib.import_module(variant.example), variant.kernel)
        kernel = kernel_type(Float32, variant.tile, variant.cluster, *of_kernel)
        text = cute.compile(kernel, a, b, c, *of_launch, driver.CUstream(0), options=options).artifacts.PTX
    name = re.search(r"\.entry (\w+)", text)[1]
    text = text.replace(f"{name}_param_", "p").replace(name, variant.name)
    return re.sub(r"^//.*\n|\t// (?:\.globl|begin inline|end inline).*\n", "", text, flags=re.MULTILINE).strip()


def main() -> None:
    """Writes all variants."""
    folder = Path(sys.argv[1]) / FOLDER
    sys.path.insert(0, str(folder))
    for variant in VARIANTS:
        source = f"{variant.example}.py"
        head = (folder / source).read_text().partition("\nimport ")[0].strip()
        notice = "\n".join("//" + line.removeprefix("#") for line in head.split("\n"))
        origin = f"// Made by make_ptx.py with CuTe DSL {cutlass.__version__} from CUTLASS's {FOLDER / source}"
        made = f"{origin}, whose notice is:"
        Path(__file__).with_name(f"{variant.name}.ptx").write_text(f"{made}\n//\n{notice}\n{compiled(variant)}\n")


if __name__ == "__main__":
    main()
