"""Measure the CPU executor's time per k-tile of a Blackwell GEMM: `python benchmarks/tcgen05_speed.py`.

Needs no GPU. The handwritten ring of `tests/ptx/tcgen05_ring.py` computes one tile of 128 x 256 of C, for two values of
K. The difference in CPU time is divided by the number of additional k-tiles. The fastest of five runs counts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/ptx"))

from tcgen05_ring import Ring

COLUMNS, RUNS, K_TILES = 256, 5, (2, 18)


def seconds(k_tiles: int) -> float:
    """Return the CPU seconds of one launch, and check its result."""
    ring = Ring(n=COLUMNS, k_tiles=(k_tiles,), ctas=1)
    start = time.process_time()
    out, _ = ring.launch()
    taken = time.process_time() - start
    if ring.error(out):
        raise SystemExit(f"{k_tiles} k-tiles: the result is wrong")
    return taken


def main() -> None:
    """Print milliseconds per k-tile, and for the rest of a CTA."""
    seconds(1)
    few, many = (min(seconds(k_tiles) for _ in range(RUNS)) for k_tiles in K_TILES)
    each = (many - few) / (K_TILES[1] - K_TILES[0])
    print(f"{1e3 * each:.1f} ms of CPU time per k-tile of 128 x 256 x 64 (4 tcgen05.mma)")
    print(f"{1e3 * (few - K_TILES[0] * each):.1f} ms for the rest of a CTA")


if __name__ == "__main__":
    main()
