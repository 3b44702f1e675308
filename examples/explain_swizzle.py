"""Show why shared memory is swizzled: one ldmatrix on four layouts of a 128x64 tile, with plain layout algebra.

Each of the 32 lanes of an ldmatrix.x4 addresses 16 bytes, and the hardware serves 8 lanes per phase. If two of the
8 rows of a phase are in the same banks, they are read one after the other.
"""

from __future__ import annotations

from cutegen.algebra import TiledMma, offsets_2d, parse_layout, tile_to_shape
from cutegen.hardware import MMA_ATOMS, ldmatrix_atom, ldmatrix_trace, wavefronts

TILE = (128, 64)
LAYOUTS = {
    "plain": "(8,64):(64,1)",
    "padded by 8": "(8,64):(72,1)",
    "Swizzle<2,3,3>": "Sw<2,3,3> o (8,64):(64,1)",
    "Swizzle<3,3,3>": "Sw<3,3,3> o (8,64):(64,1)",
}

tiled_mma = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], (2, 2, 1), (32, 32, 16))
ldmatrix = ldmatrix_atom(4, transpose=False)

print(f"ldmatrix.x4 of A from a {TILE[0]}x{TILE[1]} f16 tile: 4 wavefronts at best, one per 8x8 matrix")
for name, text in LAYOUTS.items():
    layout = tile_to_shape(parse_layout(text), TILE)
    first_load = ldmatrix_trace(tiled_mma, "A", layout, ldmatrix).row_offsets_bytes[0, 0]
    banks = offsets_2d(layout)[:8, 0] * 2 // 4 % 32
    print(f"{name:>15}: {wavefronts(first_load, 16):2} wavefronts; rows 0 to 7 start in banks {banks.tolist()}")
