"""What the GPU at hand can do at most: `mma.sync` alone, and copies within device memory. Measured, once per run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from cutegen.bench import mma_peak
from cutegen.bench.measure import WARM_UP_ROUNDS, Call, Measurement, interleaved
from cutegen.bench.mma_peak import MmaTypes
from cutegen.run.driver import Driver, load_driver

ITERATIONS = 50_000  # 5 ms on an H200: long enough to meet the power limit that a large GEMM meets
COPY_BYTES = 1 << 30
ROUNDS = 10
SEED = 1
COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaCeiling:
    """`mma.sync`, or fma, alone on every multiprocessor; `flops_per_cycle` are one multiprocessor's."""

    types: MmaTypes
    flops_per_s: float
    flops_per_cycle: float

    @property
    def tflops(self) -> float:
        """In units of 10^12 operations a second."""
        return self.flops_per_s / 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """One GPU's ceilings; a copied byte counts twice, once read and once written."""

    device: str
    sms: int
    mma: tuple[MmaCeiling, ...]
    copy_bytes_per_s: float

    def of(self, types: MmaTypes) -> MmaCeiling:
        """The ceiling of these types, which must have been asked for."""
        return next(row for row in self.mma if row.types == types)

    def clock_hz(self, types: MmaTypes) -> float:
        """The clock that multiprocessors kept under this load."""
        row = self.of(types)
        return row.flops_per_s / (self.sms * row.flops_per_cycle)


def rounds_of_all() -> int:
    """How often `after_round` is called."""
    return WARM_UP_ROUNDS + ROUNDS


def measure_ceilings(types: Iterable[MmaTypes], *, after_round: Callable[[], None] = lambda: None) -> Ceilings:
    """Measure the copy and `mma.sync`, or fma, of each of `types` on torch's current GPU. Raises DeviceError."""
    import torch

    driver, ordinal = load_driver(), torch.cuda.current_device()
    sms = driver.attribute("MULTIPROCESSOR_COUNT", ordinal)
    peaks = {x.title: _Peak(driver, ordinal, sms, x) for x in types}
    calls: dict[str, Call] = {COPY: _copy()}
    measured = interleaved({**calls, **peaks}, rounds=ROUNDS, flush=False, after_round=after_round)
    return Ceilings(
        device=driver.device_name(ordinal),
        sms=sms,
        mma=tuple(peak.ceiling(measured[name]) for name, peak in peaks.items()),
        copy_bytes_per_s=2 * COPY_BYTES / (1e-6 * measured[COPY].median_us),
    )


def _copy() -> Call:
    """A copy of random bytes between two buffers far larger than any cache."""
    import torch

    source = torch.randint(256, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    return partial(torch.empty_like(source).copy_, source)


class _Peak:
    """The kernel of one combination of types; a call launches it on torch's current stream."""

    def __init__(self, driver: Driver, ordinal: int, sms: int, types: MmaTypes) -> None:
        import torch

        self._driver, self._types, self._sms, self._ctas = driver, types, sms, sms * mma_peak.CTAS_PER_SM
        threads = 32 * mma_peak.WARPS_PER_CTA
        self._sums = torch.empty(self._ctas * threads, dtype=torch.int32, device="cuda")
        self._cycles = torch.empty(self._ctas, dtype=torch.int64, device="cuda")
        self._context = driver.primary_context(ordinal)
        with driver.current(self._context):
            text = mma_peak.ptx(types).encode() + b"\0"
            # Kept until the process ends, as every kernel's library.
            library = driver.call("cuLibraryLoadData", text, [], [], 0, [], [], 0)
            kernel = driver.call("cuLibraryGetKernel", library, mma_peak.ENTRY.encode())
            function = driver.call("cuKernelGetFunction", kernel)
        # A slot of eight bytes for each parameter, low byte first, and the slots' addresses, as in cutegen.run.gpu.
        values = (self._sums.data_ptr(), self._cycles.data_ptr(), ITERATIONS, SEED)
        self._slots = (ctypes.c_uint64 * len(values))(*values)
        first = ctypes.addressof(self._slots)
        self._pointers = (ctypes.c_void_p * len(values))(*(first + 8 * i for i in range(len(values))))
        self._launch = (function, self._ctas, 1, 1, threads, 1, 1, 0)

    def __call__(self) -> None:
        """Launch."""
        import torch

        stream = torch.cuda.current_stream().cuda_stream
        with self._driver.current(self._context):
            self._driver.call("cuLaunchKernel", *self._launch, stream, ctypes.addressof(self._pointers), 0)

    def ceiling(self, measurement: Measurement) -> MmaCeiling:
        """What the measured time and the cycles of the last launch come to."""
        flops = self._types.flops(ITERATIONS, self._ctas)
        return MmaCeiling(
            types=self._types,
            flops_per_s=flops / (1e-6 * measurement.median_us),
            flops_per_cycle=flops / self._sms / float(self._cycles.median().item()),
        )
