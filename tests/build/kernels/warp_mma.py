"""C[16,8] = A[16,16] B[8,16]: one warp, cp.async into shared memory, ldmatrix, one mma.sync."""

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import make_ptr

ENTRY = "warp_mma"
COPY_THREADS = 16  # 8 rows of 2 threads, 8 elements each


@cute.kernel
def kernel(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer):
    thread, _, _ = cute.arch.thread_idx()
    layout_a = cute.make_layout((16, 16), stride=(16, 1))
    layout_b = cute.make_layout((8, 16), stride=(16, 1))
    gA, gB = cute.make_tensor(a, layout_a), cute.make_tensor(b, layout_b)
    gC = cute.make_tensor(c, cute.make_layout((16, 8), stride=(8, 1)))
    sA = cute.make_tensor(cute.arch.alloc_smem(cutlass.Float16, 256, alignment=128), layout_a)
    sB = cute.make_tensor(cute.arch.alloc_smem(cutlass.Float16, 128, alignment=128), layout_b)

    cp_async = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float16, num_bits_per_copy=128)
    g2s = cute.make_tiled_copy_tv(cp_async, cute.make_layout((8, 2), stride=(2, 1)), cute.make_layout((1, 8)))
    if thread < COPY_THREADS:
        copy = g2s.get_slice(thread)
        cute.copy(g2s, copy.partition_S(gA), copy.partition_D(sA))
        cute.copy(g2s, copy.partition_S(gB), copy.partition_D(sB))
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()

    mma = cute.make_tiled_mma(warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16)))
    thr_mma = mma.get_slice(thread)
    tCrA = mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = mma.make_fragment_B(thr_mma.partition_B(sB))
    tCgC = thr_mma.partition_C(gC)
    tCrC = mma.make_fragment_C(tCgC)
    tCrC.fill(0.0)
    s2r_a = cute.make_tiled_copy_A(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), cutlass.Float16), mma)
    s2r_b = cute.make_tiled_copy_B(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 2), cutlass.Float16), mma)
    copy_a, copy_b = s2r_a.get_slice(thread), s2r_b.get_slice(thread)
    cute.copy(s2r_a, copy_a.partition_S(sA), copy_a.retile(tCrA))
    cute.copy(s2r_b, copy_b.partition_S(sB), copy_b.retile(tCrB))
    cute.gemm(mma, tCrC, tCrA, tCrB, tCrC)
    cute.autovec_copy(tCrC, tCgC)


@cute.jit
def launch(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer):
    kernel.set_name_prefix(ENTRY, remove_cutlass_symbol=True, keep_mangled_name=False)
    kernel(a, b, c).launch(grid=(1, 1, 1), block=(32, 1, 1))


def compile_kernel(gpu_arch: str):
    f16 = make_ptr(cutlass.Float16, 16, cute.AddressSpace.gmem, assumed_align=16)
    f32 = make_ptr(cutlass.Float32, 16, cute.AddressSpace.gmem, assumed_align=16)
    return cute.compile(launch, f16, f16, f32, options=f"--gpu-arch {gpu_arch}")
