"""Ceilings out of times and cycles, on stand-ins for the driver and torch's GPU; and on a GPU where there is one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutegen.bench import ceilings as room
from cutegen.bench import mma_peak, read_peak, wgmma_peak
from cutegen.bench.measure import Measurement
from cutegen.bench.peak_kernel import MmaTypes
from cutegen.hardware import Instruction

F16 = MmaTypes("f16", "f32")
WGMMA = MmaTypes("f16", "f32", Instruction.WGMMA)
SMS, CYCLES = 7, 4_000_000


class FakeDriver:
    """Loads what it is given and, when a kernel is launched, reports CYCLES for each CTA."""

    def __init__(self) -> None:
        self.loaded: list[bytes] = []
        self.launched: list[tuple[int, ...]] = []
        self.read: list[tuple[int, ...]] = []
        self.smem_bytes: list[int] = []
        attributes = {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": "most"}
        self.api = SimpleNamespace(CUfunction_attribute=SimpleNamespace(**attributes))

    def attribute(self, name: str, ordinal: int) -> int:
        assert name == "MULTIPROCESSOR_COUNT"
        return SMS

    def device_name(self, ordinal: int) -> str:
        return "Imaginary 7"

    def primary_context(self, ordinal: int) -> str:
        return "context"

    def current(self, context: str) -> Any:
        return nullcontext()

    def call(self, function: str, *arguments: Any) -> Any:
        if function == "cuLibraryLoadData":
            self.loaded.append(arguments[0])
        if function == "cuFuncSetAttribute":
            _, attribute, value = arguments
            assert attribute == "most"
            self.smem_bytes.append(value)
        if function == "cuLibraryGetKernel":
            return arguments[1].decode()
        if function == "cuKernelGetFunction":
            return arguments[0]
        if function == "cuLaunchKernel":
            entry, *shape, _, pointers, _ = arguments
            if entry == read_peak.ENTRY:
                self.read.append(tuple(shape))
                return None
            sums, cycles, iterations, seed = self._parameters(pointers)
            self.launched.append((*shape, iterations, seed))
            (ctypes.c_int64 * shape[0]).from_address(cycles)[:] = [CYCLES] * shape[0]
            (ctypes.c_uint32 * (shape[0] * shape[3])).from_address(sums)[0] = 1
        return function

    @staticmethod
    def _parameters(pointers: int) -> tuple[int, int, int, int]:
        types = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32
        addresses = (ctypes.c_void_p * 4).from_address(pointers)
        sums, cycles, iterations, seed = (
            kind.from_address(address).value for kind, address in zip(types, addresses, strict=True)
        )
        return sums, cycles, iterations, seed


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver, and a torch whose GPU is host memory; a copy takes 2 ms, a product 4, reading all 1 and half 0.6."""
    fake = FakeDriver()

    def timed(calls: Mapping[str, Callable[[], object]], **options: Any) -> Mapping[str, Measurement]:
        for call in calls.values():
            call()
        known = {room.COPY: 2000.0, room.READS[0]: 600.0, room.READS[1]: 1000.0}
        times = {name: known.get(name, 4000.0) for name in calls}
        return {name: Measurement(time, time, time, options["rounds"]) for name, time in times.items()}

    real_empty = torch.empty
    monkeypatch.setattr(room, "load_driver", lambda: fake)
    monkeypatch.setattr(room, "launch_times", timed)
    monkeypatch.setattr(room, "_copy", lambda: lambda: None)
    monkeypatch.setattr(torch, "randint", lambda most, shape, dtype, device: real_empty(1, dtype=dtype))
    monkeypatch.setattr(torch, "empty", lambda elems, dtype, device: real_empty(elems, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 0}))
    return fake


def test_rates_follow_from_times_and_cycles(driver: FakeDriver) -> None:
    found = room.measure_ceilings([F16, MmaTypes("f16", "f16")])
    operations = 2 * 16 * 8 * 16 * mma_peak.MMA_PER_ITERATION * 4 * room.ITERATIONS[Instruction.MMA_SYNC] * 2
    assert (found.device, found.sms) == ("Imaginary 7", SMS)
    assert found.of(F16).flops_per_cycle == operations / CYCLES
    assert found.of(F16).flops_per_s == pytest.approx(SMS * operations / 4e-3)
    assert found.clock_hz(F16) == pytest.approx(CYCLES / 4e-3)
    assert found.read_bytes_per_s == pytest.approx(2**29 / 0.4e-3)  # by difference: what each launch takes is left out
    assert found.copy_bytes_per_s == pytest.approx(2 * 2**30 / 2e-3)
    assert [row.types for row in found.mma] == [F16, MmaTypes("f16", "f16")]


def test_every_multiprocessor_gets_two_ctas(driver: FakeDriver) -> None:
    room.measure_ceilings([F16])
    assert driver.launched == [(2 * SMS, 1, 1, 128, 1, 1, 0, room.ITERATIONS[Instruction.MMA_SYNC], room.SEED)]
    assert driver.loaded[0] == mma_peak.ptx(F16).encode() + b"\0"
    assert driver.smem_bytes == []


def test_wgmma_gets_one_cta_and_the_shared_memory_of_its_tiles(driver: FakeDriver) -> None:
    found = room.measure_ceilings([F16, WGMMA])
    smem = wgmma_peak.SMEM_BYTES
    assert driver.launched[-1] == (SMS, 1, 1, 256, 1, 1, smem, room.ITERATIONS[Instruction.WGMMA], room.SEED)
    assert driver.smem_bytes == [smem]
    operations = 2 * 64 * 256 * 16 * 8 * 2 * room.ITERATIONS[Instruction.WGMMA]
    assert found.of(WGMMA).flops_per_cycle == operations / CYCLES
    assert found.of(WGMMA).types.title == "wgmma, f16 with f32 accumulation"


def test_every_byte_is_read_by_some_cta(driver: FakeDriver) -> None:
    room.measure_ceilings([F16])
    assert [grid * read_peak.CTA_BYTES for grid, *_ in driver.read] == list(room.READ_BYTES)


@pytest.mark.gpu
def test_an_instruction_alone_is_faster_than_any_kernel_made_of_it() -> None:
    types = [F16, MmaTypes("f16", "f16"), MmaTypes("bf16", "f32")]
    if torch.cuda.get_device_capability() == (9, 0):
        types += [WGMMA, MmaTypes("e4m3", "f32", Instruction.WGMMA)]
    found = room.measure_ceilings(types)
    assert found.read_bytes_per_s > found.copy_bytes_per_s > 1e11
    for row in found.mma:
        assert 500 < row.flops_per_cycle < 8200
        assert 0.3e9 < found.clock_hz(row.types) < 4e9
