"""Compiles Hopper GEMMs of QuACK, as torch ships it, to PTX: `python quack_ptx.py` prints a JSON object.

Needs no GPU. By name of a variant the object has the PTX, and the tile that the epilogue stores at once. torch's copy
of QuACK needs the CuTe DSL, Triton and `apache-tvm-ffi`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

ARCH = "sm_90a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One GEMM: C (M,N) in f16, row-major, of A (M,K) and B (N,K)."""

    a_major: str = "k"
    b_major: str = "k"
    dtype: str = "Float16"
    cluster: tuple[int, int] = (1, 1)
    persistent: bool = False
    pingpong: bool = False


VARIANTS = {
    "f16": Variant(),
    "f16_mn": Variant(a_major="m", b_major="n"),
    "e4m3": Variant(dtype="Float8E4M3FN"),
    "pair": Variant(cluster=(2, 1)),
    "persistent": Variant(persistent=True),
    "pingpong": Variant(persistent=True, pingpong=True),
}
TILE = (128, 128)


def compiled(variant: Variant) -> dict[str, Any]:
    """Its PTX, and the tile of its epilogue."""
    import cutlass
    from cutlass import Float16, Float32, cute
    from torch._vendor.quack.gemm_default_epi import GemmDefaultSm90
    from torch._vendor.quack.gemm_tvm_ffi_utils import make_fake_gemm_tensors, make_fake_scheduler_args

    dtype = getattr(cutlass, variant.dtype)
    majors = (variant.a_major, variant.b_major, "n", None)
    a, b, c, _, *_, batch = make_fake_gemm_tensors(dtype, dtype, Float16, None, *majors)
    kind = {"pingpong": variant.pingpong, "is_persistent": variant.persistent, "use_pdl": False}
    gemm = GemmDefaultSm90(Float32, dtype, TILE, (*variant.cluster, 1), **kind)
    scheduler = make_fake_scheduler_args(False, False, batch)
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    options = f"--enable-tvm-ffi --gpu-arch {ARCH} --keep-ptx"  # keeps it in the current directory, too
    found = cute.compile(gemm, a, b, c, None, gemm.EpilogueArguments(), scheduler, None, stream, None, options=options)
    return {"ptx": found.artifacts.PTX, "epi_tile": list(gemm.epi_tile)}


def main() -> None:
    os.environ["CUTE_DSL_ARCH"] = ARCH
    import cutlass.cute as cute

    for name in ("ThrMma", "ThrCopy", "TiledMma", "TiledCopy"):  # this copy names them as an older DSL did
        if not hasattr(cute.core, name):
            setattr(cute.core, name, getattr(cute, name))
    print(json.dumps({name: compiled(variant) for name, variant in VARIANTS.items()}), file=sys.__stdout__)


if __name__ == "__main__":
    main()
