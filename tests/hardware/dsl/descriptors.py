"""A kernel that multiplies by wgmma out of shared memory of given layouts, for the descriptors in its PTX."""

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from cutlass.cute.nvgpu.warpgroup import OperandSource, SmemLayoutAtomKind

ELEMENTS = {
    "f16": cutlass.Float16,
    "bf16": cutlass.BFloat16,
    "f32": cutlass.Float32,
    "e4m3": cutlass.Float8E4M3FN,
    "e5m2": cutlass.Float8E5M2,
    "s8": cutlass.Int8,
    "u8": cutlass.Uint8,
    "s32": cutlass.Int32,
}
SMEM_BYTES = 128 * 1024
CASES = []


def operation(case):
    """The DSL's wgmma of the case's types and N."""
    d, a, b = (ELEMENTS[name] for name in case.types)
    majors = [OperandMajorMode.K if kind.startswith("K_") else OperandMajorMode.MN for kind in (case.a, case.b)]
    source = OperandSource.RMEM if case.a_in_registers else OperandSource.SMEM
    if a.width == 16:
        return warpgroup.MmaF16BF16Op(a, d, (64, case.n, 16), source, *majors)
    of_bytes = warpgroup.mma.MmaI8Op if case.types[0] == "s32" else warpgroup.MmaF8Op
    return of_bytes(a, b, d, (64, case.n, 32), source, *majors)


def shared(kind, element, tile):
    """A tile of two stages, its atoms one behind the other as boxes of a bulk tensor copy."""
    atom = warpgroup.make_smem_layout_atom(SmemLayoutAtomKind[kind], element)
    layout = cute.tile_to_shape(atom, (*tile, 2), (0, 1, 2) if kind.startswith("K_") else (1, 0, 2))
    base = cute.arch.get_dyn_smem(element, alignment=1024)
    return cute.make_tensor(cute.recast_ptr(base, layout.inner, element), layout.outer)


@cute.kernel
def kernel(out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    for case in CASES:
        d, a, b = (ELEMENTS[name] for name in case.types)
        mma = cute.make_tiled_mma(operation(case))
        thr_mma = mma.get_slice(thread)
        tCrA = mma.make_fragment_A(thr_mma.partition_A(shared(case.a, a, case.tile_a)))
        tCrB = mma.make_fragment_B(thr_mma.partition_B(shared(case.b, b, case.tile_b)))
        if cutlass.const_expr(case.a_in_registers):
            tCrA.fill(a(0))
        tCrC = cute.make_rmem_tensor(mma.partition_shape_C((case.tile_a[0], case.tile_b[0])), d)
        tCrC.fill(d(0))
        warpgroup.fence()
        for stage in range(2):
            for k_block in range(cute.size(tCrA, mode=[2])):
                at = (None, None, k_block, stage)
                cute.gemm(mma, tCrC, tCrA[at], tCrB[at], tCrC)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        words = cute.recast_tensor(tCrC, cutlass.Int32)
        for i in range(cute.size(words)):
            out[thread * cute.size(words) + i] = words[i]


@cute.jit
def launch(out: cute.Tensor):
    kernel(out).launch(grid=(1, 1, 1), block=(128, 1, 1), smem=SMEM_BYTES)


def ptx_of(cases, folder):
    """The PTX of the kernel that multiplies once for each case."""
    CASES[:] = cases
    out = cute.runtime.make_fake_compact_tensor(cutlass.Int32, (128 * 256,))
    return cute.compile(launch, out, options=f"--gpu-arch sm_90a --keep-ptx --dump-dir {folder}").artifacts.PTX
