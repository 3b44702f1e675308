"""NVML by its own signatures: what a GPU says, and what it does not."""

from __future__ import annotations

import ctypes
from typing import Any

from cutegen.bench.conditions import DeviceState, Nvml


class Library:
    """As much of libnvidia-ml as is asked. A function that is missing here fails as on an old GPU."""

    def __init__(self, **numbers: int) -> None:
        self.numbers = numbers
        self.bus = b""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: bytes, device: Any) -> int:
        self.bus = bus
        ctypes.cast(device, ctypes.POINTER(ctypes.c_void_p))[0] = 7
        return 0 if bus.startswith(b"0000") else 6

    def nvmlSystemGetDriverVersion(self, text: Any, size: int) -> int:
        text.value = b"580.82.07"
        return 0

    def __getattr__(self, function: str) -> Any:
        def number(device: ctypes.c_void_p, *arguments: Any) -> int:
            *which, found = arguments
            assert device.value == 7
            key = function + "".join(map(str, which))
            if key not in self.numbers:
                return 3
            kind = ctypes.c_ulonglong if "Energy" in function else ctypes.c_uint
            ctypes.cast(found, ctypes.POINTER(kind))[0] = self.numbers[key]
            return 0

        return number


KNOWN = {
    "nvmlDeviceGetClockInfo1": 1755,
    "nvmlDeviceGetClockInfo2": 3201,
    "nvmlDeviceGetPowerUsage": 699_512,
    "nvmlDeviceGetTemperature0": 61,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000_123,
}


def test_numbers_come_in_their_units() -> None:
    found = Nvml(library := Library(**KNOWN), "0000:1B:00.0")
    assert library.bus == b"0000:1B:00.0"
    assert found.driver_version() == "580.82.07"
    assert found.state() == DeviceState(1755, 3201, 699.512, 61)
    assert found.energy_j() == 5_000_000.123  # more than 32 bits of millijoules


def test_what_a_gpu_does_not_tell_is_none() -> None:
    without_power = {name: value for name, value in KNOWN.items() if "Power" not in name and "Energy" not in name}
    found = Nvml(Library(**without_power), "0000:1B:00.0")
    assert found.state() == DeviceState(1755, 3201, None, 61)
    assert found.energy_j() is None
    assert Nvml(Library(**KNOWN), "elsewhere").state() == DeviceState(None, None, None, None)
