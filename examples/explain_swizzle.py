"""Why shared memory is swizzled: one ldmatrix on four layouts of the same 128x64 tile, with plain layout algebra.

An ldmatrix.x4 has its 32 lanes address 16 bytes each and is served in phases of 8 lanes. The 8 rows of a phase lie in
different banks, or they wait for each other.
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

print(f"ldmatrix.x4 of A from a {TILE[0]}x{TILE[1]} f16 tile: 4 wavefronts at best, one for each 8x8 matrix")
for name, text in LAYOUTS.items():
    layout = tile_to_shape(parse_layout(text), TILE)
    first_load = ldmatrix_trace(tiled_mma, "A", layout, ldmatrix).row_offsets_bytes[0, 0]
    banks = offsets_2d(layout)[:8, 0] * 2 // 4 % 32
    print(f"{name:>15}: {wavefronts(first_load, 16):2} wavefronts; rows 0 to 7 begin in banks {banks.tolist()}")
