"""Kernels of specs, for tests that hold them against their plans."""

from __future__ import annotations

import pytest

from cutegen.build import Cache
from tests.plan.kernels import Build, builder


@pytest.fixture(scope="session")
def built(kernels: Cache) -> Build:
    """Build a spec, once."""
    return builder(kernels)
