"""Targets by the names that people give them, and the present GPU's, which is the default."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

import cutegen
from cutegen.errors import RequestError
from cutegen.hardware import GPU_NAMES, TARGETS, resolve_target, targeting


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, name) for name in TARGETS),
        *((row.gpu_arch, name) for name, row in TARGETS.items()),
        ("86", "sm_86"),
        ("90a", "sm_90"),
        ("sm90", "sm_90"),
        ("sm90a", "sm_90"),
        ("9.0", "sm_90"),
        ("compute_86", "sm_86"),
        ("h100", "sm_90"),
        ("H100 SXM", "sm_90"),
        ("NVIDIA H200", "sm_90"),
        ("a100", "sm_80"),
        ("A100-SXM4-80GB", "sm_80"),
        ("RTX 3090", "sm_86"),
        ("NVIDIA GeForce RTX 4090", "sm_89"),
        ("rtx4090", "sm_89"),
        ("L40S", "sm_89"),
        ("b200", "sm_100"),
        ("5090", "sm_120"),
    ],
)
def test_targets_go_by_what_people_call_them(name: str, target: str) -> None:
    assert resolve_target(name).name == target


RUNNABLE = {87: "kernels for sm_86 run on it"}
"""By compute capability without a target: cubins run on later minors of their major, unless they are for an `a`."""


@pytest.mark.parametrize("name", [*(name for name, of in GPU_NAMES.items() if f"sm_{of}" not in TARGETS), "sm_75"])
def test_what_is_not_supported_is_told_whose_kernels_run_on_it(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolve_target(name)
    number = GPU_NAMES.get(name, 75)
    runnable = RUNNABLE.get(number, "no kernel for another target runs on it")
    assert f"sm_{number}" in str(caught.value)
    assert f" is not supported; {runnable}; expected one of sm_80, " in str(caught.value)


def test_the_datacenter_blackwells_are_named_as_they_are() -> None:
    assert resolve_target("b300") is resolve_target("gb300") is TARGETS["sm_103"]
    assert resolve_target("b200").remarks == (
        "tcgen05, which the tensor cores of sm_100 are made for, is not used: torch is likely faster",
    )
    assert [name for name, row in TARGETS.items() if row.remarks] == ["sm_100", "sm_103"]


@pytest.mark.parametrize("words", [(8, 0), 90])
def test_what_is_no_name_of_a_target_is_refused(words: object) -> None:
    with pytest.raises(RequestError, match="expected a name, such as 'sm_90'"):
        resolve_target(words)  # type: ignore[arg-type]


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(RequestError, match="sm_99 is not supported; no kernel for another target runs on it"):
        targeting.choose_target("99")


class FakeNvml:
    """A management library with one GPU of some compute capability; a call named in `failing` fails."""

    def __init__(self, capability: tuple[int, int], failing: str = "") -> None:
        self.capability, self.failing, self.open = capability, failing, 0

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return int(self.failing == "init")

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: object) -> int:
        return int(self.failing == "handle")

    def nvmlDeviceGetCudaComputeCapability(self, device: object, major: object, minor: object) -> int:
        for pointer, value in zip((major, minor), self.capability, strict=True):
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = value  # type: ignore[arg-type]
        return int(self.failing == "capability")


@pytest.fixture
def forgetful() -> Iterator[None]:
    """The present GPU is asked for anew, before and after."""
    targeting.present_target.cache_clear()
    yield
    targeting.present_target.cache_clear()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize(
    ("nvml", "target"),
    [
        (FakeNvml((9, 0)), "sm_90"),
        (FakeNvml((8, 6)), "sm_86"),
        (FakeNvml((7, 5)), "sm_80"),
        (FakeNvml((9, 0), "init"), "sm_80"),
        (FakeNvml((9, 0), "handle"), "sm_80"),
        (FakeNvml((9, 0), "capability"), "sm_80"),
    ],
)
def test_the_default_target_is_the_present_gpus(nvml: FakeNvml, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: nvml)
    assert targeting.choose_target().name == target
    assert cutegen.plan(cutegen.load_spec("sm80_bf16_nn")).target.name == target
    assert nvml.open == int(nvml.failing == "init")


@pytest.mark.usefixtures("forgetful")
def test_without_a_driver_it_is_sm_80(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert targeting.present_target() is None
    assert targeting.choose_target().name == "sm_80"
