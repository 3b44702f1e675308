"""C = A B^T in f16, warp-specialized and fed by bulk tensor copies.

`python tma_gemm.py` writes the PTX beside this file. The tests read only the PTX, so the CuTe DSL is needed only when
this changes. CTAs are persistent: one producer warp fills three stages, four warps multiply, and the tiles of C leave
by bulk tensor copies.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import cuda.bindings.driver as driver
import cutlass
from cutlass import Float16, Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.typing import AddressSpace

TILE, TILE_K, STAGES, WARPS, BAND = 128, 64, 3, 4, 8
K_BLOCKS = TILE_K // 16
STAGE_BYTES = TILE * TILE_K * 2
C_OFFSET = 2 * STAGE_BYTES * STAGES
BARRIERS_OFFSET = C_OFFSET + TILE * TILE * 2
SMEM_BYTES = BARRIERS_OFFSET + 2 * STAGES * 8


def swizzled(base: int, layout: cute.Layout) -> cute.ComposedLayout:
    return cute.make_composed_layout(cute.make_swizzle(3, base, 3), 0, layout)


def stages() -> cute.Layout:
    return cute.make_layout((TILE, TILE_K, STAGES), stride=(TILE_K, 1, TILE * TILE_K))


def c_tile() -> cute.Layout:
    return cute.make_layout((TILE, (64, TILE // 64)), stride=(64, (1, 64 * TILE)))


@cute.jit
def tile_coordinate(index: Int32, tiles_m: Int32, tiles_n: Int32):
    band = index // (BAND * tiles_m)
    width = cutlass.min(tiles_n - band * BAND, BAND)
    within = index % (BAND * tiles_m)
    return within // width, band * BAND + within % width


@cute.kernel
def tma_gemm(
    atom_a: cute.CopyAtom,
    a: cute.Tensor,
    atom_b: cute.CopyAtom,
    b: cute.Tensor,
    atom_c: cute.CopyAtom,
    c: cute.Tensor,
    m: Int32,
    n: Int32,
    k: Int32,
):
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    ctas, _, _ = cute.arch.grid_dim()
    warp_index = cute.arch.make_warp_uniform(thread // 32)
    tiles_m, tiles_n, k_tiles = cute.ceil_div(m, TILE), cute.ceil_div(n, TILE), cute.ceil_div(k, TILE_K)
    tiles = tiles_m * tiles_n
    smem = cute.arch.get_dyn_smem(cutlass.Int8, alignment=1024)
    smem_b, smem_c = smem + STAGE_BYTES * STAGES, smem + C_OFFSET
    full = cute.recast_ptr(smem + BARRIERS_OFFSET, dtype=Int64)
    empty = full + STAGES
    if warp_index == 0:
        cpasync.prefetch_descriptor(atom_a)
        cpasync.prefetch_descriptor(atom_b)
        with cute.arch.elect_one():
            for s in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + s, 1)
                cute.arch.mbarrier_init(empty + s, WARPS)
            cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    one = cute.make_layout(1)
    stage, phase = Int32(0), Int32(0)
    if warp_index >= WARPS:
        cute.arch.setmaxregister_decrease(40)
        if warp_index == WARPS:
            to_a = cute.make_tensor(cute.recast_ptr(smem, cute.make_swizzle(3, 4, 3), dtype=Float16), stages())
            to_b = cute.make_tensor(cute.recast_ptr(smem_b, cute.make_swizzle(3, 4, 3), dtype=Float16), stages())
            tiles_a = cute.group_modes(cute.local_tile(a, (TILE, TILE_K), (None, None)), 0, 2)
            tiles_b = cute.group_modes(cute.local_tile(b, (TILE, TILE_K), (None, None)), 0, 2)
            to_a, from_a = cpasync.tma_partition(atom_a, 0, one, cute.group_modes(to_a, 0, 2), tiles_a)
            to_b, from_b = cpasync.tma_partition(atom_b, 0, one, cute.group_modes(to_b, 0, 2), tiles_b)
            for tile in cutlass.range(cta, tiles, ctas, unroll=1):
                tile_m, tile_n = tile_coordinate(tile, tiles_m, tiles_n)
                for t in cutlass.range(k_tiles, unroll=1):
                    cute.arch.mbarrier_wait(empty + stage, phase ^ 1)
                    with cute.arch.elect_one():
                        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * STAGE_BYTES)
                    cute.copy(atom_a, from_a[None, tile_m, t], to_a[None, stage], tma_bar_ptr=full + stage)
                    cute.copy(atom_b, from_b[None, tile_n, t], to_b[None, stage], tma_bar_ptr=full + stage)
                    stage += 1
                    if stage == STAGES:
                        stage, phase = Int32(0), phase ^ 1
    else:
        cute.arch.setmaxregister_increase(232)
        shared_a = cute.make_tensor(cute.recast_ptr(smem, dtype=Float16), swizzled(3, stages()))
        shared_b = cute.make_tensor(cute.recast_ptr(smem_b, dtype=Float16), swizzled(3, stages()))
        shared_c = cute.make_tensor(cute.recast_ptr(smem_c, dtype=Float16), swizzled(3, c_tile()))
        mma = cute.make_tiled_mma(
            warp.MmaF16BF16Op(Float16, Float32, (16, 8, 16)),
            cute.make_layout((2, 2, 1)),
            permutation_mnk=(32, 32, 16),
        )
        mine = mma.get_slice(thread)
        fragment_a = mma.make_fragment_A(mine.partition_A(shared_a)[None, None, None, 0])
        fragment_b = mma.make_fragment_B(mine.partition_B(shared_b)[None, None, None, 0])
        accumulators = cute.make_rmem_tensor(mma.partition_shape_C((TILE, TILE)), Float32)
        load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), Float16)
        load_a, load_b = cute.make_tiled_copy_A(load, mma), cute.make_tiled_copy_B(load, mma)
        from_a, to_a = load_a.get_slice(thread).partition_S(shared_a), load_a.get_slice(thread).retile(fragment_a)
        from_b, to_b = load_b.get_slice(thread).partition_S(shared_b), load_b.get_slice(thread).retile(fragment_b)
        store = cute.make_tiled_copy_C(cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), Float16), mma)
        from_c = cute.make_tensor(cute.recast_ptr(smem_c, cute.make_swizzle(3, 4, 3), dtype=Float16), c_tile())
        tiles_c = cute.group_modes(cute.local_tile(c, (TILE, TILE), (None, None)), 0, 2)
        from_c, to_c = cpasync.tma_partition(atom_c, 0, one, cute.group_modes(from_c, 0, 2), tiles_c)
        for tile in cutlass.range(cta, tiles, ctas, unroll=1):
            tile_m, tile_n = tile_coordinate(tile, tiles_m, tiles_n)
            accumulators.fill(0.0)
            for _ in cutlass.range(k_tiles, unroll=1):
                cute.arch.mbarrier_wait(full + stage, phase)
                for block in cutlass.range_constexpr(K_BLOCKS):
                    cute.copy(load_a, from_a[None, None, block, stage], to_a[None, None, block])
                    cute.copy(load_b, from_b[None, None, block, stage], to_b[None, None, block])
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(empty + stage)
                stage += 1
                if stage == STAGES:
                    stage, phase = Int32(0), phase ^ 1
                for block in cutlass.range_constexpr(K_BLOCKS):
                    operands = fragment_a[None, None, block], fragment_b[None, None, block]
                    cute.gemm(mma, accumulators, *operands, accumulators)
            rounded = cute.make_fragment_like(accumulators, Float16)
            rounded.store(accumulators.load().to(Float16))
            if warp_index == 0:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.barrier(barrier_id=1, number_of_threads=WARPS * 32)
            mine_c = store.get_slice(thread)
            cute.copy(store, mine_c.retile(rounded), mine_c.partition_D(shared_c))
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1, number_of_threads=WARPS * 32)
            if warp_index == 0:
                cute.copy(atom_c, from_c, to_c[None, tile_m, tile_n])
                cute.arch.cp_async_bulk_commit_group()
        if warp_index == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    stream: driver.CUstream,
):
    k8, n8 = cute.assume(Int64(k), divby=8), cute.assume(Int64(n), divby=8)
    a = cute.make_tensor(a, cute.make_layout((m, k), stride=(k8, 1)))
    b = cute.make_tensor(b, cute.make_layout((n, k), stride=(k8, 1)))
    c = cute.make_tensor(c, cute.make_layout((m, n), stride=(n8, 1)))
    box = swizzled(4, cute.make_layout((TILE, TILE_K), stride=(TILE_K, 1)))
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    atom_a, a = cpasync.make_tiled_tma_atom(load, a, box, (TILE, TILE_K))
    atom_b, b = cpasync.make_tiled_tma_atom(load, b, box, (TILE, TILE_K))
    atom_c, c = cpasync.make_tiled_tma_atom(store, c, swizzled(4, c_tile()), (TILE, TILE))
    ctas = cutlass.min(cute.ceil_div(m, TILE) * cute.ceil_div(n, TILE), 132)
    tma_gemm(atom_a, a, atom_b, b, atom_c, c, m, n, k).launch(
        grid=(ctas, 1, 1), block=(WARPS * 32 + 128, 1, 1), smem=SMEM_BYTES, stream=stream, min_blocks_per_mp=1
    )


def main() -> None:
    """Compiles the kernel and writes its PTX with short names."""
    pointers = [cute.runtime.make_ptr(Float16, 0, AddressSpace.gmem, assumed_align=16) for _ in range(3)]
    sizes = [Int32(0)] * 3
    with TemporaryDirectory() as folder:
        options = f"--gpu-arch sm_90a --keep-ptx --dump-dir {folder}"
        text = cute.compile(launch, *pointers, *sizes, driver.CUstream(0), options=options).artifacts.PTX
    name = re.search(r"\.entry (\w+)", text)[1]
    text = text.replace(f"{name}_param_", "p").replace(name, "tma_gemm")
    text = re.sub(r"^//.*\n|\t// (?:\.globl|begin inline|end inline).*\n", "", text, flags=re.MULTILINE)
    head = f"// Made by tma_gemm.py beside this file, with CuTe DSL {cutlass.__version__}.\n"
    Path(__file__).resolve().with_suffix(".ptx").write_text(head + text.strip() + "\n")


if __name__ == "__main__":
    main()
