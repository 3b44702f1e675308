"""The GPU that times were taken on, as a record keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One GPU: its name decides whom a record is for, the rest is evidence; what is not known is None."""

    name: str
    uuid: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_w: float | None = None
    driver: str | None = None
