"""Conditions of a run: the GPU's state, the driver, and the packages whose versions affect times."""

import ctypes
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cutegen.run.driver import load_driver

# Reads a GPU's state from NVML during a measurement: clocks, power, temperature, driver, and the energy counter.
#
# It uses ctypes: the library comes with every driver, and only six of its functions are needed. Source: NVML API
# Reference Guide, "Device Queries".


_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK, _CELSIUS = 1, 2, 0
_TEXT_BYTES = 96


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A GPU's state at one time; unreported values are None."""

    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None


class Nvml:
    """One GPU in NVML, by its PCI bus address."""

    def __init__(self, library: Any, pci_bus_id: str) -> None:
        self._library = library
        library.nvmlInit_v2()
        self._device = ctypes.c_void_p()
        status = library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(self._device))
        self._known = status == 0

    def driver_version(self) -> str | None:
        """Return the version, such as `580.82.07`."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        return text.value.decode() if self._library.nvmlSystemGetDriverVersion(text, _TEXT_BYTES) == 0 else None

    def state(self) -> DeviceState:
        """Return its current state."""
        power_mw = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        return DeviceState(
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM_CLOCK),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _MEMORY_CLOCK),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _CELSIUS),
        )

    def limits(self) -> DeviceState:
        """Return the maximum clocks and the power limit."""
        power_mw = self._number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)
        return DeviceState(
            sm_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM_CLOCK),
            memory_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _MEMORY_CLOCK),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=None,
        )

    def energy_j(self) -> float | None:
        """Return the energy used since its driver was loaded; NVML counts it in steps of some tens of milliseconds."""
        energy_mj = self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)
        return None if energy_mj is None else energy_mj / 1000

    def _number(self, function: str, kind: type[Any], *arguments: int) -> int | None:
        found = kind()
        if not self._known or getattr(self._library, function)(self._device, *arguments, ctypes.byref(found)):
            return None
        return int(found.value)


@lru_cache
def nvml(ordinal: int) -> Nvml | None:
    """Return a CUDA GPU; None if NVML cannot be loaded. Raises DeviceError without a GPU."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    driver = load_driver()
    pci_bus_id = driver.call("cuDeviceGetPCIBusId", 32, driver.call("cuDeviceGet", ordinal))
    return Nvml(library, pci_bus_id.split(b"\0")[0].decode())


# Conditions of a run: the driver, and the packages whose versions affect times.


DSL_LIBRARIES = ("nvidia-cutlass-dsl-libs-cu12", "nvidia-cutlass-dsl-libs-cu13")
"""The DSL's compiler and assembler, for either CUDA release."""
PACKAGES = ("torch", "triton", "quack-kernels", "nvidia-cutlass-dsl", *DSL_LIBRARIES, "cuda-python", "cuda-bindings")


@dataclass(frozen=True, slots=True)
class Conditions:
    """The driver's version and torch's CUDA version, None if unknown; packages by name."""

    driver: str | None
    cuda: str | None
    versions: Mapping[str, str]


def conditions() -> Conditions:
    """Return those of this process and of torch's current GPU."""
    import torch

    found = nvml(torch.cuda.current_device()) if torch.cuda.is_available() else None
    return Conditions(None if found is None else found.driver_version(), torch.version.cuda, versions(PACKAGES))


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
