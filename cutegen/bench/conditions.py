"""Conditions of a run: the driver, and the packages whose versions affect times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from cutegen.bench.device_state import nvml

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
