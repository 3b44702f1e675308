"""x[i] = alpha * x[i] for i < n: the smallest kernel with a pointer, an integer and a float."""

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_ptr

ENTRY = "scale"


@cute.kernel
def kernel(x: cute.Pointer, n: cutlass.Int32, alpha: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    mX = cute.make_tensor(x, cute.make_layout(n))
    if thread < n:
        mX[thread] = (mX[thread] * alpha).to(cutlass.Float16)


@cute.jit
def launch(x: cute.Pointer, n: cutlass.Int32, alpha: cutlass.Float32):
    kernel.set_name_prefix(ENTRY, remove_cutlass_symbol=True, keep_mangled_name=False)
    kernel(x, n, alpha).launch(grid=(1, 1, 1), block=(128, 1, 1))


def compile_kernel(gpu_arch: str):
    x = make_ptr(cutlass.Float16, 16, cute.AddressSpace.gmem, assumed_align=16)
    return cute.compile(launch, x, cutlass.Int32(1), cutlass.Float32(1), options=f"--gpu-arch {gpu_arch}")
