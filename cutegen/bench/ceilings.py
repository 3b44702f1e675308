"""Ceilings of the present GPU: an MMA instruction alone; device memory read, and copied.

Measured, once per run.
"""

import ctypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from cutegen.bench import mma_peak, read_peak, wgmma_peak
from cutegen.bench.measure import WARM_UP_ROUNDS, Call, Measurement, launch_times
from cutegen.bench.peak_kernel import MmaTypes, PeakKernel
from cutegen.hardware import Instruction
from cutegen.run.driver import Driver, load_driver

# About 5 ms on an H200: long enough to reach the power limit, as a large GEMM does.
ITERATIONS = {Instruction.MMA_SYNC: 50_000, Instruction.FMA: 50_000, Instruction.WGMMA: 5_000}
COPY_BYTES = 1 << 30
READ_BYTES = (1 << 29, 1 << 30)
"""Bytes of the two reads, whose times are subtracted: the difference has no launch cost."""
ROUNDS = 10
SEED = 1
COPY = "copy"
READS = ("read a half", "read")


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaCeiling:
    """An instruction alone on every SM; `flops_per_cycle` is per SM."""

    types: MmaTypes
    flops_per_s: float
    flops_per_cycle: float

    @property
    def tflops(self) -> float:
        """Operations per second, in units of 10^12."""
        return self.flops_per_s / 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """One GPU's ceilings. A copied byte counts twice, once read and once written."""

    device: str
    sms: int
    mma: tuple[MmaCeiling, ...]
    copy_bytes_per_s: float
    read_bytes_per_s: float

    def of(self, types: MmaTypes) -> MmaCeiling:
        """Return the ceiling of these types, which must have been measured."""
        return next(row for row in self.mma if row.types == types)

    def clock_hz(self, types: MmaTypes) -> float:
        """Return the SM clock under this load."""
        row = self.of(types)
        return row.flops_per_s / (self.sms * row.flops_per_cycle)


def rounds_of_all() -> int:
    """Return how often `after_round` is called."""
    return WARM_UP_ROUNDS + ROUNDS


def measure_ceilings(types: Iterable[MmaTypes], *, after_round: Callable[[], None] = lambda: None) -> Ceilings:
    """Measure memory, and the instruction of each of `types`, on torch's current GPU. Raises DeviceError."""
    import torch

    driver, ordinal = load_driver(), torch.cuda.current_device()
    gpu = _Gpu(driver, driver.primary_context(ordinal), driver.attribute("MULTIPROCESSOR_COUNT", ordinal))
    peaks = {x.title: _Peak(gpu, x) for x in types}
    calls: dict[str, Call] = {COPY: _copy(), **_reads(gpu)}
    measured = launch_times({**calls, **peaks}, rounds=ROUNDS, flush=False, after_round=after_round)
    fewer, more = (measured[name].median_us for name in READS)
    return Ceilings(
        device=driver.device_name(ordinal),
        sms=gpu.sms,
        mma=tuple(peak.ceiling(measured[name]) for name, peak in peaks.items()),
        copy_bytes_per_s=2 * COPY_BYTES / (1e-6 * measured[COPY].median_us),
        read_bytes_per_s=(READ_BYTES[1] - READ_BYTES[0]) / (1e-6 * (more - fewer)),
    )


def _copy() -> Call:
    """Copies random bytes between two buffers far larger than any cache."""
    import torch

    source = torch.randint(256, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    return partial(torch.empty_like(source).copy_, source)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """GPU that the kernels are launched on."""

    driver: Driver
    context: object
    sms: int

    def launch(self, ptx: str, entry: str, grid: int, threads: int, smem_bytes: int, values: tuple[int, ...]) -> Call:
        """Return a launch of the entry on torch's current stream with parameters `values`. Raises DeviceError."""
        import torch

        driver = self.driver
        with driver.current(self.context):
            # Kept until the process ends, like every kernel's library.
            library = driver.call("cuLibraryLoadData", ptx.encode() + b"\0", [], [], 0, [], [], 0)
            kernel = driver.call("cuLibraryGetKernel", library, entry.encode())
            function = driver.call("cuKernelGetFunction", kernel)
            if smem_bytes:
                attribute = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.call("cuFuncSetAttribute", function, attribute, smem_bytes)
        # A slot of eight bytes per parameter, low byte first, and the slots' addresses, as in cutegen.run.gpu.
        slots = (ctypes.c_uint64 * len(values))(*values)
        first = ctypes.addressof(slots)
        pointers = (ctypes.c_void_p * len(values))(*(first + 8 * i for i in range(len(values))))
        shape = (function, grid, 1, 1, threads, 1, 1, smem_bytes)

        def call(_: object = slots) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            with driver.current(self.context):
                driver.call("cuLaunchKernel", *shape, stream, ctypes.addressof(pointers), 0)

        return call


def _reads(gpu: _Gpu) -> Mapping[str, Call]:
    """Return launches that read random bytes, fewer and more."""
    import torch

    source = torch.randint(256, (READ_BYTES[1],), dtype=torch.uint8, device="cuda")
    found = torch.empty(1, dtype=torch.int32, device="cuda")
    text, addresses = read_peak.ptx(), (source.data_ptr(), found.data_ptr())

    def reads(size: int) -> Call:
        launch = gpu.launch(text, read_peak.ENTRY, size // read_peak.CTA_BYTES, read_peak.THREADS, 0, addresses)

        def call(_: object = (source, found)) -> None:
            launch()

        return call

    return {name: reads(size) for name, size in zip(READS, READ_BYTES, strict=True)}


class _Peak:
    """The kernel of one combination of types; a call launches it on torch's current stream."""

    def __init__(self, gpu: _Gpu, types: MmaTypes) -> None:
        import torch

        kernel, self._types, self._sms = peak_kernel(types), types, gpu.sms
        ctas, iterations = gpu.sms * kernel.ctas_per_sm, ITERATIONS[types.multiplier]
        self._sums = torch.empty(ctas * kernel.threads, dtype=torch.int32, device="cuda")
        self._cycles = torch.empty(ctas, dtype=torch.int64, device="cuda")
        values = (self._sums.data_ptr(), self._cycles.data_ptr(), iterations, SEED)
        self._launch = gpu.launch(kernel.ptx, kernel.entry, ctas, kernel.threads, kernel.smem_bytes, values)
        self._flops = kernel.flops(iterations, ctas)

    def __call__(self) -> None:
        """Launch."""
        self._launch()

    def ceiling(self, measurement: Measurement) -> MmaCeiling:
        """Return the ceiling from the measured time and the cycles of the last launch."""
        return MmaCeiling(
            types=self._types,
            flops_per_s=self._flops / (1e-6 * measurement.median_us),
            flops_per_cycle=self._flops / self._sms / float(self._cycles.median().item()),
        )


def peak_kernel(types: MmaTypes) -> PeakKernel:
    """Return the kernel that only multiplies such operands."""
    return wgmma_peak.kernel(types) if types.multiplier is Instruction.WGMMA else mma_peak.kernel(types)
