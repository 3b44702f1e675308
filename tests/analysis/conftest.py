"""The GPU that does not exist, whose measurements the benchmark's tests made up."""

from __future__ import annotations

from tests.bench.conftest import ceilings

__all__ = ["ceilings"]
