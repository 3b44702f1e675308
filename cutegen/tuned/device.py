"""The GPU of a measurement, as in a record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One GPU: a record applies to its name, the rest is evidence; unknown values are None."""

    name: str
    uuid: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_w: float | None = None
    driver: str | None = None
