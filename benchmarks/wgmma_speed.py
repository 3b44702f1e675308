"""Measure the CPU executor's time per k-tile of a Hopper GEMM: `python benchmarks/wgmma_speed.py`.

Needs no GPU. The handwritten `tests/ptx/cuda/hopper_gemm.cu` runs one cluster of two CTAs, each with 128 x 64 of C, for
two values of K. The difference in CPU time is divided by the number of additional k-tiles. The fastest of five runs
counts.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from cutegen.ptx import Program, TensorMap

PTX = Path(__file__).resolve().parents[1] / "tests/ptx/cuda/hopper_gemm.ptx"
ROWS, COLUMNS, TILE_K, RUNS = 256, 64, 64, 5
SMEM_BYTES = 3 * (128 + 64) * 64 * 2 + 128 * 64 * 2
K_TILES = (2, 34)


def tensor_map(array: np.ndarray, box: tuple[int, int]) -> TensorMap:
    """Return the tensor map of a row-major matrix, in lines of 128 bytes."""
    rows, columns = array.shape
    return TensorMap(
        array=array, extents=(columns, rows), strides_bytes=(array.strides[0],), box=box, swizzle_bytes=128
    )


def seconds(program: Program, k_tiles: int) -> float:
    """Return the CPU seconds of one launch, and check its result."""
    k = k_tiles * TILE_K
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((rows, k)).astype(np.float16) for rows in (ROWS, COLUMNS))
    c = np.full((ROWS, COLUMNS), np.nan, np.float16)
    maps = [tensor_map(array, box) for array, box in ((a, (64, 128)), (b, (64, 32)), (c, (64, 64)))]
    start = time.process_time()
    program.launch("hopper_gemm", grid=2, block=384, args=[*maps, k], dynamic_smem_bytes=SMEM_BYTES)
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
    print(f"{1e3 * each:.1f} ms of CPU time per k-tile of 256 x 64 x 64 (16 wgmma of m64n64k16)")
    print(f"{1e3 * (few - K_TILES[0] * each):.1f} ms for the rest of a cluster")


if __name__ == "__main__":
    main()
