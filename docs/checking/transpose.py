"""B = A^T through shared memory, in the CuTe DSL: `python transpose.py` writes transpose.ptx beside this file.

A CTA of 256 threads moves a tile of 32x32: rows of A are read, and rows of B are written, by neighboring threads.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import cutlass
import cutlass.memory
from cutlass import Float32, Int32, cute
from cutlass.cute.typing import AddressSpace

TILE, ROWS = 32, 8


@cute.kernel
def transpose(a: cute.Pointer, b: cute.Pointer, m: Int32, n: Int32):
    thread, _, _ = cute.arch.thread_idx()
    tile_n, tile_m, _ = cute.arch.block_idx()
    row, column = thread // TILE, thread % TILE
    gA = cute.make_tensor(a, cute.make_layout((m, n), stride=(n, 1)))
    gB = cute.make_tensor(b, cute.make_layout((n, m), stride=(m, 1)))
    smem = cutlass.memory.SmemAllocator()
    # (TILE, TILE) with a stride of 33: neither rows nor columns meet a bank twice.
    tile = smem.allocate_tensor(Float32, cute.make_layout((TILE, TILE), stride=(TILE + 1, 1)), 16)
    for i in cutlass.range_constexpr(0, TILE, ROWS):
        tile[row + i, column] = gA[tile_m * TILE + row + i, tile_n * TILE + column]
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(0, TILE, ROWS):
        gB[tile_n * TILE + row + i, tile_m * TILE + column] = tile[column, row + i]


@cute.jit
def launch(a: cute.Pointer, b: cute.Pointer, m: Int32, n: Int32):
    grid, smem_bytes = (n // TILE, m // TILE, 1), TILE * (TILE + 1) * 4
    transpose(a, b, m, n).launch(grid=grid, block=(TILE * ROWS, 1, 1), smem=smem_bytes)


def main() -> None:
    """Compiles the kernel, without a GPU, and writes its PTX with short names."""
    pointers = [cute.runtime.make_ptr(Float32, 0, AddressSpace.gmem, assumed_align=16) for _ in range(2)]
    with TemporaryDirectory() as folder:
        options = f"--gpu-arch sm_80 --keep-ptx --dump-dir {folder}"
        text = cute.compile(launch, *pointers, Int32(0), Int32(0), options=options).artifacts.PTX
    name = re.search(r"\.entry (\w+)", text)[1]
    text = text.replace(f"{name}_param_", "p").replace(name, "transpose")
    text = re.sub(r"^//.*\n|\t// (?:\.globl|begin inline|end inline).*\n", "", text, flags=re.MULTILINE)
    Path(__file__).resolve().with_suffix(".ptx").write_text(text.strip() + "\n")


if __name__ == "__main__":
    main()
