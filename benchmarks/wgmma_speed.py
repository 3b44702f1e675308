"""Measure the CPU executor's time per k-tile of a Hopper GEMM: `python benchmarks/wgmma_speed.py`.

Needs no GPU. CUTLASS's CuTe DSL example (`tests/ptx/cutlass/dense_gemm_f16.ptx`, 128 x 128 x 64 tiles in f16, one
warpgroup) runs one CTA with two values of K. The difference in CPU time is divided by the number of additional k-tiles.
The fastest of five runs counts.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from cutegen.ptx import Program, TensorMap

PTX = Path(__file__).resolve().parents[1] / "tests/ptx/cutlass/dense_gemm_f16.ptx"
TILE, TILE_K, RUNS = 128, 64, 5
K_TILES = (2, 34)


def tensor_map(array: np.ndarray, box: tuple[int, int], swizzle_bytes: int) -> TensorMap:
    """Return the tensor map of a matrix with a batch of one."""
    rows, columns = array.shape
    return TensorMap(
        array=array,
        extents=(columns, rows, 1),
        strides_bytes=(array.strides[0], array.nbytes),
        box=(*box, 1),
        swizzle_bytes=swizzle_bytes,
    )


def seconds(program: Program, k_tiles: int) -> float:
    """Return the CPU seconds of one launch, and check its result."""
    k = k_tiles * TILE_K
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((TILE, k)).astype(np.float16) for _ in "ab")
    c = np.full((TILE, TILE), np.nan, np.float16)
    arguments: list[object] = []
    for array, box, swizzle_bytes in ((a, (64, 128), 128), (b, (64, 128), 128), (c, (32, 64), 64)):
        arguments += [tensor_map(array, box, swizzle_bytes), np.array([*array.shape, 1], np.int32).tobytes()]
    start = time.process_time()
    program.launch("dense_gemm_f16", grid=1, block=128, args=[*arguments, b"\0"], dynamic_smem_bytes=232448)
    taken = time.process_time() - start
    if not np.allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-3, atol=1e-2):
        raise SystemExit(f"{k_tiles} k-tiles: the result is wrong")
    return taken


def main() -> None:
    """Print milliseconds per k-tile, and for the rest of a CTA."""
    program = Program.parse(PTX.read_text())
    seconds(program, 1)
    few, many = (min(seconds(program, k_tiles) for _ in range(RUNS)) for k_tiles in K_TILES)
    each = (many - few) / (K_TILES[1] - K_TILES[0])
    print(f"{1e3 * each:.1f} ms of CPU time per k-tile of 128 x 128 x 64 (8 wgmma of m64n128k16)")
    print(f"{1e3 * (few - K_TILES[0] * each):.1f} ms for the rest of a CTA")


if __name__ == "__main__":
    main()
