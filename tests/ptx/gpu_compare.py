"""Runs the same PTX on a GPU and on the CPU executor and compares the results, bit for bit where PTX defines them.

python tests/ptx/gpu_compare.py # from the repository's root; needs cuda-bindings and a driver

Writes the operands and both results of everything that differs, and of every mma, to $OUT/gpu_compare.npz (arrays
`NAME/gpu`, `NAME/cpu`, `NAME/operand0`, ...) if OUT is set. Exit code 1 if something that must be equal is not.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cuda.bindings import driver  # noqa: E402
from micro_kernels import MMAS, Elementwise, Mma, ldmatrix_ptx, size_bytes  # noqa: E402
from micro_table import ELEMENTWISE  # noqa: E402

from cutegen.ptx import AMPERE, HOPPER, Program, TensorCore  # noqa: E402

CUDA_DIR = Path(__file__).parent / "cuda"
THREADS = 8192
MMA_CTAS = 160


def check(result: tuple[Any, ...]) -> Any:
    """The values of a driver call, or an error with the driver's own name for what went wrong."""
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"driver: {code.name}")
    return values[0] if len(values) == 1 else values


class Gpu:
    """Loads PTX with the driver's compiler and launches it on copies of numpy arrays."""

    def __init__(self) -> None:
        check(driver.cuInit(0))
        device = check(driver.cuDeviceGet(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
        attribute = driver.CUdevice_attribute
        major = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
        minor = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
        self.capability = major * 10 + minor
        name = check(driver.cuDeviceGetName(128, device))
        self.name = name.decode().rstrip("\0")
        self.loaded: list[Any] = []  # until the end: ncu fails to profile after some libraries have been unloaded

    def launch(
        self,
        ptx: str,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any],
        smem_bytes: int = 0,
    ) -> None:
        """Runs `entry`; arrays are copied to the GPU and back."""
        library = check(driver.cuLibraryLoadData(ptx.encode() + b"\0", [], [], 0, [], [], 0))
        kernel = check(driver.cuLibraryGetKernel(library, entry.encode()))
        function = check(driver.cuKernelGetFunction(kernel))
        copies: list[tuple[np.ndarray, Any]] = []
        values, types = [], []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                memory = check(driver.cuMemAlloc(max(argument.nbytes, 1)))
                check(driver.cuMemcpyHtoD(memory, argument.ctypes.data, argument.nbytes))
                copies.append((argument, memory))
                values.append(int(memory))
                types.append(ctypes.c_void_p)
            else:
                values.append(argument)
                types.append(ctypes.c_float if isinstance(argument, float) else ctypes.c_int)
        check(driver.cuLaunchKernel(function, *grid, *block, smem_bytes, 0, (tuple(values), tuple(types)), 0))
        check(driver.cuCtxSynchronize())
        for array, memory in copies:
            check(driver.cuMemcpyDtoH(array.ctypes.data, memory, array.nbytes))
            check(driver.cuMemFree(memory))
        self.loaded.append(library)


def ordered(values: np.ndarray, kind: str) -> np.ndarray:
    """Floats of `kind` as integers that count representable values; NaNs all become one number."""
    bits, mantissa = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}[kind]
    raw = np.ascontiguousarray(values).view(f"u{bits // 8}").astype(object)
    limit = ((1 << (bits - 1)) - 1) & ~((1 << mantissa) - 1)
    size = raw & ((1 << (bits - 1)) - 1)
    signed = np.where((raw >> (bits - 1)).astype(bool), -size, size)
    return np.where(size > limit, 1 << 70, signed)


@dataclass(slots=True)
class Result:
    """One row of the table."""

    name: str
    cases: int
    unequal_bits: int
    largest_ulp: int | None
    nan_differs: int
    must_be_equal: bool

    @property
    def failed(self) -> bool:
        """True where results differ that PTX says are defined."""
        return self.must_be_equal and self.unequal_bits > 0

    def __str__(self) -> str:
        """The row as printed."""
        ulp = "" if self.largest_ulp is None else f"{self.largest_ulp} ulp"
        verdict = "FAILED" if self.failed else "equal" if self.unequal_bits == 0 else "differs"
        return f"{self.name:34} {self.cases:8} {self.unequal_bits:8} {ulp:>16} {self.nan_differs:6}  {verdict}"


def compare(name: str, gpu: np.ndarray, cpu: np.ndarray, kind: str | None, *, must_be_equal: bool) -> Result:
    """Bits that differ; for floats the largest distance among results that are numbers on both sides."""
    unequal = int(
        (gpu.view(np.uint8).reshape(len(gpu.ravel()), -1) != cpu.view(np.uint8).reshape(len(cpu.ravel()), -1))
        .any(axis=1)
        .sum()
    )
    if kind is None or unequal == 0:
        return Result(name, gpu.size, unequal, None if kind is None else 0, 0, must_be_equal)
    a, b = ordered(gpu, kind).ravel(), ordered(cpu, kind).ravel()
    numbers = (a != 1 << 70) & (b != 1 << 70)
    distance = np.abs(a - b)[numbers]
    nan_differs = int(((a == 1 << 70) != (b == 1 << 70)).sum())
    return Result(name, gpu.size, unequal, int(distance.max()) if len(distance) else 0, nan_differs, must_be_equal)


KEPT: dict[str, np.ndarray] = {}


def keep(name: str, gpu: np.ndarray, cpu: np.ndarray, operands: Sequence[np.ndarray]) -> None:
    """Keeps results and operands for study."""
    KEPT[f"{name}/gpu"], KEPT[f"{name}/cpu"] = gpu, cpu
    KEPT.update({f"{name}/operand{i}": operand for i, operand in enumerate(operands)})


def generator(name: str) -> np.random.Generator:
    """The same random numbers for the same name, in every process."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def compare_elementwise(gpu: Gpu, row: Elementwise) -> Result:
    """One instruction on random operands."""
    operands = row.operands(generator(row.name), THREADS)
    expected = np.zeros(THREADS, f"u{size_bytes(row.types[0])}")
    actual = expected.copy()
    text = row.ptx()
    gpu.launch(text, row.name, (THREADS // 128, 1, 1), (128, 1, 1), [expected, *operands])
    Program.parse(text).launch(row.name, grid=THREADS // 128, block=128, args=[actual, *operands])
    kind = row.float_result.removesuffix("x2") if row.float_result else None
    kind = kind if kind in ("f16", "bf16", "f32", "f64") else None
    result = compare(row.name, expected, actual, kind, must_be_equal=row.tolerance_ulp == 0)
    if result.unequal_bits and row.tolerance_ulp == 0:
        keep(row.name, expected, actual, operands)
    return result


def compare_mma(gpu: Gpu, mma: Mma, how: str, core: TensorCore) -> Result:
    """One mma on random fragments."""
    name = f"{mma.name}_{how}"
    operands = mma.operands(generator(name), MMA_CTAS, how)
    expected = np.zeros((MMA_CTAS, mma.counts[2], 32), np.uint32)
    actual = expected.copy()
    text = mma.ptx()
    gpu.launch(text, mma.name, (MMA_CTAS, 1, 1), (32, 1, 1), [expected, *operands])
    Program.parse(text).launch(mma.name, grid=MMA_CTAS, block=32, args=[actual, *operands], tensor_core=core)
    keep(name, expected, actual, operands)
    kind = {"s32": None, "f16": "f16", "f32": "f32"}[mma.c_type]
    if kind == "f16":
        return compare(name, expected.view(np.uint16), actual.view(np.uint16), kind, must_be_equal=True)
    return compare(name, expected, actual, kind, must_be_equal=True)


def compare_ldmatrix(gpu: Gpu, count: int, transposed: bool) -> Result:
    """One ldmatrix of random rows."""
    name = f"ldmatrix_x{count}{'_trans' if transposed else ''}"
    random = generator(name)
    data = random.integers(0, 1 << 32, 512, np.uint32)
    rows = (random.integers(0, 128, 32) * 16).astype(np.uint32)
    expected = np.zeros((count, 32), np.uint32)
    actual = expected.copy()
    text = ldmatrix_ptx(count, transposed)
    gpu.launch(text, name, (1, 1, 1), (32, 1, 1), [expected, data, rows])
    Program.parse(text).launch(name, grid=1, block=32, args=[actual, data, rows])
    return compare(name, expected, actual, None, must_be_equal=True)


def compare_foreign(gpu: Gpu) -> list[Result]:
    """The three CUDA C++ kernels."""
    results = []
    random = generator("foreign")
    text = (CUDA_DIR / "naive_gemm.ptx").read_text()
    a, b, c = (random.standard_normal(shape, np.float32) for shape in ((50, 45), (45, 37), (50, 37)))
    expected, actual = c.copy(), c.copy()
    gpu.launch(text, "naive_gemm", (3, 4, 1), (16, 16, 1), [a, b, expected, 50, 37, 45, 1.5, -0.25])
    Program.parse(text).launch("naive_gemm", grid=(3, 4), block=(16, 16), args=[a, b, actual, 50, 37, 45, 1.5, -0.25])
    results.append(compare("naive_gemm", expected, actual, "f32", must_be_equal=True))

    text = (CUDA_DIR / "pipelined_gemm.ptx").read_text()
    half_a, half_b = (random.standard_normal(shape).astype(np.float16) for shape in ((200, 264), (136, 264)))
    expected, actual = np.zeros((200, 136), np.float32), np.zeros((200, 136), np.float32)
    gpu.launch(text, "pipelined_gemm", (3, 4, 1), (128, 1, 1), [half_a, half_b, expected, 200, 136, 264], 24576)
    Program.parse(text).launch(
        "pipelined_gemm", grid=(3, 4), block=128, args=[half_a, half_b, actual, 200, 136, 264], dynamic_smem_bytes=24576
    )
    results.append(compare("pipelined_gemm", expected, actual, "f32", must_be_equal=True))

    text = (CUDA_DIR / "shuffle_reduction.ptx").read_text()
    x = (random.standard_normal((7, 3001)) * 1.5).astype(np.float32)
    pairs = [[np.zeros(7, np.float32), np.zeros(7, np.int32), np.zeros(9, np.uint32)] for _ in range(2)]
    gpu.launch(text, "shuffle_reduction", (7, 1, 1), (160, 1, 1), [x, *pairs[0], 3001])
    Program.parse(text).launch("shuffle_reduction", grid=7, block=160, args=[x, *pairs[1], 3001])
    for name, on_gpu, on_cpu in zip(("sums", "negatives", "histogram"), *pairs, strict=True):
        kind = "f32" if name == "sums" else None
        results.append(compare(f"shuffle_reduction {name}", on_gpu, on_cpu, kind, must_be_equal=True))
    return results


def main() -> int:
    """Compares everything and prints the table."""
    start = time.perf_counter()
    gpu = Gpu()
    core = HOPPER if gpu.capability >= 90 else AMPERE
    print(f"{gpu.name}, compute capability {gpu.capability}, model {core}")
    print(f"{'':34} {'cases':>8} {'unequal':>8} {'largest':>16} {'NaN':>6}")
    results: list[Result] = []

    def show(result: Result) -> None:
        results.append(result)
        if result.unequal_bits or not result.must_be_equal or "mma" in result.name or "_gemm" in result.name:
            print(result, flush=True)

    for result in compare_foreign(gpu):
        show(result)
    for count in (1, 2, 4):
        for transposed in (False, True):
            show(compare_ldmatrix(gpu, count, transposed))
    for mma in MMAS:
        for how in ("normal", "floats", "bits") if mma.c_type != "s32" else ("bits",):
            show(compare_mma(gpu, mma, how, core))
    for row in ELEMENTWISE:
        show(compare_elementwise(gpu, row))
    if directory := os.environ.get("OUT"):
        np.savez_compressed(Path(directory) / "gpu_compare.npz", **KEPT)  # type: ignore[arg-type]
    failed = sum(result.failed for result in results)
    print(f"{len(results)} comparisons, {failed} failed, {time.perf_counter() - start:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
